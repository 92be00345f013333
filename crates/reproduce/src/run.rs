//! Running the papers' scenarios.

use parda_figures::{Picture, pictures};
use parda_scenario::Study;
use parda_sim::{Keep, SimError, SimOptions, run_all};
use serde::Serialize;

use crate::value::{Outcome, Value};

/// One figure or table.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What was run.
    pub study: Study,
    /// Its values.
    pub values: Vec<Value>,
    /// Its pictures, if they were asked for.
    pub pictures: Vec<Picture>,
}

/// All of them.
#[derive(Clone, Debug)]
pub struct Reproduction {
    /// Each, in the order in which they were given.
    pub figures: Vec<Figure>,
}

/// How it goes: once per simulated second of any run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress<'a> {
    /// The scenario that is being run.
    pub scenario: &'a str,
}

/// All values, as JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Summary<'a> {
    /// Whether all are in tolerance or exempt.
    pub ok: bool,
    /// How many are in tolerance.
    pub within: usize,
    /// How many are not and are exempt.
    pub exempt: usize,
    /// How many are not.
    pub out: usize,
    /// Each.
    pub values: Vec<&'a Value>,
}

/// Runs scenarios, `jobs` variants at a time, and draws them if `drawn`.
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
        Ok(Figure { study, values, pictures })
    };
    Ok(Reproduction { figures: studies.into_iter().map(figure).collect::<Result<_, SimError>>()? })
}

impl Reproduction {
    /// Every value of every figure.
    pub fn values(&self) -> impl Iterator<Item = &Value> {
        self.figures.iter().flat_map(|figure| &figure.values)
    }

    /// How many values came out so.
    #[must_use]
    pub fn count(&self, outcome: Outcome) -> usize {
        self.values().filter(|value| value.outcome == outcome).count()
    }

    /// Whether all are in tolerance or exempt.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.count(Outcome::Out) == 0
    }

    /// All values, as they go into JSON.
    #[must_use]
    pub fn summary(&self) -> Summary<'_> {
        Summary {
            ok: self.ok(),
            within: self.count(Outcome::Ok),
            exempt: self.count(Outcome::Exempt),
            out: self.count(Outcome::Out),
            values: self.values().collect(),
        }
    }

    /// How it ended, in a line.
    #[must_use]
    pub fn words(&self) -> String {
        let [ok, exempt, out] =
            [Outcome::Ok, Outcome::Exempt, Outcome::Out].map(|outcome| self.count(outcome));
        let all = ok + exempt + out;
        let exempt = if exempt > 0 { format!(", {exempt} exempt") } else { String::new() };
        let out = if out > 0 { format!(", {out} OUT") } else { String::new() };
        format!("{ok} of {all} values in tolerance{exempt}{out}")
    }
}
