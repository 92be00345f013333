//! One value: the paper's, ours, and whether they agree.

use parda_scenario::Verdict;
use serde::Serialize;

use crate::table::short;

/// One value of a paper, or of a promise of this project.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Value {
    /// Name of the scenario that measures it.
    pub scenario: String,
    /// Source of the value: paper, figure, and line or bar in it.
    pub source: String,
    /// Path of the metric in the answer.
    pub what: String,
    /// The paper's value: a number, or a bound.
    pub paper: f64,
    /// Allowed deviation: `10%` or `±3`; `at least` or `at most` for a bound.
    pub tolerance: String,
    /// The measured value. `None` if there was nothing to measure.
    pub ours: Option<f64>,
    /// Deviation as a fraction of the paper's value. `None` for a bound.
    pub error: Option<f64>,
    /// `ok` within the tolerance, `exempt` if the value is not judged, `out` otherwise.
    pub outcome: &'static str,
    /// Reason for an exemption, if the value is exempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Value {
    pub(crate) fn new(scenario: &str, verdict: &Verdict) -> Value {
        let Verdict { what, source, expected, measured, tolerance, ok, exempt } = verdict.clone();
        let bound = tolerance.starts_with("at ") || expected == 0.0;
        let outcome = match (ok, &exempt) {
            (_, Some(_)) => "exempt",
            (true, None) => "ok",
            (false, None) => "out",
        };
        Value {
            scenario: scenario.to_owned(),
            source,
            what,
            paper: expected,
            tolerance,
            ours: measured,
            error: measured.filter(|_| !bound).map(|measured| measured / expected - 1.0),
            outcome,
            reason: exempt,
        }
    }

    /// The paper's value, ours, the deviation and the tolerance as text.
    #[must_use]
    pub fn numbers(&self) -> [String; 4] {
        // A percentage is stored as a binary fraction, so digits beyond the sixth are rounding errors.
        let paper = (self.paper * 1e6).round() / 1e6;
        let (paper, tolerance) = match self.tolerance.as_str() {
            "at least" => (format!("≥ {paper}"), String::new()),
            "at most" => (format!("≤ {paper}"), String::new()),
            text => (paper.to_string(), text.to_owned()),
        };
        let tolerance = match tolerance.strip_suffix('%') {
            Some(percent) => format!("±{percent} %"),
            None => tolerance,
        };
        let ours = self.ours.map_or("nothing".to_owned(), short);
        let error = self.error.map_or(String::new(), |error| format!("{:+.1} %", 100.0 * error));
        [paper, ours, error, tolerance]
    }
}
