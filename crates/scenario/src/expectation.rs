//! What is expected of a run, and the verdict on it.

use serde::{Deserialize, Serialize};

use crate::amount::Amount;
use crate::answer::PhaseAnswer;
use crate::metric::Metric;

/// What is expected of one number.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// The number.
    pub what: Metric,
    /// What it is divided by first, if anything.
    pub of: Option<Metric>,
    /// Where the expectation comes from: a paper's figure, a promise of this project.
    pub source: String,
    /// What it must be.
    pub bound: Bound,
    /// Why it is shown but not judged, if it is not.
    pub exempt: Option<String>,
}

/// What a number must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Near `expected`, either way, by an absolute `tolerance` or by a percentage of `expected`.
    Near {
        /// The number.
        expected: f64,
        /// How far it may be off.
        tolerance: Amount,
    },
    /// No less.
    AtLeast(f64),
    /// No more.
    AtMost(f64),
}

/// Whether an expectation held.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The metric's path; `A of B` for a ratio.
    pub what: String,
    /// Where the expectation comes from.
    pub source: String,
    /// What was expected.
    pub expected: f64,
    /// What was measured. `None`, which is never ok, if there was nothing to measure.
    pub measured: Option<f64>,
    /// How far it may be off: `"10%"` or `"±3"`; `"at least"` or `"at most"` for a bound.
    pub tolerance: String,
    /// Whether it held.
    pub ok: bool,
    /// Why it is shown but not judged, if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exempt: Option<String>,
}

impl Verdict {
    /// Whether it held, or is not judged.
    #[must_use]
    pub fn accepted(&self) -> bool {
        self.ok || self.exempt.is_some()
    }
}

impl Bound {
    /// Whether a number is what it must be.
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
    /// Measures, and says whether it held.
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
