//! Replay of a trace as the load of a client.

use std::sync::Arc;

use parda_control::Bytes;

use super::{Trace, TraceIo};

/// A replay: an open loop whose IOs arrive at the times of the trace, regardless of completions.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    /// The trace, shared among all replays of it.
    pub trace: Arc<Trace>,
    /// Speed factor: 2 replays twice as fast.
    pub speed: f64,
    /// Whether the trace is repeated until the VM stops; otherwise it is replayed once.
    pub repeat: bool,
    /// Whether IOs beyond the end of the disk are folded back onto it. If not, no IO of the trace may
    /// lie there.
    pub fold: bool,
    /// Beginning of the replay within the trace.
    pub begin: Begin,
}

/// Beginning of a replay within its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// The beginning of the trace.
    First,
    /// A random point, so that several replays of one trace are out of phase. The trace wraps around at
    /// its end.
    Anywhere,
}

impl Replay {
    /// Checks that a disk of this size suits the replay. The error is a message.
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

    /// Location of an IO of the trace on a disk of this size. An IO beyond the end is placed at its
    /// offset modulo the disk's size. An IO that would cross the end is moved to end there.
    fn place(&self, io: TraceIo, disk: Bytes) -> TraceIo {
        let offset = io.offset.checked_rem(disk.0).unwrap_or(0);
        TraceIo { offset: offset.min(disk.0.saturating_sub(io.len.into())), ..io }
    }
}

/// A time in ns after which no run lasts (146 years), and which no clock overflows.
const FOREVER: u64 = 1 << 62;

/// Iterator over the IOs of a replay.
#[derive(Clone, Debug)]
pub struct Player {
    replay: Replay,
    disk: Bytes,
    /// Index of the IO that arrives first.
    first: usize,
    /// Time in the trace at which the replay begins, in ns.
    origin: u64,
    /// Number of IOs that have arrived.
    arrived: u64,
    /// Time of the last arrival, in ns of the replay.
    last: u64,
    /// Number of IOs that were begun.
    begun: u64,
}

impl Player {
    /// A player on a disk that suits the replay. `chance`, in [0, 1), places the beginning of a replay
    /// that begins anywhere.
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

    /// Restarts the replay at its beginning.
    pub fn restart(&mut self) {
        (self.arrived, self.last, self.begun) = (0, 0, 0);
    }

    /// Time from the last arrival, or from the start, to the next one, in ns. `None` after the last IO.
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
        // Times are scaled one by one, so that rounding errors do not add up.
        let at = (at as f64 / speed).round() as u64;
        let gap = at.saturating_sub(self.last).min(FOREVER);
        (self.arrived, self.last) = (self.arrived + 1, at.max(self.last));
        Some(gap)
    }

    /// The next IO, at its location on the disk.
    pub fn io(&mut self) -> TraceIo {
        let ios = self.replay.trace.ios();
        let place = (self.first as u64 + self.begun) % ios.len() as u64;
        self.begun += 1;
        self.replay.place(ios[place as usize], self.disk)
    }
}
