//! The answer of a run: one shape for the laboratory and the simulator.

mod host;
mod phase;

use serde::{Deserialize, Serialize};

pub use self::host::{Distribution, HostAnswer, Unit, VmAnswer};
pub use self::phase::{PhaseAnswer, Total};
use crate::expectation::Verdict;
use crate::scenario::Scenario;

/// The answer of a run: measured values by phase, and verdicts on what was expected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunAnswer {
    /// Name of the scenario.
    pub scenario: String,
    /// The engine that ran the scenario.
    pub engine: Engine,
    /// Seed of the run.
    pub seed: u64,
    /// Measured values, one entry for each phase of each variant.
    pub phases: Vec<PhaseAnswer>,
    /// Verdicts on the scenario's expectations.
    pub expectations: Vec<Verdict>,
}

/// An engine that runs scenarios.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// The laboratory: real processes in real time.
    Lab,
    /// The simulator: virtual time.
    Sim,
}

impl RunAnswer {
    /// An answer, with the scenario's expectations judged by the measured values.
    #[must_use]
    pub fn new(scenario: &Scenario, engine: Engine, phases: Vec<PhaseAnswer>) -> RunAnswer {
        let expectations = scenario.expectations.iter().map(|e| e.judge(&phases)).collect();
        RunAnswer {
            scenario: scenario.name.clone(),
            engine,
            seed: scenario.seed,
            phases,
            expectations,
        }
    }

    /// Whether every expectation is met or exempt.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.expectations.iter().all(Verdict::accepted)
    }
}
