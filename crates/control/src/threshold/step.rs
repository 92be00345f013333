//! Thresholds, and steps from one to the next.

use crate::units::Span;

/// A threshold in seconds.
///
/// Not a [`Span`]: with whole nanoseconds a step up and the step back would not end exactly where they began.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Threshold(f64);

impl Threshold {
    /// A threshold from seconds.
    #[must_use]
    pub fn from_secs(secs: f64) -> Threshold {
        Threshold(secs)
    }

    /// Length in seconds.
    #[must_use]
    pub fn secs(self) -> f64 {
        self.0
    }

    /// Length in whole nanoseconds.
    #[must_use]
    pub fn span(self) -> Span {
        Span::from_secs(self.0)
    }

    /// Quotient of this threshold and another.
    pub(super) fn over(self, other: Threshold) -> f64 {
        self.0 / other.0
    }

    /// The smaller of two thresholds.
    pub(super) fn min(self, other: Threshold) -> Threshold {
        Threshold(self.0.min(other.0))
    }
}

/// Direction of a step of the threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// To a higher threshold.
    Up,
    /// To a lower threshold.
    Down,
}

impl Step {
    /// The step that undoes this one.
    #[must_use]
    pub fn back(self) -> Step {
        match self {
            Step::Up => Step::Down,
            Step::Down => Step::Up,
        }
    }

    /// Whether the step leads to a higher threshold.
    #[must_use]
    pub fn is_up(self) -> bool {
        self == Step::Up
    }
}

/// Interval in which the knee is, as far as tried.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Knee {
    /// The knee is above this threshold.
    pub low: Option<Threshold>,
    /// The knee is below this threshold.
    pub high: Option<Threshold>,
}

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
    /// The nearest threshold within bounds.
    pub(super) fn clamp(&self, threshold: Threshold) -> Threshold {
        Threshold(threshold.0.clamp(self.at_least.secs(), self.at_most.secs()))
    }

    /// One step from `threshold`, within bounds.
    pub(super) fn next(&self, threshold: Threshold, step: Step) -> Threshold {
        let secs = threshold.0;
        self.clamp(Threshold(match step {
            Step::Up => secs * (1.0 + self.step),
            Step::Down => secs / (1.0 + self.step),
        }))
    }

    /// `threshold` moved towards `goal` by one step at most.
    pub(super) fn towards(&self, threshold: Threshold, goal: Threshold) -> Threshold {
        let (secs, goal) = (threshold.0, self.clamp(goal).0);
        Threshold(goal.clamp(secs / (1.0 + self.step), secs * (1.0 + self.step)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_and_the_step_back_meet() {
        let auto = Auto::default();
        let from = Threshold::from_secs(0.030);
        for step in [Step::Up, Step::Down] {
            let there = auto.next(from, step);
            assert_eq!(there > from, step.is_up());
            let back = auto.towards(there, from);
            assert!((back.over(from) - 1.0).abs() < 1e-12);
        }
        assert_eq!(auto.next(Threshold::from_secs(0.099), Step::Up).span(), auto.at_most);
        assert_eq!(auto.next(Threshold::from_secs(0.000_1), Step::Down).span(), auto.at_least);
    }
}
