//! Reasons why a device's queue cannot be steered or measured, and the look into sysfs that may find one.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::DevNum;
use crate::sysfs;

/// A path that cannot be steered.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct SteerRefusal {
    /// The path, as it was given.
    pub path: PathBuf,
    /// Reason for the refusal.
    pub why: SteerRefusalReason,
}

/// Remedy for a path that leads nowhere.
fn missing(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => " (`lsblk` lists the devices of this host)",
        _ => "",
    }
}

/// Reason why a device cannot be steered or measured.
#[derive(Debug, thiserror::Error)]
pub enum SteerRefusalReason {
    /// The path cannot be read.
    #[error("cannot be looked at: {error}{help}", error = .0, help = missing(.0))]
    Unreadable(io::Error),
    /// The path leads to something without a queue that can be steered. Holds the reason and a remedy.
    #[error("{0}")]
    Unfit(String),
}

impl SteerRefusalReason {
    pub(crate) fn not_block() -> SteerRefusalReason {
        SteerRefusalReason::Unfit("is no block device".to_owned())
    }
}

/// The directory in sysfs of a device node, or of a directory there.
pub(crate) fn sysfs_dir(root: &Path, path: &Path) -> Result<PathBuf, SteerRefusalReason> {
    let number = number_of(path)?;
    let dir = root.join("sys/dev/block").join(number.to_string());
    fs::canonicalize(dir).map_err(|_| {
        SteerRefusalReason::Unfit(format!(
            "device {number} is not in sysfs: is it mounted at /sys?"
        ))
    })
}

/// Number of the device behind a device node or a directory in sysfs.
fn number_of(path: &Path) -> Result<DevNum, SteerRefusalReason> {
    let meta = fs::metadata(path).map_err(SteerRefusalReason::Unreadable)?;
    if meta.is_dir() {
        return sysfs::number(&path.join("dev")).map_err(|_| SteerRefusalReason::not_block());
    }
    if !meta.file_type().is_block_device() {
        return Err(SteerRefusalReason::not_block());
    }
    let number = meta.rdev();
    Ok(DevNum { major: rustix::fs::major(number), minor: rustix::fs::minor(number) })
}

/// The block devices below a device.
pub(crate) fn slaves(dir: &Path) -> Result<Vec<PathBuf>, SteerRefusalReason> {
    let entries = match fs::read_dir(dir.join("slaves")) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(SteerRefusalReason::Unreadable(e)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(SteerRefusalReason::Unreadable)?.path();
        // A device that went away in between is left out.
        found.extend(fs::canonicalize(path));
    }
    found.sort();
    Ok(found)
}

/// Description and remedy for devices that are known by name to have no queue that could be
/// steered.
pub(crate) fn by_name(name: &str) -> Option<&'static str> {
    let kinds = [
        ("zram", "is memory of this host, compressed: no array is behind it"),
        ("ram", "is memory of this host: no array is behind it"),
        ("pmem", "is memory of this host: no array is behind it"),
        ("md", "is a software RAID: it has no queue; steer the disks that it lies on"),
        (
            "bcache",
            "is a cache: what it sends to its disks is not what VMs ask of it; steer the \
                    disks that it lies on",
        ),
        ("drbd", "replicates in its own module: it has no queue; steer the disk that it lies on"),
        (
            "zd",
            "is a ZFS volume: ZFS has queues of its own (zfs_vdev_*_max_active); steer the disks \
                of the pool",
        ),
        ("fd", "is a floppy drive"),
        ("sr", "is a CD drive"),
    ];
    let numbered = |prefix: &str| {
        let rest = name.strip_prefix(prefix)?;
        (rest.starts_with(|c: char| c.is_ascii_digit()) || prefix == "md" && rest.starts_with('_'))
            .then_some(())
    };
    kinds.iter().find(|(prefix, _)| numbered(prefix).is_some()).map(|(_, what)| *what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_names_are_known() {
        for name in ["zram0", "ram3", "md127", "md_d0", "bcache2", "drbd1", "zd16", "sr0"] {
            assert!(by_name(name).is_some(), "{name}");
        }
        for name in ["sda", "sdfd1", "vda", "nvme0n1", "dm-0", "loop0", "rbd0", "nbd0"] {
            assert!(by_name(name).is_none(), "{name}");
        }
    }
}
