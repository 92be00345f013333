//! Traces: what somebody's own hosts did to their disk, IO by IO, so that it can be replayed.
//!
//! | module | subject |
//! | --- | --- |
//! | [`read`](mod@read) | a trace from a file of fio's or of blkparse's, recognised by its beginning |
//! | [`replay`] | a trace as what a VM does: when, and where on its disk |
//! | [`summary`] | what a trace is made of |

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

/// The reads and writes of a trace, in the order in which they arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    ios: Vec<TraceIo>,
    /// From the first arrival to when the first would come again if it were repeated: the last
    /// arrival, and the mean time between two after it.
    pub length: Duration,
    /// Where the furthest of its IOs ends.
    pub end: Bytes,
    /// The largest of its IOs.
    pub largest: Bytes,
    /// What wrote it.
    pub format: Format,
    /// How many lines of it are neither read nor write, by what they are.
    pub skipped: BTreeMap<&'static str, u64>,
    /// How many were under way on the device that was traced, if it says when they were done.
    pub under_way: Option<UnderWay>,
}

/// A read or write of a trace: 24 bytes of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceIo {
    /// When it arrived, in ns from the first one on.
    pub at: u64,
    /// Where it begins, in bytes: a multiple of 512.
    pub offset: u64,
    /// How long it is, in bytes: a multiple of 512, and not 0.
    pub len: u32,
    /// A read, or else a write.
    pub read: bool,
}

/// What wrote a trace, and what of it the arrival of an IO is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// fio's log, version 2: the waits between IOs, if there are any.
    Iolog2,
    /// fio's log, version 3: when fio began each.
    Iolog3,
    /// blkparse's text: when each was queued (`Q`). That is when the program asked for it, however
    /// deep the queue in front of the device was.
    Queued,
    /// blkparse's text that has no `Q`: when each was given to the device (`D`). How long each had
    /// to wait before is lost, and with it how bursty the load was.
    Issued,
}

/// How many IOs were under way at the device that was traced.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct UnderWay {
    /// On average over time.
    pub mean: f64,
    /// At most.
    pub most: u64,
    /// How long one took, on average, in ms: by Little's law.
    pub latency_ms: f64,
}

impl Trace {
    /// Its IOs, in the order in which they arrived. Never none.
    #[must_use]
    pub fn ios(&self) -> &[TraceIo] {
        &self.ios
    }

    /// Whether it says when its IOs arrived: not all at one moment.
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
