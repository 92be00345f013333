//! Traces: the recorded reads and writes of a disk, for replay.
//!
//! | module | subject |
//! | --- | --- |
//! | [`read`](mod@read) | reads traces of fio or blkparse, recognised by their beginning |
//! | [`replay`] | a trace as the load of a client |

pub mod read;
pub mod replay;

use std::time::Duration;

use parda_control::Bytes;

pub use read::{parse, read};
pub use replay::{Begin, Player, Replay};

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

impl Trace {
    /// The trace of these IOs, whose times may count from anywhere. `None` without any.
    fn new(mut ios: Vec<TraceIo>) -> Option<Trace> {
        // Events of several CPUs may be slightly out of order.
        ios.sort_by_key(|io| io.at);
        ios.shrink_to_fit();
        let first = ios.first()?.at;
        ios.iter_mut().for_each(|io| io.at -= first);
        let last = ios.last()?.at;
        let gap = match ios.len() as u64 {
            1 => 1_000_000_000,
            n => last / (n - 1),
        };
        Some(Trace {
            length: Duration::from_nanos(last.saturating_add(gap.max(1))),
            end: Bytes(ios.iter().map(|io| io.offset + u64::from(io.len)).max()?),
            largest: Bytes(ios.iter().map(|io| io.len).max()?.into()),
            ios,
        })
    }

    /// The IOs, in the order of arrival. Never empty.
    #[must_use]
    pub fn ios(&self) -> &[TraceIo] {
        &self.ios
    }
}
