//! Whether a member of etcd on this host has its data where a volume under control is.

use std::fs::metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use parda_etcd::Endpoint;

use super::exchange::Exchange;
use super::volume::{Volume, Work};
use crate::patience::{self, Question};

/// Data directory of Debian's etcd.
const DATA_DIR: &str = "/var/lib/etcd";

/// Warnings about a member of etcd on this host whose data is on a volume under control. Such a member is slow when it is needed most, and
/// its flushes load the array.
pub(super) fn warnings(volumes: &[Volume]) -> Vec<String> {
    let mut warnings = Vec::new();
    for volume in volumes {
        let Some(etcd) = volume.exchange.as_ref().and_then(Exchange::etcd) else { continue };
        let local = etcd.cluster.endpoints.iter().any(Endpoint::is_loopback);
        let data = match &etcd.data_dir {
            Some(data) => data.as_path(),
            None if local => Path::new(DATA_DIR),
            None => continue,
        };
        let Ok(meta) = metadata(data) else { continue };
        let under = volumes.iter().find_map(|volume| Some((volume, place_at(volume, meta.dev())?)));
        if let Some((controlled, place)) = under {
            warnings.push(format!(
                "volume {}: etcd's data, {}, is where volume {} has {place}: etcd would be slow when it is needed \
                 most. Give it a disk of its own",
                volume.name,
                data.display(),
                controlled.name,
            ));
        }
    }
    warnings
}

/// Path of the volume on the file system with this device number.
fn place_at(volume: &Volume, device: u64) -> Option<String> {
    let paths: Vec<&Path> = match &volume.work {
        Work::Steer(steer) => vec![&steer.device],
        Work::Qemu(_) => Vec::new(),
        Work::Serve(disks) => disks.iter().filter_map(|disk| disk.backend.path()).collect(),
    };
    let is_there = |path: &Path| {
        let path = path.to_owned();
        move || {
            metadata(path).is_ok_and(|meta| match meta.file_type().is_block_device() {
                true => meta.rdev() == device,
                false => meta.dev() == device,
            })
        }
    };
    let questions = paths.iter().map(|path| Question::new(path, is_there(path)));
    let answers = patience::ask(questions.collect());
    let there = paths.into_iter().zip(answers).find(|(_, is_there)| *is_there == Some(true));
    there.map(|(path, _)| path.display().to_string())
}
