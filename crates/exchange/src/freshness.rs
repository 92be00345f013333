//! Judging age without synchronised clocks.
//!
//! Nobody compares time stamps of two hosts. A reader remembers, on its own clock, when it last
//! saw a host's mark *change*; a host is alive while it keeps changing, and silent after some of
//! its own periods without. What is seen for the first time proves nothing: a dead host's slot
//! looks just the same, so it counts only from its first change on.

pub use parda_control::Liveness;
use parda_control::{Instant, Span};

/// After how many of its own periods a host that no longer changes is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freshness {
    /// Periods after which it is stale: the law stops counting it.
    ///
    /// Default 3. Reader and writer are out of phase, which costs up to one period, and a write
    /// that queues at a congested array may miss one more; both together must not make a living
    /// host disappear. The law has promised to hand out a dead host's share within ten periods,
    /// so the windows still have seven to grow.
    pub stale_after: u32,
    /// Periods after which it is gone: another host may take its slot.
    ///
    /// Default 30, ten times longer: a host that was only paused should find its slot again.
    pub gone_after: u32,
}

impl Default for Freshness {
    fn default() -> Freshness {
        Freshness { stale_after: 3, gone_after: 30 }
    }
}

impl Freshness {
    /// How alive a host looks whose mark has been the same for `age`, if it promises a change every `period`. `moved`: the
    /// mark has been seen to change.
    #[must_use]
    pub fn liveness(self, age: Span, period: Span, moved: bool) -> Liveness {
        let after = |periods: u32| age > Span(period.0.saturating_mul(periods.into()));
        if after(self.gone_after) {
            Liveness::Gone
        } else if after(self.stale_after) {
            Liveness::Stale
        } else if moved {
            Liveness::Live
        } else {
            Liveness::Unproven
        }
    }
}

/// When something was last seen to change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch<Mark> {
    mark: Mark,
    since: Instant,
    moved: bool,
}

impl<Mark: PartialEq> Watch<Mark> {
    /// Sees `mark` for the first time.
    pub(crate) fn new(now: Instant, mark: Mark) -> Watch<Mark> {
        Watch { mark, since: now, moved: false }
    }

    /// Looks again. True if it changed since the last look.
    pub(crate) fn look(&mut self, now: Instant, mark: Mark) -> bool {
        let changed = mark != self.mark;
        if changed {
            *self = Watch { mark, since: now, moved: true };
        }
        changed
    }

    /// The time since it was last seen to change, or since it was first seen.
    pub(crate) fn age(&self, now: Instant) -> Span {
        now.since(self.since)
    }

    /// How alive it looks to `freshness`, if it promises a change every `period`.
    pub(crate) fn liveness(&self, now: Instant, period: Span, freshness: Freshness) -> Liveness {
        freshness.liveness(self.age(now), period, self.moved)
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
        watch.liveness(at(ms), PERIOD, Freshness::default())
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
    fn a_smaller_mark_is_a_change_like_any_other() {
        let mut watch = Watch::new(at(0), u64::MAX);
        assert!(watch.look(at(100), 0));
    }
}
