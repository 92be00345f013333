//! Disks of a VM: their names in QEMU, their limits, and their completed IOs.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::limits::QemuLimits;
use super::qmp::{QmpError, Talk, short};
use crate::cgroup::glob;

/// The most disks of a VM that are looked at.
const MOST_DISKS: usize = 256;

/// A VM as its QEMU describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct QemuGuest {
    /// Name that the QEMU was given, if it was given one.
    pub name: Option<String>,
    /// Disks with a medium.
    pub disks: Vec<QemuDisk>,
}

/// Name of a disk in commands of QMP.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QmpDiskId {
    /// The device of the guest, by its path in QEMU.
    Id(String),
    /// The drive, by its name.
    Device(String),
}

/// A disk of a VM.
#[derive(Clone, Debug, PartialEq)]
pub struct QemuDisk {
    /// Name of the disk in commands of QMP.
    pub id: QmpDiskId,
    /// Name of its device or drive, as it was given to QEMU.
    pub name: String,
    /// Its node, and the files that it is opened from.
    pub opened: Vec<String>,
    /// Whether a throttle filter is its topmost node: IOs wait there that cannot be told from those at the array.
    pub is_filtered: bool,
    /// Its limits, parda's or others'.
    pub limits: QemuLimits,
    /// Counters since the QEMU began.
    pub counters: Counters,
}

/// What a disk has done. Times include the wait for its throttle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Reads that completed, without those that failed.
    pub reads: QemuFlow,
    /// Writes that completed, without those that failed.
    pub writes: QemuFlow,
}

/// Sums over IOs of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QemuFlow {
    /// Number of IOs that completed.
    pub ios: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Sum of their times, in nanoseconds.
    pub time: u64,
}

impl QemuFlow {
    /// IOs and bytes since `earlier`. `None` if `earlier` had more: the counters began anew.
    #[must_use]
    pub fn since(self, earlier: QemuFlow) -> Option<QemuFlow> {
        Some(QemuFlow {
            ios: self.ios.checked_sub(earlier.ios)?,
            bytes: self.bytes.checked_sub(earlier.bytes)?,
            time: self.time.checked_sub(earlier.time)?,
        })
    }

    fn parse(stats: &Value, way: &str) -> QemuFlow {
        let of =
            |what: &str| stats.get(format!("{way}_{what}")).and_then(Value::as_u64).unwrap_or(0);
        QemuFlow { ios: of("operations"), bytes: of("bytes"), time: of("total_time_ns") }
    }
}

impl QemuDisk {
    /// Whether a pattern matches its name, its node, or a file that it is opened from.
    #[must_use]
    pub fn matches(&self, pattern: &str) -> bool {
        std::iter::once(&self.name).chain(&self.opened).any(|name| glob(pattern, name))
    }
}

/// Asks a QEMU for its name and its disks.
///
/// # Errors
/// It does not answer as a QEMU does.
pub fn look(socket: &Path) -> Result<QemuGuest, QmpError> {
    let commands = ["query-name", "query-block", "query-blockstats"].map(|name| (name, json!({})));
    let answers = Talk::begin(socket)?.ask(&commands)?;
    let [name, blocks, stats] = answers.as_slice() else {
        return Err(QmpError::NotQmp("answers are missing".to_owned()));
    };
    let (Some(blocks), Some(stats)) = (blocks.as_array(), stats.as_array()) else {
        return Err(QmpError::NotQmp("its disks are no list".to_owned()));
    };
    let disks = blocks.iter().take(MOST_DISKS).filter_map(|block| disk(block, stats));
    Ok(QemuGuest {
        name: name.get("name").and_then(Value::as_str).map(short),
        disks: disks.collect(),
    })
}

fn id(block: &Value) -> Option<QmpDiskId> {
    let text = |key: &str| block.get(key)?.as_str().filter(|text| !text.is_empty());
    let id = text("qdev").map(|path| QmpDiskId::Id(path.to_owned()));
    id.or_else(|| text("device").map(|name| QmpDiskId::Device(name.to_owned())))
}

fn disk(block: &Value, stats: &[Value]) -> Option<QemuDisk> {
    let id = id(block)?;
    let inserted = block.get("inserted")?;
    let text = |value: &Value, key: &str| value.get(key)?.as_str().map(|text| text.to_owned());
    let name = match &id {
        // virtio disks are below the device that was given the name.
        QmpDiskId::Id(path) => path
            .strip_prefix("/machine/peripheral/")
            .map_or(path.as_str(), |path| path.split('/').next().unwrap_or(path)),
        QmpDiskId::Device(name) => name,
    };
    let stats = stats.iter().find(|stats| self::id(stats).as_ref() == Some(&id))?.get("stats")?;
    let image = inserted.get("image").unwrap_or(&Value::Null);
    let opened = [
        text(inserted, "node-name"),
        text(inserted, "file"),
        text(image, "filename"),
        text(block, "device"),
    ];
    Some(QemuDisk {
        name: short(name),
        opened: opened.into_iter().flatten().collect(),
        is_filtered: text(inserted, "drv").as_deref() == Some("throttle"),
        limits: QemuLimits::parse(inserted),
        counters: Counters {
            reads: QemuFlow::parse(stats, "rd"),
            writes: QemuFlow::parse(stats, "wr"),
        },
        id,
    })
}

/// Sets limits of disks where the limits in force are as `expected`: others may have set some meanwhile. Returns whether each
/// was set.
///
/// # Errors
/// The QEMU does not answer, or refuses one.
pub fn throttle(
    socket: &Path,
    disks: &[(&QmpDiskId, &QemuLimits)],
    expected: impl Fn(&QmpDiskId, &QemuLimits) -> bool,
) -> Result<Vec<bool>, QmpError> {
    // One conversation, so that no other client of the socket comes between.
    let mut talk = Talk::begin(socket)?;
    let blocks = talk.ask(&[("query-block", json!({}))])?.pop();
    let blocks = blocks.as_ref().and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let as_expected = |(disk, _): &(&QmpDiskId, &QemuLimits)| {
        let block = blocks.iter().find(|block| id(block).as_ref() == Some(disk));
        let inserted = block.and_then(|block| block.get("inserted"));
        inserted.is_some_and(|inserted| expected(disk, &QemuLimits::parse(inserted)))
    };
    let is_set: Vec<bool> = disks.iter().map(as_expected).collect();
    let command = |(id, limits): &(&QmpDiskId, &QemuLimits)| {
        let mut arguments: Map<_, _> = limits.arguments();
        let (key, name) = match id {
            QmpDiskId::Id(path) => ("id", path),
            QmpDiskId::Device(name) => ("device", name),
        };
        arguments.insert(key.to_owned(), name.as_str().into());
        // As QEMU calls a group that it was given no name for. Else the disk would stay in parda's.
        arguments.entry("group").or_insert_with(|| name.as_str().into());
        ("block_set_io_throttle", Value::from(arguments))
    };
    let chosen = disks.iter().zip(&is_set).filter(|(_, is_set)| **is_set);
    let commands: Vec<_> = chosen.map(|(disk, _)| command(disk)).collect();
    talk.ask(&commands)?;
    Ok(is_set)
}
