//! Trial for `parda check` of the NBD servers with TLS that a configuration names. No other check finds certificates that do not fit
//! together.

use parda_block::{BackendConfig, DiskConfig, OpenError};

use crate::config::Config;

/// Connects to the servers with TLS behind disks, all at once, and lists those that cannot be used. A missing server is no error: it may
/// come later than its agent.
#[must_use]
pub fn examine(config: &Config) -> Vec<String> {
    let disks = config.volumes.iter().flat_map(|volume| volume.disks().iter());
    let tried = disks.filter_map(|disk| match &disk.backend {
        BackendConfig::Nbd { uri, options } if uri.tls.is_some() => Some((disk, uri, *options)),
        _ => None,
    });
    std::thread::scope(|scope| {
        let tries: Vec<_> = tried
            .map(|(disk, uri, options)| {
                let connect = move || parda_block::try_server(uri, options, disk.read_only);
                (disk, scope.spawn(connect))
            })
            .collect();
        let note = |disk: &DiskConfig, error: OpenError| format!("disk {}: {error}", disk.name);
        tries
            .into_iter()
            // A thread that panicked has logged its panic.
            .filter_map(|(disk, tried)| Some(note(disk, tried.join().ok()?.err()?)))
            .collect()
    })
}
