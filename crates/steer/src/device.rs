//! Resolves a path to the queues to steer. Partitions, logical volumes and encryption lead to the
//! disk below, a multipath device to its paths.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::DevNum;
use crate::measure::Watched;
use crate::refusal::{SteerRefusal, SteerRefusalReason, by_name, slaves, sysfs_dir};
use crate::sysfs::{self, SysError};

/// A device whose queues can be steered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Root of `/sys`: `/` except in tests.
    pub root: PathBuf,
    /// Kernel name of the steered device: `sda`, or `dm-3` for a multipath device.
    pub name: String,
    /// Device number of the steered device.
    pub number: DevNum,
    /// Devices between the given path and the steered device, from above: `vg-data`, `sda2`.
    pub through: Vec<String>,
    /// Device-mapper name, for a multipath device.
    pub multipath: Option<String>,
    /// Queues: one, or one for each path of a multipath device, including failed paths.
    pub queues: Vec<Queue>,
}

/// A disk with a request queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Kernel name of the disk.
    pub name: String,
    /// Device number of the disk.
    pub number: DevNum,
    /// Directory of the disk in sysfs.
    pub dir: PathBuf,
    /// Kind of the disk.
    pub kind: QueueKind,
}

/// Kind of disk that a queue belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// A SCSI disk: a LUN.
    Scsi {
        /// Directory of its adapter in sysfs.
        adapter: PathBuf,
        /// Name of the adapter's driver.
        driver: String,
    },
    /// A disk whose driver takes requests from the block layer directly: virtio-blk, NVMe, nbd, loop …
    BlkMq,
}

impl Device {
    /// Resolves a path: a device node, or a disk's directory in sysfs.
    pub fn resolve(root: &Path, path: &Path) -> Result<Device, SteerRefusal> {
        let refuse = |why| SteerRefusal { path: path.to_owned(), why };
        let dir = sysfs_dir(root, path).map_err(refuse)?;
        let mut through = Vec::new();
        let dir = descend(&dir, &mut through).map_err(refuse)?;
        Device::at(root, dir, through).map_err(refuse)
    }

    /// A disk or a multipath device, by its directory in sysfs.
    fn at(root: &Path, dir: PathBuf, through: Vec<String>) -> Result<Device, SteerRefusalReason> {
        let name = name_of(&dir);
        let number = sysfs::number(&dir.join("dev")).map_err(unreadable)?;
        let (multipath, queues) = if is_multipath(&dir) {
            let mapped = sysfs::read(&dir.join("dm/name")).map_err(unreadable)?;
            let paths = paths(&dir)?;
            if paths.is_empty() {
                return Err(SteerRefusalReason::Unfit(format!("{name} has no path left")));
            }
            (Some(mapped), paths)
        } else {
            if let Some(above) = multipath_above(&dir) {
                return Err(SteerRefusalReason::Unfit(format!(
                    "{name} is a path of the multipath device {above}: steer that"
                )));
            }
            (None, vec![Queue::at(&dir)?])
        };
        Ok(Device { root: root.to_owned(), name, number, through, multipath, queues })
    }

    /// Devices at which to measure this one.
    #[must_use]
    pub fn watched(&self) -> Watched {
        Watched {
            fronts: vec![self.number],
            leaves: self.queues.iter().map(|queue| queue.number).collect(),
        }
    }

    /// Directory of the device in sysfs.
    #[must_use]
    pub fn dir(&self) -> PathBuf {
        self.root.join("sys/dev/block").join(self.number.to_string())
    }
}

impl Queue {
    /// The disk with this directory in sysfs.
    fn at(dir: &Path) -> Result<Queue, SteerRefusalReason> {
        let name = name_of(dir);
        if let Some(what) = by_name(&name) {
            return Err(SteerRefusalReason::Unfit(format!("{name} {what}")));
        }
        if is_native_multipath(dir) {
            return Err(SteerRefusalReason::Unfit(format!(
                "{name} is an NVMe disk whose paths the kernel hides: they can be neither steered nor measured one by \
                 one; boot with nvme_core.multipath=N and use the device mapper's multipath"
            )));
        }
        let is =
            |file: &str, value: &str| sysfs::read_any(&dir.join(file)).as_deref() == Some(value);
        if is("removable", "1") {
            return Err(SteerRefusalReason::Unfit(format!(
                "{name} is removable: it is no volume that hosts share"
            )));
        }
        if is("size", "0") {
            return Err(SteerRefusalReason::Unfit(format!(
                "{name} has no size: nothing is attached to it"
            )));
        }
        if !dir.join("mq").is_dir() {
            return Err(SteerRefusalReason::Unfit(format!(
                "{name} hands its IOs on one by one and has no queue of its own: nothing to set"
            )));
        }
        let number = sysfs::number(&dir.join("dev")).map_err(unreadable)?;
        Ok(Queue { name, number, dir: dir.to_owned(), kind: kind(dir) })
    }

