//! Windows, latencies and throughput over time.

use parda_scenario::Scenario;
use serde::{Deserialize, Serialize};

use crate::agent::Agent;
use crate::meter::Tally;

/// How a run went, second by second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The end of each interval, in seconds from the beginning of the run.
    pub at: Vec<f64>,
    /// Each host.
    pub hosts: Vec<HostSeries>,
}

/// How it went for one host: one number for each of [`Series::at`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostSeries {
    /// Its name.
    pub name: String,
    /// Window at the end of the interval, in slots. `None` without control, and while it is dead.
    pub window: Vec<Option<f64>>,
    /// β then, in slots. `None` while it is dead.
    pub beta: Vec<Option<f64>>,
    /// Mean device latency in the interval, in ms. `None` without IO.
    pub device_latency_ms: Vec<Option<f64>>,
    /// IOs completed per second.
    pub iops: Vec<f64>,
}

impl Series {
    pub(crate) fn new(scenario: &Scenario) -> Series {
        let host = |host: &parda_scenario::Host| HostSeries {
            name: host.name.clone(),
            ..HostSeries::default()
        };
        Series { at: Vec::new(), hosts: scenario.hosts.iter().map(host).collect() }
    }

    /// Another second is over.
    pub(crate) fn add<'a>(
        &mut self,
        at: f64,
        agents: impl Iterator<Item = Option<&'a Agent>>,
        tallies: &[Tally],
    ) {
        self.at.push(at);
        for ((host, agent), tally) in self.hosts.iter_mut().zip(agents).zip(tallies) {
            host.window.push(agent.and_then(Agent::window));
            host.beta.push(agent.map(Agent::beta));
            host.device_latency_ms.push(tally.device_ms());
            host.iops.push(tally.ios as f64);
        }
    }
}
