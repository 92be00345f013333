//! How fast the drives' time goes by: drives that are half as fast live at half the pace.

use crate::units::Nanos;

/// Up, so that nothing comes to a drive before what it has just done.
fn up(ns: f64) -> Nanos {
    Nanos(libm::ceil(ns) as u64)
}

/// From the array's time to the drives' own, and back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pace {
    /// How much longer than made for the drives take for everything.
    slow: f64,
    /// Since when, in the array's time, and what the drives' time was then.
    since: Nanos,
    drives: Nanos,
}

impl Pace {
    /// Both are the same.
    pub(super) const EVEN: Pace = Pace { slow: 1.0, since: Nanos::ZERO, drives: Nanos::ZERO };

    /// Another one from `now` on.
    pub(super) fn change(&mut self, now: Nanos, slow: f64) {
        *self = Pace { slow, since: now, drives: self.to_drives(now) };
    }

    /// The drives' time at a time of the array's.
    pub(super) fn to_drives(self, at: Nanos) -> Nanos {
        let passed = at - self.since;
        self.drives + if self.is_even() { passed } else { up(passed.0 as f64 / self.slow) }
    }

    /// The array's time at a time of the drives'.
    pub(super) fn to_array(self, at: Nanos) -> Nanos {
        if at == Nanos::NEVER {
            return at;
        }
        let passed = at - self.drives;
        self.since + if self.is_even() { passed } else { up(passed.0 as f64 * self.slow) }
    }

    fn is_even(self) -> bool {
        self.slow == 1.0
    }
}
