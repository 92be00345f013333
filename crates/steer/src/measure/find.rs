//! Finds the devices to measure for any block device, steerable or not, and the kernel's counters of
//! them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::{MeasureError, Watched};
use crate::device::name_of;
use crate::number::DevNum;
use crate::refusal::{SteerRefusal, SteerRefusalReason, slaves, sysfs_dir};
use crate::sysfs;

impl Watched {
    /// Devices at which to measure: the disks below a partition, a logical volume or a multipath
    /// device.
    ///
    /// # Errors
    ///
    /// The path is no block device, or a device below it makes no requests.
    pub fn find(root: &Path, device: &Path) -> Result<Watched, SteerRefusal> {
        let refuse = |why| SteerRefusal { path: device.to_owned(), why };
        let dir = sysfs_dir(root, device).map_err(refuse)?;
        Watched::at(&dir).map_err(|name| {
            refuse(SteerRefusalReason::Unfit(format!(
                "{name} makes no requests of what is submitted, so there is nothing to measure"
            )))
        })
    }

    /// The devices, with leaves in place of a front without requests (a multipath device with
    /// `queue_mode bio`). Such a front passes IOs on at once.
    pub(super) fn requests(&self, root: &Path) -> Watched {
        let block = root.join("sys/dev/block");
        let makes = |device: &DevNum| block.join(device.to_string()).join("mq").is_dir();
        let fronts = if self.fronts.iter().all(makes) { &self.fronts } else { &self.leaves };
        Watched { fronts: fronts.clone(), leaves: self.leaves.clone() }
    }

    /// Devices at which to measure, from the directory in sysfs. The error is the name of a device that
    /// makes no requests.
    fn at(dir: &Path) -> Result<Watched, String> {
        let dir = match dir.parent() {
            Some(disk) if dir.join("partition").exists() => disk,
            _ => dir,
        };
        let name = || name_of(dir);
        let number: Option<DevNum> = sysfs::number(&dir.join("dev")).ok();
        // A device-mapper device has the directory too, if it is request-based.
        let here = number.filter(|_| dir.join("mq").is_dir());
        let below = slaves(dir).unwrap_or_default();
        if below.is_empty() {
            let here = here.ok_or_else(name)?;
            return Ok(Watched { fronts: vec![here], leaves: vec![here] });
        }
        let mut all = Watched { fronts: Vec::new(), leaves: Vec::new() };
        for one in below {
            let one = Watched::at(&one)?;
            all.fronts.extend(one.fronts);
            all.leaves.extend(one.leaves);
        }
        if let Some(here) = here {
            all.fronts = vec![here];
        }
        for devices in [&mut all.fronts, &mut all.leaves] {
            devices.sort();
            devices.dedup();
        }
        Ok(all)
    }
}

/// A counter file of a device in sysfs, kept open to be read repeatedly.
pub(super) struct Counts {
    pub(super) path: PathBuf,
    file: File,
}

impl Counts {
    pub(super) fn open(root: &Path, device: DevNum, file: &str) -> Result<Counts, MeasureError> {
        let path = root.join("sys/dev/block").join(device.to_string()).join(file);
        match File::open(&path) {
            Ok(file) => Ok(Counts { path, file }),
            Err(e) => Err(MeasureError(format!("{}: {e}", path.display()))),
        }
    }

    /// The first `N` numbers of the file.
    pub(super) fn read<const N: usize>(&self) -> Result<[u64; N], MeasureError> {
        let wrong = |why: String| MeasureError(format!("{}: {why}", self.path.display()));
        let mut bytes = [0; 512];
        let len = self.file.read_at(&mut bytes, 0).map_err(|e| wrong(e.to_string()))?;
        let text = String::from_utf8_lossy(&bytes[..len]);
        let mut numbers = text.split_whitespace().map(str::parse);
        let mut found = [0; N];
        for slot in &mut found {
            *slot = numbers
                .next()
                .and_then(Result::ok)
                .ok_or_else(|| wrong(format!("{:?} is not {N} numbers", text.trim())))?;
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, write};
    use std::os::unix::fs::symlink;

    use super::*;

    fn disk(root: &Path, name: &str, number: &str, mq: bool) -> PathBuf {
        let dir = root.join(name);
        create_dir_all(dir.join("slaves")).unwrap();
        write(dir.join("dev"), number).unwrap();
        if mq {
            create_dir_all(dir.join("mq/0")).unwrap();
        }
        dir
    }

    fn on(above: &Path, below: &Path) {
        symlink(below, above.join("slaves").join(below.file_name().unwrap())).unwrap();
    }

    fn numbers(list: &[&str]) -> Vec<DevNum> {
        list.iter().map(|n| n.parse().unwrap()).collect()
    }

    #[test]
    fn a_volume_on_multipath_arrives_at_the_multipath_device_and_leaves_by_its_paths() {
        let root = tempfile::tempdir().unwrap();
        let (a, b) =
            (disk(root.path(), "sda", "8:0", true), disk(root.path(), "sdb", "8:16", true));
        let mpath = disk(root.path(), "dm-0", "253:0", true);
        let volume = disk(root.path(), "dm-1", "253:1", false);
        on(&mpath, &b);
        on(&mpath, &a);
        on(&volume, &mpath);
        let watched = Watched::at(&volume).unwrap();
        assert_eq!(watched.fronts, numbers(&["253:0"]));
        assert_eq!(watched.leaves, numbers(&["8:0", "8:16"]));
    }

    #[test]
    fn a_partition_is_its_disk_and_a_striped_volume_all_of_its_disks() {
        let root = tempfile::tempdir().unwrap();
        let (a, b) =
            (disk(root.path(), "sda", "8:0", true), disk(root.path(), "sdb", "8:16", true));
        let part = disk(&a, "sda1", "8:1", false);
        write(part.join("partition"), "1\n").unwrap();
        let volume = disk(root.path(), "dm-0", "253:0", false);
        on(&volume, &part);
        on(&volume, &b);
        let watched = Watched::at(&volume).unwrap();
        assert_eq!(watched.fronts, numbers(&["8:0", "8:16"]));
        assert_eq!(watched.leaves, watched.fronts);
    }

    #[test]
    fn a_front_that_makes_no_requests_is_seen_by_what_is_below() {
        let root = tempfile::tempdir().unwrap();
        let path = |number: &str| format!("sys/dev/block/{number}");
        disk(root.path(), &path("253:0"), "253:0", false);
        disk(root.path(), &path("8:0"), "8:0", true);
        let watched = Watched { fronts: numbers(&["253:0"]), leaves: numbers(&["8:0"]) };
        assert_eq!(watched.requests(root.path()).fronts, watched.leaves);
        create_dir_all(root.path().join(path("253:0")).join("mq/0")).unwrap();
        assert_eq!(watched.requests(root.path()), watched);
    }

    #[test]
    fn what_makes_no_requests_is_named() {
        let root = tempfile::tempdir().unwrap();
        let zram = disk(root.path(), "zram0", "252:0", false);
        assert_eq!(Watched::at(&zram), Err("zram0".to_owned()));
        let error = Watched::find(root.path(), root.path()).unwrap_err().to_string();
        assert!(error.ends_with("is no block device"), "{error}");
    }
}
