//! The shape of what a run answers, the same from the laboratory and from the simulator.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::expectation::Verdict;
use crate::scenario::{Phase, Scenario};
use crate::shares::{fairness, largest};
use crate::study::phase_name;

/// What a run answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The scenario's name.
    pub scenario: String,
    /// What ran it.
    pub engine: Engine,
    /// The seed it ran with.
    pub seed: u64,
    /// What was measured.
    pub phases: Vec<PhaseAnswer>,
    /// What was expected of it, and whether it held.
    pub expectations: Vec<Verdict>,
}

/// What runs scenarios.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Real processes in real time.
    Lab,
    /// Virtual time.
    Sim,
}

/// What was measured in one phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseAnswer {
    /// The phase's name; `VARIANT.PHASE` where there are variants.
    pub name: String,
    /// The variant that was run, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// Its beginning, in seconds from the beginning of the run.
    pub from: f64,
    /// Its end, in seconds.
    pub to: f64,
    /// All hosts together.
    pub total: Total,
    /// Each host.
    pub hosts: Vec<HostAnswer>,
}

/// Some or all hosts of a phase together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Total {
    /// IOs completed per second.
    pub iops: f64,
    /// MiB moved per second.
    pub mib_per_s: f64,
    /// Mean device latency in ms, weighted by IOs. `None` without IO.
    pub device_latency_ms: Option<f64>,
    /// Jain's index over IOPS per share of the saturated hosts: 1 is perfect. `None` without any.
    pub fairness: Option<f64>,
    /// When the last host's window had settled: see [`HostAnswer::settled_s`]. `None` without any.
    #[serde(default)]
    pub settled_s: Option<f64>,
}

/// One host in one phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostAnswer {
    /// Its name.
    pub name: String,
    /// Whether it is outside control.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outside: bool,
    /// Sum of its VMs' shares; 0 outside.
    pub shares: u32,
    /// Mean β of eq. 2, in slots.
    pub beta: f64,
    /// Mean window, in slots. `None` where there was none: control was off.
    pub window: Option<f64>,
    /// How long into the phase its window had settled, in seconds: see
    /// [`settled`](crate::count::settled). `None` where there was no window, or no VM whose client
    /// ran all through the phase.
    #[serde(default)]
    pub settled_s: Option<f64>,
    /// Mean number of IOs outstanding at the array.
    pub outstanding: f64,
    /// IOs completed per second.
    pub iops: f64,
    /// MiB moved per second.
    pub mib_per_s: f64,
    /// From dispatch to completion. `None` without IO.
    pub device_latency_ms: Option<Distribution>,
    /// Its VMs.
    pub vms: Vec<VmAnswer>,
}

/// One VM in one phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VmAnswer {
    /// Its name.
    pub name: String,
    /// Its shares.
    pub shares: u32,
    /// Whether it always had more to do than it got: see [`crate::shares::saturated`].
    pub saturated: bool,
    /// IOs completed per second.
    pub iops: f64,
    /// MiB moved per second.
    pub mib_per_s: f64,
    /// What the VM sees: held and device time together. `None` without IO.
    pub latency_ms: Option<Distribution>,
    /// Time held in the host's queue. `None` without IO.
    pub held_ms: Option<Distribution>,
}

/// A distribution of times, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // The names are the field's.
pub struct Distribution {
    pub mean: f64,
    pub stddev: f64,
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

impl Answer {
    /// An answer with the scenario's expectations judged by what was measured.
    #[must_use]
    pub fn new(scenario: &Scenario, engine: Engine, phases: Vec<PhaseAnswer>) -> Answer {
        let expectations = scenario.expectations.iter().map(|e| e.judge(&phases)).collect();
        Answer {
            scenario: scenario.name.clone(),
            engine,
            seed: scenario.seed,
            phases,
            expectations,
        }
    }

    /// Whether every expectation held that is judged.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.expectations.iter().all(Verdict::accepted)
    }
}

impl Total {
    fn of<'a>(hosts: impl Iterator<Item = &'a HostAnswer> + Clone) -> Total {
        let iops: f64 = hosts.clone().map(|h| h.iops).sum();
        let waited = |h: &HostAnswer| h.device_latency_ms.map_or(0.0, |d| d.mean * h.iops);
        let waited: f64 = hosts.clone().map(waited).sum();
        Total {
            iops,
            mib_per_s: hosts.clone().map(|h| h.mib_per_s).sum(),
            device_latency_ms: (iops > 0.0).then(|| waited / iops),
            fairness: fairness(hosts.clone()),
            settled_s: largest(hosts.filter_map(|h| h.settled_s)),
        }
    }
}

impl PhaseAnswer {
    /// A phase, with its totals from its hosts.
    #[must_use]
    pub fn new(phase: &Phase, hosts: Vec<HostAnswer>) -> PhaseAnswer {
        let secs = Duration::as_secs_f64;
        PhaseAnswer {
            name: phase.name.clone(),
            variant: None,
            from: secs(&phase.from),
            to: secs(&phase.to),
            total: Total::of(hosts.iter()),
            hosts,
        }
    }

    /// The same, as a phase of a variant.
    #[must_use]
    pub fn of_variant(self, variant: &str) -> PhaseAnswer {
        let name = phase_name(Some(variant), &self.name);
        PhaseAnswer { name, variant: Some(variant.to_owned()), ..self }
    }

    /// Its name without the variant's.
    #[must_use]
    pub fn own_name(&self) -> &str {
        let variant = self.variant.as_deref().and_then(|variant| self.name.strip_prefix(variant));
        variant.and_then(|rest| rest.strip_prefix('.')).unwrap_or(&self.name)
    }

    /// The hosts that are not outside control, together.
    #[must_use]
    pub fn controlled(&self) -> Total {
        Total::of(self.hosts.iter().filter(|host| !host.outside))
    }
}
