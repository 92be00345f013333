//! Expectations of a run, and verdicts on them.

use std::fmt;

use parda_config::Amount;
use serde::{Deserialize, Serialize};

use crate::answer::PhaseAnswer;
use crate::metric::Metric;

/// An expectation: a metric and the bound on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// The metric to be judged.
    pub what: Metric,
    /// The metric by which the first is divided, for a ratio.
    pub of: Option<Metric>,
    /// Source of the expectation: a paper's figure, or a promise of this project. Empty if none is given.
    pub source: String,
    /// Bound on the metric or ratio.
    pub bound: Bound,
    /// Reason for an exemption: a miss is shown and does not fail the run.
    pub exempt: Option<String>,
}

/// A bound on a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Near `expected`, in either direction.
    Near {
        /// The number that the metric should have.
        expected: f64,
        /// Allowed deviation: absolute, or a percentage of `expected`.
        tolerance: Amount,
    },
    /// At least this number.
    AtLeast(f64),
    /// At most this number.
    AtMost(f64),
}

/// Verdict on an expectation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Path of the metric; `A of B` for a ratio.
    pub what: String,
    /// Source of the expectation. Empty if none is given.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// The expected number, or the bound.
    pub expected: f64,
    /// The measured number. `None` if there was nothing to measure, which never meets the expectation.
    pub measured: Option<f64>,
    /// Allowed deviation: `"10%"` or `"±3"`; `"at least"` or `"at most"` for a bound.
    pub tolerance: String,
    /// Whether the measured number is within the bound.
    pub ok: bool,
    /// Reason for an exemption, if the expectation is exempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exempt: Option<String>,
}

impl Verdict {
    /// Whether the expectation is met or exempt.
    #[must_use]
    pub fn accepted(&self) -> bool {
        self.ok || self.exempt.is_some()
    }

    /// Whether the expectation is judged and failed.
    #[must_use]
    pub fn missed(&self) -> bool {
        !self.accepted()
    }
}

/// Numbers of expectations that passed and failed. Exempt ones count as neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Judged expectations that hold.
    pub passed: usize,
    /// Judged expectations that do not hold.
    pub missed: usize,
    /// Expectations that are not judged, whether they hold or not.
    pub exempt: usize,
}

impl Tally {
    /// Numbers of verdicts that pass, miss and are exempt.
    pub fn of<'a>(verdicts: impl IntoIterator<Item = &'a Verdict>) -> Tally {
        verdicts.into_iter().fold(Tally::default(), |mut tally, verdict| {
            *match (&verdict.exempt, verdict.ok) {
                (Some(_), _) => &mut tally.exempt,
                (None, true) => &mut tally.passed,
                (None, false) => &mut tally.missed,
            } += 1;
            tally
        })
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} missed, {} exempt", self.passed, self.missed, self.exempt)
    }
}

impl Bound {
    /// Whether a number is within the bound.
    #[must_use]
    pub fn holds(&self, measured: f64) -> bool {
        match *self {
            Bound::Near { expected, tolerance } => {
                let off = match tolerance {
                    Amount::Number(n) => n,
                    Amount::Percent(p) => expected.abs() * p / 100.0,
                };
                (measured - expected).abs() <= off
            }
            Bound::AtLeast(least) => measured >= least,
            Bound::AtMost(most) => measured <= most,
        }
    }
}

impl Expectation {
    /// Reads the metric from `phases` and judges it.
    #[must_use]
    pub fn judge(&self, phases: &[PhaseAnswer]) -> Verdict {
        let measured = match &self.of {
            None => self.what.value(phases),
            Some(of) => self
                .what
                .value(phases)
                .zip(of.value(phases))
                .and_then(|(a, b)| (b != 0.0).then_some(a / b)),
        };
        let (expected, tolerance) = match self.bound {
            Bound::Near { expected, tolerance: Amount::Number(n) } => (expected, format!("±{n}")),
            Bound::Near { expected, tolerance } => (expected, tolerance.to_string()),
            Bound::AtLeast(least) => (least, "at least".to_owned()),
            Bound::AtMost(most) => (most, "at most".to_owned()),
        };
        Verdict {
            what: match &self.of {
                None => self.what.to_string(),
                Some(of) => format!("{} of {of}", self.what),
            },
            source: self.source.clone(),
            expected,
            measured,
            tolerance,
            ok: measured.is_some_and(|m| self.bound.holds(m)),
            exempt: self.exempt.clone(),
        }
    }
}
