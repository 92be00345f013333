//! What a device does between two readings: latency from issue to completion, by direction and
//! size; mean outstanding IOs; and what each cgroup of the host wanted of it.

mod ebpf;
mod find;
mod flow;
mod histogram;
mod little;
mod whole;

use std::str::FromStr;

use parda_control::Span;
use parda_control::latency::Direction;

pub use ebpf::{Ebpf, RunTime};
pub use find::NotWatchable;
pub use histogram::Histogram;
pub use little::Little;

use crate::number::DevNum;

/// Where to look. A stack of devices is looked at in two places: where IOs of the VMs arrive, and
/// where they leave for the array. Mostly both are one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Where requests are made of what VMs submit: the disk, or the multipath device above it.
    pub fronts: Vec<DevNum>,
    /// Where requests are issued to the array: disks, each a path.
    pub leaves: Vec<DevNum>,
}

/// Reads or writes of one power of two of bytes, as issued to the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Which way.
    pub direction: Direction,
    /// Sizes from 2^this bytes, up to twice that.
    pub bytes_log2: u8,
    /// How many completed.
    pub ios: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// Sum of their device latencies, issue to completion.
    pub latency: Span,
}

/// What one cgroup did, by its id: the inode number of its directory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// The cgroup's id.
    pub cgroup: u64,
    /// IOs that completed.
    pub ios: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// Mean of what it had submitted and not yet got back, waiting or at the array, in IOs.
    pub pending: f64,
}

/// How it was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Method {
    /// At the block layer's tracepoints: each IO.
    Ebpf,
    /// Little's law on sampled in-flight counts. `error`: one standard error of the latency,
    /// relative.
    Little {
        /// As a part of the latency.
        error: f64,
    },
}

/// What happened since the reading before.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// How long that is.
    pub elapsed: Span,
    /// How it was measured.
    pub method: Method,
    /// What completed: reads and writes that moved data. (Flushes and discards take up a place at
    /// the device and count as outstanding; their latency says little of the array's.)
    pub classes: Vec<Class>,
    /// How the latencies of reads are spread. Empty where IOs are not seen one by one.
    pub reads: Histogram,
    /// And those of writes.
    pub writes: Histogram,
    /// Mean number of IOs issued to the array and not completed.
    pub outstanding: f64,
    /// Mean number of IOs submitted and not completed: those that wait for a place in a queue too.
    pub pending: f64,
    /// IOs that the device gave back undone, to be issued again: it, or the array, was full.
    pub requeues: u64,
    /// What each cgroup did, where that can be told.
    pub groups: Vec<Group>,
}

/// How to measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// With eBPF where it is to be had, else by Little's law.
    #[default]
    Auto,
    /// With eBPF or not at all.
    Ebpf,
    /// By Little's law.
    Little,
}

/// No way to measure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no way to measure: it must be \"auto\", \"ebpf\" or \"little\"")]
pub struct NotAChoice(String);

impl FromStr for Choice {
    type Err = NotAChoice;

    fn from_str(text: &str) -> Result<Choice, NotAChoice> {
        match text {
            "auto" => Ok(Choice::Auto),
            "ebpf" => Ok(Choice::Ebpf),
            "little" => Ok(Choice::Little),
            _ => Err(NotAChoice(text.to_owned())),
        }
    }
}

/// Why a device cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The kernel refuses eBPF, or has not what it takes.
    #[error("no eBPF: {0}")]
    Ebpf(String),
    /// The kernel does not count the IOs of a device.
    #[error("{device}: the kernel does not count its IOs: write 1 to {file}")]
    NotCounted {
        /// Which.
        device: DevNum,
        /// The file that says so.
        file: std::path::PathBuf,
    },
    /// A file of the kernel's that cannot be read, or not be understood; if it does not exist, the
    /// device is gone.
    #[error("{file}: {why}")]
    File {
        /// Which.
        file: std::path::PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// Something that measures. Each reading covers the time since the one before.
pub trait Measure: Send {
    /// What happened since the reading before.
    ///
    /// # Errors
    ///
    /// If the kernel does not say, or a device is gone.
    fn read(&mut self) -> Result<Reading, MeasureError>;

    /// Looks elsewhere from now on, as when a path failed or came back.
    ///
    /// # Errors
    ///
    /// If a device cannot be measured. What was watched before is watched still.
    fn watch(&mut self, watched: &Watched) -> Result<(), MeasureError>;

    /// Why it is done this way, if another was asked for first.
    fn because(&self) -> Option<&str> {
        None
    }
}

/// Begins to measure. Ends when what it gives is dropped.
///
/// # Errors
///
/// If it cannot be measured in the way asked for.
pub fn open(watched: &Watched, choice: Choice) -> Result<Box<dyn Measure>, MeasureError> {
    let why = match choice {
        Choice::Little => None,
        Choice::Ebpf => return Ok(Box::new(Ebpf::open(watched)?)),
        Choice::Auto => match Ebpf::open(watched) {
            Ok(ebpf) => return Ok(Box::new(ebpf)),
            Err(e) => Some(e.to_string()),
        },
    };
    Ok(Box::new(Little::open(std::path::Path::new("/"), watched, why)?))
}
