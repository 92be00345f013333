//! Judging age without synchronised clocks.
//!
//! No code compares time stamps of two hosts. A reader remembers, on its own clock, when it last saw a host's mark *change*. A host is
//! alive while its mark keeps changing. Some of its own periods without a change make it silent. The first sight of a host proves
//! nothing: a dead host's slot looks just the same. A host counts only from its first change on.

pub use parda_control::Liveness;
use parda_control::{Instant, Span};

/// Periods of its own without a change after which a host is stale: the law stops counting it.
///
/// Reader and writer are out of phase, which costs up to one period. A write that queues at a congested array may miss one more. Both
/// together must not make a living host disappear. A dead host's share is handed out within ten periods, so that windows still have seven
/// to grow.
pub const STALE_AFTER: u32 = 3;

/// Periods after which a host is gone: another host may take its slot. A host that was only paused finds its slot again before.
pub const GONE_AFTER: u32 = 30;

/// When something was last seen to change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch<Mark> {
    mark: Mark,
    seen: Seen,
}

/// The same, of what has its mark elsewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    since: Instant,
    moved: bool,
    /// Times between its last changes, once two are known.
    gaps: [Span; 2],
}

/// Factor by which a promised period may exceed the times between the last changes. A period grows at most twofold in a round.
const GROWS: u64 = 4;

impl<Mark: PartialEq> Watch<Mark> {
    /// Sees `mark` for the first time.
    pub(crate) fn new(now: Instant, mark: Mark) -> Watch<Mark> {
        Watch { mark, seen: Seen::first(now) }
    }

    /// Looks again. True if it changed since the last look.
    pub(crate) fn look(&mut self, now: Instant, mark: Mark) -> bool {
        let changed = mark != self.mark;
        if changed {
            self.mark = mark;
            self.seen.change(now);
        }
        changed
    }

    /// Liveness, if a change is promised every `period`.
    pub(crate) fn liveness(&self, now: Instant, period: Span) -> Liveness {
        self.seen.liveness(now, period)
    }
}

impl Seen {
    /// State at the first sight.
    pub(crate) fn first(now: Instant) -> Seen {
        Seen { since: now, moved: false, gaps: [Span::ZERO; 2] }
    }

    /// Notes a change and the gap since the one before.
    pub(crate) fn change(&mut self, now: Instant) {
        // The first sight is no change.
        let gap = if self.moved { now.since(self.since) } else { Span::ZERO };
        *self = Seen { since: now, moved: true, gaps: [gap, self.gaps[0]] };
    }

    /// The time since it was last seen to change, or since it was first seen.
    pub(crate) fn age(&self, now: Instant) -> Span {
        now.since(self.since)
    }

    /// Liveness, if a change is promised every `period`. A promise far beyond the kept intervals does not count. Otherwise a host whose
    /// clock is wrong would be counted for hours after its end.
    pub(crate) fn liveness(&self, now: Instant, period: Span) -> Liveness {
        let kept = self.gaps[0].max(self.gaps[1]);
        let known = self.gaps[1] > Span::ZERO;
        let period = if known { period.min(Span(kept.0.saturating_mul(GROWS))) } else { period };
        let after = |periods: u32| self.age(now) > Span(period.0.saturating_mul(periods.into()));
        if after(GONE_AFTER) {
            Liveness::Gone
        } else if after(STALE_AFTER) {
            Liveness::Stale
        } else if self.moved {
            Liveness::Live
        } else {
            Liveness::Unproven
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Span = Span::from_millis(100);

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    fn liveness(watch: &Watch<u64>, ms: u64) -> Liveness {
        watch.liveness(at(ms), PERIOD)
    }

    #[test]
    fn the_first_sight_proves_nothing() {
        let mut watch = Watch::new(at(0), 7);
        assert_eq!(liveness(&watch, 0), Liveness::Unproven);
        assert!(!watch.look(at(200), 7));
        assert_eq!(liveness(&watch, 200), Liveness::Unproven);
        assert!(watch.look(at(300), 8));
        assert_eq!(liveness(&watch, 300), Liveness::Live);
    }

    #[test]
    fn silence_is_counted_in_periods() {
        let mut watch = Watch::new(at(0), 1);
        watch.look(at(100), 2);
        assert_eq!(liveness(&watch, 400), Liveness::Live);
        assert_eq!(liveness(&watch, 401), Liveness::Stale);
        assert_eq!(liveness(&watch, 3_100), Liveness::Stale);
        assert_eq!(liveness(&watch, 3_101), Liveness::Gone);
    }

    #[test]
    fn a_promise_of_hours_is_no_life_of_hours() {
        let mut watch = Watch::new(at(0), 1);
        for mark in 2..6 {
            watch.look(at(100 * mark), mark);
        }
        let hours = Span::from_millis(3_600_000);
        assert_eq!(watch.liveness(at(500 + 1_200), hours), Liveness::Live);
        assert_eq!(watch.liveness(at(500 + 1_201), hours), Liveness::Stale);
    }

    #[test]
    fn a_smaller_mark_is_a_change_like_any_other() {
        let mut watch = Watch::new(at(0), u64::MAX);
        assert!(watch.look(at(100), 0));
    }
}
