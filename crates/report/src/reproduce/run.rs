//! Runs of the papers' scenarios.

use parda_scenario::Study;
use parda_sim::{Keep, SimError, SimOptions, run_all};
use serde::Serialize;

use super::value::{Agreement, Value};
use crate::pictures::{Picture, pictures};

/// One figure or table of a paper.
#[derive(Clone, Debug)]
pub struct PaperFigure {
    /// The scenario, with its variants, that was run.
    pub study: Study,
    /// Values of the paper beside the measured ones.
    pub values: Vec<Value>,
    /// Pictures of the runs; empty unless they were requested.
    pub pictures: Vec<Picture>,
}

/// Results of all scenarios.
#[derive(Clone, Debug)]
pub struct Reproduction {
    /// The figures, in the order in which the scenarios were given.
    pub figures: Vec<PaperFigure>,
}

/// Progress of a run, reported once per simulated second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress<'a> {
    /// Name of the scenario that runs.
    pub scenario: &'a str,
}

/// All values, for JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Summary<'a> {
    /// Whether every value is within its tolerance or exempt.
    pub ok: bool,
    /// Number of values within their tolerance.
    pub within: usize,
    /// How many are not judged.
    pub exempt: usize,
    /// Number of values beyond their tolerance that are not exempt.
    pub out: usize,
    /// The values of all figures, in their order.
    pub values: Vec<&'a Value>,
}

/// Runs scenarios, `jobs` variants at a time. Pictures are drawn if `drawn` is set.
///
/// # Errors
/// As [`run_all`].
pub fn reproduce(
    studies: Vec<Study>,
    drawn: bool,
    jobs: usize,
    progress: impl Fn(Progress<'_>) + Sync,
) -> Result<Reproduction, SimError> {
    let options = SimOptions {
        series: if drawn { Keep::Plotted } else { Keep::Nothing },
        ..SimOptions::default()
    };
    let figure = |study: Study| {
        let scenario = study.name.as_str();
        let outcome = run_all(&study, &options, jobs, |_, _| progress(Progress { scenario }))?;
        let values = Value::all(&outcome.answer);
        let pictures = if drawn { pictures(&study, &outcome, "paper") } else { Vec::new() };
        Ok(PaperFigure { study, values, pictures })
    };
    Ok(Reproduction { figures: studies.into_iter().map(figure).collect::<Result<_, SimError>>()? })
}

impl Reproduction {
    /// Every value of every figure.
    pub fn values(&self) -> impl Iterator<Item = &Value> {
        self.figures.iter().flat_map(|figure| &figure.values)
    }

    /// Number of values with this outcome.
    #[must_use]
    pub fn count(&self, outcome: Agreement) -> usize {
        self.values().filter(|value| value.outcome == outcome).count()
    }

    /// Whether every value is within its tolerance or exempt.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.count(Agreement::Out) == 0
    }

    /// All values and their counts, for JSON.
    #[must_use]
    pub fn summary(&self) -> Summary<'_> {
        Summary {
            ok: self.ok(),
            within: self.count(Agreement::Ok),
            exempt: self.count(Agreement::Exempt),
            out: self.count(Agreement::Out),
            values: self.values().collect(),
        }
    }

    /// Counts of the outcomes, as one line of text.
    #[must_use]
    pub fn words(&self) -> String {
        let [ok, exempt, out] =
            [Agreement::Ok, Agreement::Exempt, Agreement::Out].map(|outcome| self.count(outcome));
        format!("{ok} passed, {out} missed, {exempt} exempt")
    }
}
