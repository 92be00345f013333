//! Events at a bounded rate.

use parda_control::Instant;

/// Events at a rate, of which some may come at once after a time without any.
///
/// `due` is when the next event would be at the rate alone; it may be ahead of time by `slack`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    interval: u64,
    slack: u64,
    due: Instant,
}

impl Rate {
    /// `at_once` events from the beginning.
    pub(crate) fn new(per_second: u64, at_once: u64) -> Self {
        let interval = 1_000_000_000 / per_second.max(1);
        Self { interval, slack: interval * at_once.saturating_sub(1), due: Instant(0) }
    }

    /// From when on so many more are allowed in a row.
    pub(crate) fn next(&self, in_a_row: u64) -> Instant {
        Instant((self.due.0 + self.interval * (in_a_row - 1)).saturating_sub(self.slack))
    }

    pub(crate) fn allows(&self, now: Instant) -> bool {
        self.next(1) <= now
    }

    pub(crate) fn count(&mut self, now: Instant) {
        self.due = Instant(self.due.0.max(now.0) + self.interval);
    }
}
