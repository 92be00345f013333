//! What a device does between two readings: latency from issue to completion, by direction and
//! size; mean outstanding IOs; and what each cgroup of the host wanted of it.

use parda_control::Span;
use parda_control::latency::Direction;

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
    /// What completed.
    pub classes: Vec<Class>,
    /// Mean number of IOs issued to the array and not completed.
    pub outstanding: f64,
    /// Mean number of IOs submitted and not completed: those that wait for a place in a queue too.
    pub pending: f64,
    /// IOs that the device gave back undone, to be issued again: it, or the array, was full.
    pub requeues: u64,
    /// What each cgroup did, where that can be told.
    pub groups: Vec<Group>,
}
