//! The time integral of a quantity that steps: what means over a period are made of.

use crate::units::{Instant, Span};

/// See the module's documentation.
#[derive(Clone, Copy, Debug)]
pub struct Integral {
    value: f64,
    sum: f64,
    since: Instant,
}

impl Integral {
    /// An integral over a value that is zero so far.
    #[must_use]
    pub fn new(now: Instant) -> Integral {
        Integral { value: 0.0, sum: 0.0, since: now }
    }

    /// Adds `change` to the quantity.
    pub fn add(&mut self, now: Instant, change: f64) {
        if now > self.since {
            self.sum += self.value * now.since(self.since).secs();
            self.since = now;
        }
        self.value += change;
    }

    /// Sets the quantity to `value`.
    pub fn set(&mut self, now: Instant, value: f64) {
        self.add(now, value - self.value);
    }

    /// Current value.
    #[must_use]
    pub fn value(&self) -> f64 {
        self.value
    }

    /// Mean since the last call, `elapsed` ago. Zero for no time.
    pub fn mean(&mut self, now: Instant, elapsed: Span) -> f64 {
        self.add(now, 0.0);
        let sum = core::mem::take(&mut self.sum);
        if elapsed > Span::ZERO { sum / elapsed.secs() } else { 0.0 }
    }
}
