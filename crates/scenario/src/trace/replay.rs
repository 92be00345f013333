//! A trace as what a VM does to its disk.

use std::sync::Arc;

use parda_control::Bytes;

use super::{Trace, TraceIo};

/// A VM that does what a trace says: an open loop, whose IOs arrive when the trace says, whatever
/// has come back.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    /// Shared among all that replay it.
    pub trace: Arc<Trace>,
    /// How many times as fast.
    pub speed: f64,
    /// Again and again, until it is stopped; otherwise once.
    pub repeat: bool,
    /// What lies behind the end of the disk is folded back onto it; otherwise nothing does.
    pub fold: bool,
    /// Where in the trace it begins.
    pub begin: Begin,
}

/// Where in a trace a replay begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// At its beginning.
    First,
    /// Somewhere, by chance, so that several that replay one trace do not keep step. After the
    /// trace's end comes its beginning.
    Anywhere,
}

impl Replay {
    /// Whether a disk of this size can be used so; otherwise what is wrong with it.
    pub(crate) fn fits(&self, disk: Bytes) -> Result<(), String> {
        let Trace { end, largest, .. } = *self.trace;
        if !disk.0.is_multiple_of(512) || disk.0 < largest.0 {
            let largest = largest.0;
            return Err(format!("must be a multiple of 512 bytes and hold an IO of {largest}"));
        }
        if disk.0 < end.0 && !self.fold {
            return Err(format!(
                "is too small for the trace, which goes up to {}: leave it out, and it is as large \
                 as the trace needs; or say `fold = true`, and what lies behind its end is folded \
                 back onto it",
                end.0
            ));
        }
        Ok(())
    }

    /// Where an IO of the trace goes on a disk of this size: where it was, or, behind the end, what
    /// is left when the disk's size is taken off as often as it goes; one that would end behind the
    /// disk's end ends there.
    fn place(&self, io: TraceIo, disk: Bytes) -> TraceIo {
        let offset = io.offset.checked_rem(disk.0).unwrap_or(0);
        TraceIo { offset: offset.min(disk.0.saturating_sub(io.len.into())), ..io }
    }
}

/// In ns, 146 years: no run lasts so long, and no clock ends before it.
const FOREVER: u64 = 1 << 62;

/// The IOs of a replay, one after the other.
#[derive(Clone, Debug)]
pub struct Player {
    replay: Replay,
    disk: Bytes,
    /// The first that arrives.
    first: usize,
    /// When in the trace it begins, in ns.
    origin: u64,
    /// How many have arrived.
    arrived: u64,
    /// When the last of them did, in ns of the replay.
    last: u64,
    /// How many have been begun.
    begun: u64,
}

impl Player {
    /// A player on a disk that fits. `chance`, from [0, 1), says where one begins that begins
    /// anywhere.
    #[must_use]
    pub fn new(replay: &Replay, disk: Bytes, chance: f64) -> Player {
        let length = replay.trace.length.as_nanos() as f64;
        let origin = match replay.begin {
            Begin::First => 0,
            Begin::Anywhere => (length * chance.clamp(0.0, 1.0)) as u64,
        };
        let first = replay.trace.ios().partition_point(|io| io.at < origin);
        Player { replay: replay.clone(), disk, first, origin, arrived: 0, last: 0, begun: 0 }
    }

    /// Begins anew, where it had begun.
    pub fn restart(&mut self) {
        (self.arrived, self.last, self.begun) = (0, 0, 0);
    }

    /// How long after the last arrival, or after the start, the next one comes, in ns. `None` after
    /// the last.
    pub fn gap(&mut self) -> Option<u64> {
        let Replay { trace, speed, repeat, .. } = &self.replay;
        let ios = trace.ios();
        let n = ios.len() as u64;
        if !repeat && self.arrived >= n {
            return None;
        }
        let place = self.first as u64 + self.arrived;
        let rounds = (place / n).saturating_mul(trace.length.as_nanos() as u64);
        let at = rounds.saturating_add(ios[(place % n) as usize].at).saturating_sub(self.origin);
        // Each by itself, so that nothing adds up.
        let at = (at as f64 / speed).round() as u64;
        let gap = at.saturating_sub(self.last).min(FOREVER);
        (self.arrived, self.last) = (self.arrived + 1, at.max(self.last));
        Some(gap)
    }

    /// The next IO, as it lies on the disk.
    pub fn io(&mut self) -> TraceIo {
        let ios = self.replay.trace.ios();
        let place = (self.first as u64 + self.begun) % ios.len() as u64;
        self.begun += 1;
        self.replay.place(ios[place as usize], self.disk)
    }
}
