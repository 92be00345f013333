//! Settings of the search, and steps within them.

use crate::units::Span;

/// Settings of the search for the threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Auto {
    /// Threshold to begin with, if one is known from an operator or a probe.
    pub start: Option<Span>,
    /// Lower bound of the threshold.
    pub at_least: Span,
    /// Upper bound of the threshold.
    pub at_most: Span,
    /// Largest relative change in one period, such as 0.2.
    pub step: f64,
}

impl Default for Auto {
    fn default() -> Auto {
        Auto {
            start: None,
            at_least: Span::from_micros(100),
            at_most: Span::from_millis(100),
            step: 0.2,
        }
    }
}

impl Auto {
    /// The nearest threshold within bounds, in seconds.
    pub(super) fn clamp(&self, secs: f64) -> f64 {
        secs.clamp(self.at_least.secs(), self.at_most.secs())
    }

    /// One step up or down from a threshold in seconds, within bounds.
    pub(super) fn next(&self, secs: f64, up: bool) -> f64 {
        self.clamp(if up { secs * (1.0 + self.step) } else { secs / (1.0 + self.step) })
    }

    /// A threshold in seconds moved towards `goal`, within bounds, by one step at most.
    pub(super) fn towards(&self, secs: f64, goal: f64) -> f64 {
        self.clamp(goal).clamp(secs / (1.0 + self.step), secs * (1.0 + self.step))
    }
}
