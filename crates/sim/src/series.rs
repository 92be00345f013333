//! Windows, latencies and throughput over time.

use parda_control::outsider::{Finding, State};
use parda_scenario::Scenario;
use serde::{Deserialize, Serialize};

use crate::agent::Agent;
use crate::meter::Tally;

/// How a run went, second by second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The end of each interval, in seconds from the beginning of the run.
    pub at: Vec<f64>,
    /// Series of each host.
    pub hosts: Vec<HostSeries>,
}

/// How it went for one host: one number for each of [`Series::at`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostSeries {
    /// Name of the host.
    pub name: String,
    /// Window at the end of the interval, in slots. `None` without control, and while it is dead.
    pub window: Vec<Option<f64>>,
    /// The threshold then, in ms. `None` while it is dead.
    #[serde(default)]
    pub latency_threshold_ms: Vec<Option<f64>>,
    /// β then, in slots. `None` while it is dead.
    pub beta: Vec<Option<f64>>,
    /// Mean device latency in the interval, in ms. `None` without IO.
    pub device_latency_ms: Vec<Option<f64>>,
    /// IOs completed per second.
    pub iops: Vec<f64>,
    /// Bytes per second of the IOs completed.
    #[serde(default)]
    pub bytes_per_s: Vec<f64>,
    /// Load on the array that is not under control, as the host found it then. `None` while it is dead.
    #[serde(default)]
    pub outsider: Vec<Option<OutsiderSample>>,
    /// VMs that asked for their reservations and had less, by their places.
    #[serde(default)]
    pub short: Vec<Vec<usize>>,
}

/// What a host found of load that is not under control.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutsiderSample {
    /// State of the array, as the host saw it.
    pub state: State,
    /// Outstanding IOs of an outsider that would explain it.
    pub outstanding: f64,
}

impl OutsiderSample {
    fn of(finding: &Finding) -> OutsiderSample {
        let Finding { state, outstanding, .. } = *finding;
        OutsiderSample { state, outstanding }
    }
}

impl HostSeries {
    /// One of its quantities by its name, of [`OVER_TIME`](parda_scenario::plot::OVER_TIME). What there is none of is NaN.
    #[must_use]
    pub fn get(&self, quantity: &str) -> Vec<f64> {
        let some = |values: &[Option<f64>]| values.iter().map(|v| v.unwrap_or(f64::NAN)).collect();
        match quantity {
            "window" => some(&self.window),
            "latency_threshold_ms" => some(&self.latency_threshold_ms),
            "beta" => some(&self.beta),
            "device_latency_ms" => some(&self.device_latency_ms),
            "iops" => self.iops.clone(),
            _ => Vec::new(),
        }
    }
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
            host.latency_threshold_ms.push(agent.map(|a| a.threshold().secs() * 1e3));
            host.device_latency_ms.push(tally.device_ms());
            host.iops.push(tally.ios as f64);
            host.bytes_per_s.push(tally.bytes as f64);
            host.outsider.push(agent.map(|agent| OutsiderSample::of(agent.finding())));
            host.short.push(agent.map(Agent::short).unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_plot_over_time_may_show_is_kept() {
        let some = vec![Some(1.0), None];
        let host = HostSeries {
            name: "a".to_owned(),
            window: some.clone(),
            beta: some.clone(),
            latency_threshold_ms: some.clone(),
            device_latency_ms: some,
            iops: vec![1.0, 0.0],
            bytes_per_s: vec![4096.0, 0.0],
            outsider: vec![None, None],
            short: vec![Vec::new(), Vec::new()],
        };
        for quantity in parda_scenario::plot::OVER_TIME {
            assert_eq!(host.get(quantity).len(), 2, "{quantity}");
        }
    }
}
