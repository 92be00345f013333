//! A meter of a device, its readings and its errors.

use parda_control::Span;
use parda_control::latency::Direction;

use super::histogram::Histogram;
use crate::number::DevNum;

/// Devices to measure. A stack of devices is measured where the VMs' IOs arrive, and where they leave
/// for the array. Mostly these are the same device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Devices where submitted IOs become requests: the disk, or the multipath device above it.
    pub fronts: Vec<DevNum>,
    /// Devices where requests are issued to the array: disks, each a path.
    pub leaves: Vec<DevNum>,
}

/// Reads or writes of one size class, as issued to the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Direction: reads or writes.
    pub direction: Direction,
    /// Size class: from 2^this bytes to twice that.
    pub bytes_log2: u8,
    /// Number of completed IOs.
    pub ios: u64,
    /// Bytes that the completed IOs moved.
    pub bytes: u64,
    /// Sum of the device latencies, from issue to completion.
    pub latency: Span,
}

/// IOs of one cgroup.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CgroupIos {
    /// Id of the cgroup: the inode number of its directory.
    pub cgroup: u64,
    /// Number of completed IOs.
    pub ios: u64,
    /// Bytes that the completed IOs moved.
    pub bytes: u64,
    /// Mean number of IOs that were submitted and not completed, waiting or at the array.
    pub pending: f64,
}

/// Method of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Method {
    /// eBPF at the block layer's tracepoints: each IO is seen.
    Ebpf,
    /// Little's law on sampled in-flight counts.
    Little {
        /// One standard error of the latency, as a fraction of it.
        error: f64,
    },
}

/// Measurements since the previous reading.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceReading {
    /// Time since the previous reading.
    pub elapsed: Span,
    /// Method of the measurement.
    pub method: Method,
    /// Completed reads and writes that moved data, by class. Flushes and discards are outstanding IOs
    /// as well. Their latency says little about the array's.
    pub classes: Vec<Class>,
    /// Latencies of reads. Empty if IOs are not seen one by one.
    pub reads: Histogram,
    /// Latencies of writes. Empty if IOs are not seen one by one.
    pub writes: Histogram,
    /// Mean number of IOs that were issued to the array and not completed.
    pub outstanding: f64,
    /// Mean number of IOs that were submitted and not completed, including those that wait for a place
    /// in a queue.
    pub pending: f64,
    /// IOs that were returned to be issued again, as the device or the array was full.
    pub requeues: u64,
    /// IOs of each cgroup, if the method can tell them apart.
    pub groups: Vec<CgroupIos>,
}

/// Reason why a device cannot be measured, as text.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct MeasureError(pub(super) String);

impl MeasureError {
    /// The kernel refuses eBPF or lacks a feature.
    pub(super) fn no_ebpf(why: &str) -> MeasureError {
        MeasureError(format!("no eBPF: {why}"))
    }
}

/// A meter of a device. Each reading covers the time since the previous one.
pub trait Measure: Send {
    /// Measurements since the previous reading.
    ///
    /// # Errors
    ///
    /// The kernel's counters cannot be read, or a device no longer exists.
    fn read(&mut self) -> Result<DeviceReading, MeasureError>;

    /// Measures at other devices from now on, as when a path failed or came back.
    ///
    /// # Errors
    ///
    /// A device cannot be measured. The earlier devices are still measured.
    fn watch(&mut self, watched: &Watched) -> Result<(), MeasureError>;

    /// Reason for the method, if another was asked for first.
    fn because(&self) -> Option<&str> {
        None
    }
}
