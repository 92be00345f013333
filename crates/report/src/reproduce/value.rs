//! One value: the paper's, ours, and whether they agree.

use parda_scenario::{Answer, Verdict};
use serde::Serialize;

use crate::table::short;

/// Whether a value is within its tolerance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Agreement {
    /// The value is within its tolerance.
    Ok,
    /// The value is not judged. The scenario states why.
    Exempt,
    /// The value is beyond its tolerance.
    Out,
}

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
    /// Whether ours is within its tolerance.
    pub outcome: Agreement,
    /// Reason for an exemption, if the value is exempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Value {
    fn new(scenario: &str, verdict: &Verdict) -> Value {
        let Verdict { what, source, expected, measured, tolerance, ok, exempt } = verdict;
        let outcome = match (ok, exempt) {
            (_, Some(_)) => Agreement::Exempt,
            (true, None) => Agreement::Ok,
            (false, None) => Agreement::Out,
        };
        let is_bound = tolerance.starts_with("at ");
        let error = measured.filter(|_| !is_bound && *expected != 0.0).map(|m| m / expected - 1.0);
        Value {
            scenario: scenario.to_owned(),
            source: source.clone(),
            what: what.clone(),
            paper: *expected,
            tolerance: tolerance.clone(),
            ours: *measured,
            error,
            outcome,
            reason: exempt.clone().filter(|_| outcome == Agreement::Exempt),
        }
    }

    /// The values of an answer: one for each of its expectations.
    pub(crate) fn all(answer: &Answer) -> Vec<Value> {
        answer.expectations.iter().map(|verdict| Value::new(&answer.scenario, verdict)).collect()
    }

    /// The paper's value as text, with its bound.
    #[must_use]
    pub fn paper_text(&self) -> String {
        // A percentage is stored as a binary fraction, so digits beyond the sixth are rounding errors.
        let paper = (self.paper * 1e6).round() / 1e6;
        match self.tolerance.as_str() {
            "at least" => format!("≥ {paper}"),
            "at most" => format!("≤ {paper}"),
            _ => paper.to_string(),
        }
    }

    /// Our value as text, to four digits.
    #[must_use]
    pub fn ours_text(&self) -> String {
        self.ours.map_or("nothing".to_owned(), short)
    }

    /// The deviation as text, in percent.
    #[must_use]
    pub fn error_text(&self) -> String {
        self.error.map_or(String::new(), |error| format!("{:+.1} %", 100.0 * error))
    }

    /// The allowed deviation as text.
    #[must_use]
    pub fn tolerance_text(&self) -> String {
        match self.tolerance.strip_suffix('%') {
            Some(percent) => format!("±{percent} %"),
            None if self.tolerance.starts_with("at ") => String::new(),
            None => self.tolerance.clone(),
        }
    }
}

impl Agreement {
    /// The outcome as one word for tables.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Agreement::Ok => "ok",
            Agreement::Exempt => "exempt",
            Agreement::Out => "OUT",
        }
    }
}
