//! Windows, latencies and throughput over time.

use parda_scenario::Scenario;
use serde::Serialize;

use crate::agent::Agent;
use crate::meter::Tally;

/// Time series of a run, second by second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunSeries {
    /// End of each interval, in seconds from the beginning of the run.
    pub at: Vec<f64>,
    /// Series of each host.
    pub hosts: Vec<HostSeries>,
}

/// Series of one host: one number for each of [`RunSeries::at`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HostSeries {
    /// Name of the host.
    pub name: String,
    /// Window at the end of the interval, in slots. `None` without control, and while it is dead.
    pub window: Vec<Option<f64>>,
    /// Threshold at that time, in ms. `None` while it is dead.
    pub latency_threshold_ms: Vec<Option<f64>>,
    /// β at that time, in slots. `None` while it is dead.
    pub beta: Vec<Option<f64>>,
    /// Mean device latency in the interval, in ms. `None` without IO.
    pub device_latency_ms: Vec<Option<f64>>,
    /// IOs completed per second.
    pub iops: Vec<f64>,
    /// Indices of VMs that demanded their reservations and got less.
    pub short: Vec<Vec<usize>>,
}

impl HostSeries {
    /// Series of a quantity of [`OVER_TIME`](parda_scenario::plot::OVER_TIME) by its name. Missing values are NaN.
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

impl RunSeries {
    pub(crate) fn new(scenario: &Scenario) -> RunSeries {
        let host = |host: &parda_scenario::Host| HostSeries {
            name: host.name.clone(),
            ..HostSeries::default()
        };
        RunSeries { at: Vec::new(), hosts: scenario.hosts.iter().map(host).collect() }
    }

    /// Adds another second.
    pub(crate) fn add<'a>(
        &mut self,
        at: f64,
        agents: impl Iterator<Item = Option<&'a Agent>>,
        tallies: &[Tally],
    ) {
        self.at.push(at);
        for ((host, agent), tally) in self.hosts.iter_mut().zip(agents).zip(tallies) {
            host.window.push(agent.and_then(Agent::window));
            host.beta.push(agent.map(|agent| agent.beta));
            host.latency_threshold_ms.push(agent.map(|a| a.threshold().secs() * 1e3));
            host.device_latency_ms.push(tally.device_ms());
            host.iops.push(tally.ios as f64);
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
            short: vec![Vec::new(), Vec::new()],
        };
        for quantity in parda_scenario::plot::OVER_TIME {
            assert_eq!(host.get(quantity).len(), 2, "{quantity}");
        }
    }
}