    /// Description of the disk, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        match &self.kind {
            QueueKind::Scsi { driver, .. } => format!("SCSI ({driver})"),
            QueueKind::BlkMq => {
                // The device of an NVMe namespace is its controller, whose own device is on a bus.
                let driver = ["device/driver", "device/device/driver"];
                let driver =
                    driver.iter().find_map(|link| fs::canonicalize(self.dir.join(link)).ok());
                let driver = driver.map_or_else(
                    // A device that belongs to a module alone, such as loop0 and nbd3.
                    || self.name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned(),
                    |dir| name_of(&dir),
                );
                format!("blk-mq ({driver})")
            }
        }
    }

    /// The elevator in force.
    pub(crate) fn scheduler(&self) -> Result<String, SysError> {
        sysfs::choice(&self.dir.join("queue/scheduler"))
    }

    /// Number of hardware queues, each with tags of its own.
    #[must_use]
    pub fn hardware_queues(&self) -> u32 {
        let numbered = |entry: io::Result<fs::DirEntry>| {
            let name = entry.ok()?.file_name();
            name.to_str()?.parse::<u32>().ok()
        };
        let count = fs::read_dir(self.dir.join("mq")).map_or(0, |d| d.filter_map(numbered).count());
        u32::try_from(count).unwrap_or(u32::MAX).max(1)
    }

    /// A counter of the kernel (since 5.15) that changes when another disk takes this name.
    #[must_use]
    pub(crate) fn instance(&self) -> Option<String> {
        sysfs::read_any(&self.dir.join("diskseq"))
    }

    /// Other disks that share the queue's tags: namespaces of one NVMe controller.
    pub(crate) fn tag_mates(&self) -> Vec<String> {
        let Some((controller, _)) =
            self.name.strip_prefix("nvme").and_then(|rest| rest.split_once('n'))
        else {
            return Vec::new();
        };
        let prefix = format!("nvme{controller}n");
        let Some(above) = self.dir.parent() else { return Vec::new() };
        let names = fs::read_dir(above).into_iter().flatten().filter_map(Result::ok);
        let mut mates: Vec<String> = names
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name.starts_with(&prefix) && *name != self.name)
            .collect();
        mates.sort();
        mates
    }
}

/// The current paths of a multipath device.
pub(crate) fn paths(dir: &Path) -> Result<Vec<Queue>, SteerRefusalReason> {
    slaves(dir)?.iter().map(|below| Queue::at(below)).collect()
}

/// Descends from a block device to the disk or multipath device at which its IOs end.
fn descend(dir: &Path, through: &mut Vec<String>) -> Result<PathBuf, SteerRefusalReason> {
    let name = name_of(dir);
    if dir.join("partition").exists() {
        through.push(name);
        let disk = dir.parent().ok_or_else(SteerRefusalReason::not_block)?;
        return descend(disk, through);
    }
    if !dir.join("dm").is_dir() || is_multipath(dir) {
        return Ok(dir.to_owned());
    }
    let shown = sysfs::read_any(&dir.join("dm/name")).unwrap_or(name);
    through.push(shown.clone());
    let mut ends: Vec<(PathBuf, Vec<String>)> = Vec::new();
    for below in slaves(dir)? {
        let mut way = Vec::new();
        let end = descend(&below, &mut way)?;
        if ends.iter().all(|(known, _)| *known != end) {
            ends.push((end, way));
        }
    }
    let mut below: Vec<String> = ends.iter().map(|(end, _)| name_of(end)).collect();
    below.sort();
    match (ends.pop(), ends.is_empty()) {
        (None, _) => {
            Err(SteerRefusalReason::Unfit(format!("{shown} lies on no disk: nothing to steer")))
        }
        (Some((end, way)), true) => {
            through.extend(way);
            Ok(end)
        }
        (Some(_), false) => Err(SteerRefusalReason::Unfit(format!(
            "{shown} lies on several disks ({}): their queues fill unevenly, so that no split of one window is right; \
             steer each of them as a volume of its own",
            below.join(", ")
        ))),
    }
}

fn is_multipath(dir: &Path) -> bool {
    sysfs::read_any(&dir.join("dm/uuid")).is_some_and(|uuid| uuid.starts_with("mpath-"))
}

/// The multipath device that a disk is a path of.
fn multipath_above(dir: &Path) -> Option<String> {
    let holders = fs::read_dir(dir.join("holders")).ok()?;
    let above = holders.filter_map(|entry| fs::canonicalize(entry.ok()?.path()).ok());
    above.filter(|dir| is_multipath(dir)).map(|dir| name_of(&dir)).next()
}

/// Whether a disk belongs to NVMe's native multipath. Such a disk belongs to the subsystem, not to
/// a controller.
fn is_native_multipath(dir: &Path) -> bool {
    name_of(dir).starts_with("nvme")
        && dir.components().any(|part| part.as_os_str() == "nvme-subsystem")
}

fn kind(dir: &Path) -> QueueKind {
    let Ok(device) = fs::canonicalize(dir.join("device")) else { return QueueKind::BlkMq };
    if !device.join("queue_depth").exists() {
        return QueueKind::BlkMq;
    }
    let is_host = |dir: &&Path| {
        let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.strip_prefix("host").is_some_and(|rest| rest.parse::<u32>().is_ok())
    };
    let Some(host) = device.ancestors().find(is_host) else { return QueueKind::BlkMq };
    let adapter = host.join("scsi_host").join(name_of(host));
    let driver = sysfs::read_any(&adapter.join("proc_name"));
    QueueKind::Scsi { driver: driver.unwrap_or_else(|| "unknown driver".to_owned()), adapter }
}

/// Last component of a path: the kernel's name.
pub(crate) fn name_of(dir: &Path) -> String {
    dir.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn unreadable(error: SysError) -> SteerRefusalReason {
    SteerRefusalReason::Unreadable(io::Error::other(error.to_string()))
}
