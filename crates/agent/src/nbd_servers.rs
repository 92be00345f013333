//! The NBD servers with TLS that a configuration names, tried for `parda check`: certificates that
//! do not fit together are found out by no other look.

use parda_block::OpenError;

use crate::config::{Config, Disk, Place};

/// Connects to the servers with TLS behind disks, all at once, and says of which nothing is to be
/// had. That is no error: a server may come later than its agent.
#[must_use]
pub fn examine(config: &Config) -> Vec<String> {
    let disks = config.volumes.iter().flat_map(|volume| volume.disks().iter());
    let tried = disks.filter_map(|disk| match &disk.place {
        Place::Nbd(uri) if uri.tls.is_some() => Some((disk, uri)),
        _ => None,
    });
    std::thread::scope(|scope| {
        let tries: Vec<_> = tried
            .map(|(disk, uri)| {
                let connect = || parda_block::try_server(uri, disk.nbd, disk.read_only);
                (disk, scope.spawn(connect))
            })
            .collect();
        let note = |disk: &Disk, error: OpenError| format!("disk {}: {error}", disk.name);
        tries
            .into_iter()
            // One that panicked has said so.
            .filter_map(|(disk, tried)| Some(note(disk, tried.join().ok()?.err()?)))
            .collect()
    })
}
