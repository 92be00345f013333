//! Traces: the recorded reads and writes of a disk, for replay.
//!
//! | module | subject |
//! | --- | --- |
//! | [`read`](mod@read) | reads traces of fio or blkparse, recognised by their beginning |
//! | [`replay`] | a trace as the load of a client |
//! | [`summary`] | statistics of a trace |

mod blkparse;
mod builder;
mod iolog;
pub mod read;
pub mod replay;
pub mod summary;

use std::collections::BTreeMap;
use std::time::Duration;

use parda_control::Bytes;
use serde::Serialize;

pub use read::{parse, read};
pub use replay::{Begin, Player, Replay};
pub use summary::Summary;

/// The reads and writes of a trace, in the order of arrival.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    ios: Vec<TraceIo>,
    /// Length of one round of a repeated replay: the last arrival plus the mean time between two
    /// arrivals.
    pub length: Duration,
    /// Largest end of an IO, in bytes from the beginning of the disk.
    pub end: Bytes,
    /// Size of the largest IO.
    pub largest: Bytes,
    /// Format of the file.
    pub format: Format,
    /// Number of lines that are neither reads nor writes, by kind.
    pub skipped: BTreeMap<&'static str, u64>,
    /// IOs that were outstanding at the traced device, if the trace has completions.
    pub under_way: Option<UnderWay>,
}

/// A read or write of a trace. Takes 24 bytes of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceIo {
    /// Time of arrival, in ns from the first arrival.
    pub at: u64,
    /// Offset in bytes, a multiple of 512.
    pub offset: u64,
    /// Length in bytes, a positive multiple of 512.
    pub len: u32,
    /// Whether the IO is a read; otherwise a write.
    pub read: bool,
}

/// Format of a trace, which determines what counts as the arrival of an IO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// fio's log, version 2: the waits between IOs, if there are any.
    Iolog2,
    /// fio's log, version 3: the time at which fio began each IO.
    Iolog3,
    /// blkparse's text with `Q` events: the time at which each IO was queued, which is when the program
    /// asked for it, however deep the queue of the device was.
    Queued,
    /// blkparse's text without `Q` events: the time at which each IO was issued to the device (`D`).
    /// The waits before, and with them the burstiness of the load, are lost.
    Issued,
}

/// Outstanding IOs at the traced device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct UnderWay {
    /// Mean number over time.
    pub mean: f64,
    /// Largest number at any moment.
    pub most: u64,
    /// Mean latency in ms, by Little's law.
    pub latency_ms: f64,
}

impl Trace {
    /// The IOs, in the order of arrival. Never empty.
    #[must_use]
    pub fn ios(&self) -> &[TraceIo] {
        &self.ios
    }

    /// Whether the trace has arrival times: not all IOs arrive at once.
    #[must_use]
    pub fn has_times(&self) -> bool {
        self.ios.last().is_some_and(|last| last.at > 0) || self.ios.len() == 1
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Format::Iolog2 => "fio iolog, version 2",
            Format::Iolog3 => "fio iolog, version 3",
            Format::Queued => "blkparse, as queued (Q)",
            Format::Issued => "blkparse, as issued (D)",
        })
    }
}
