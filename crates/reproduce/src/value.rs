//! One value: the paper's and ours.

use parda_scenario::{Answer, Verdict};
use serde::Serialize;

/// What came of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It is within its tolerance.
    Ok,
    /// It is not, and there is a reason why it cannot or should not be.
    Exempt,
    /// It is not.
    Out,
}

/// One value of a paper, or of what this project promises beside it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Value {
    /// The scenario that gives it.
    pub scenario: String,
    /// Where it stands: which paper, which figure, what of it.
    pub source: String,
    /// Which number of the answer it is.
    pub what: String,
    /// The paper's: a number, or a bound.
    pub paper: f64,
    /// How far ours may be off: `10%`, `±3`; or `at least`, `at most`.
    pub tolerance: String,
    /// Ours. `None` if there was nothing to measure.
    pub ours: Option<f64>,
    /// By what part of the paper's ours is off. `None` for a bound.
    pub error: Option<f64>,
    /// What came of it.
    pub outcome: Outcome,
    /// Why it is exempt, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Value {
    fn new(scenario: &str, verdict: &Verdict) -> Value {
        let Verdict { what, source, expected, measured, tolerance, ok, exempt } = verdict;
        let outcome = match (ok, exempt) {
            (true, _) => Outcome::Ok,
            (false, Some(_)) => Outcome::Exempt,
            (false, None) => Outcome::Out,
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
            reason: exempt.clone().filter(|_| outcome == Outcome::Exempt),
        }
    }

    /// The values of an answer.
    pub(crate) fn all(answer: &Answer) -> Vec<Value> {
        answer.expectations.iter().map(|verdict| Value::new(&answer.scenario, verdict)).collect()
    }

    /// The paper's, as people write it.
    #[must_use]
    pub fn paper_text(&self) -> String {
        // A percentage became a binary fraction.
        let paper = (self.paper * 1e6).round() / 1e6;
        match self.tolerance.as_str() {
            "at least" => format!("≥ {paper}"),
            "at most" => format!("≤ {paper}"),
            _ => paper.to_string(),
        }
    }

    /// Ours, to four digits.
    #[must_use]
    pub fn ours_text(&self) -> String {
        self.ours.map_or("nothing".to_owned(), parda_scenario::table::short)
    }

    /// By how much ours is off, in percent.
    #[must_use]
    pub fn error_text(&self) -> String {
        self.error.map_or(String::new(), |error| format!("{:+.1} %", 100.0 * error))
    }

    /// How far it may be off.
    #[must_use]
    pub fn tolerance_text(&self) -> String {
        match self.tolerance.strip_suffix('%') {
            Some(percent) => format!("±{percent} %"),
            None if self.tolerance.starts_with("at ") => String::new(),
            None => self.tolerance.clone(),
        }
    }
}

impl Outcome {
    /// In a word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::Exempt => "exempt",
            Outcome::Out => "OUT",
        }
    }
}
