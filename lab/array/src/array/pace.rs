//! Conversion between the array's time and the drives' time: slower drives run on slower time.

use crate::units::Nanos;

/// Rounds up, so that no event reaches a drive before the drive's last event.
fn up(ns: f64) -> Nanos {
    Nanos(libm::ceil(ns) as u64)
}

/// Map from the array's time to the drives' time, and back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pace {
    /// Factor by which the drives are slower than their parameters.
    slow: f64,
    /// Time of the last change, in the array's time; the next field is the same time of the drives.
    since: Nanos,
    drives: Nanos,
}

impl Pace {
    /// Drives at the speed of their parameters: both times are equal.
    pub(super) const EVEN: Pace = Pace { slow: 1.0, since: Nanos::ZERO, drives: Nanos::ZERO };

    /// Changes the factor from `now` on.
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
