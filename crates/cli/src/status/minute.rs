//! Means over the last minute, from the agent's history.

use std::path::Path;

use parda_agent::config::api_beside;
use parda_api::History;
use parda_http::client::{AgentAddress, ask};
use parda_terminal::Failure;
use parda_terminal::output::{line, number, numbers};
use parda_terminal::quantity::mib;

use crate::agent::api::segment;
use crate::status::recent;

/// The history of the last minute of a volume, from the agent with this status socket.
pub(super) fn history(status: &Path, volume: &str) -> Result<History, Failure> {
    let socket = api_beside(status);
    let path = format!("/api/v1/history?volume={}&seconds=60", segment(volume));
    let wrong = |why: &dyn std::fmt::Display| {
        Failure::new(format!("{}: no history: {why}", socket.display()))
    };
    let answer = ask(&AgentAddress::Unix(socket.clone()), "GET", &path, None, None);
    serde_json::from_value(answer.map_err(|e| wrong(&e))?).map_err(|e| wrong(&e))
}

/// Table of a volume's VMs, of this host and of the others.
pub(super) fn lines(host: &str, history: &History) -> String {
    let disks = history.disks.iter().map(|(disk, of)| {
        [
            line(disk),
            number(mean(&of.iops), 0),
            number(mean(&of.bytes_per_s).map(mib), 1),
            number(mean(&of.outstanding), 1),
            number(weighted(&of.slice, &of.iops), 1),
            number(weighted(&of.device_ms, &of.iops), 2),
            number(weighted(&of.held_ms, &of.iops), 2),
        ]
    });
    let unknown = || "-".to_owned();
    let own = &history.volume;
    let this = [
        format!("host {}", line(host)),
        number(mean(&own.iops), 0),
        number(mean(&own.bytes_per_s).map(mib), 1),
        number(mean(&own.outstanding), 1),
        number(mean(&own.window), 1),
        number(weighted(&own.own_latency_ms, &own.iops), 2),
        unknown(),
    ];
    let others = history.hosts.iter().map(|(name, of)| {
        let [iops, window] = [mean(&of.iops), mean(&of.window)];
        let latency = weighted(&of.latency_ms, &of.iops);
        // By Little's law.
        let outstanding = iops.zip(latency).map(|(iops, ms)| iops * ms / 1e3);
        [
            format!("host {}", line(name)),
            number(iops, 0),
            unknown(),
            number(outstanding, 1),
            number(window, 1),
            number(latency, 2),
            unknown(),
        ]
    });
    let head = "over a minute|IO/s|MiB/s|outstanding|entitled to|device ms|held ms";
    let table = numbers(head, disks.chain([this]).chain(others));
    let [latency, threshold] = [&own.latency_ms, &own.threshold_ms].map(|values| mean(values));
    format!(
        "{}\n  latency {} ms for a threshold of {} ms, in the mean over the minute\n",
        table,
        number(latency, 1),
        number(threshold, 1)
    )
}

/// Mean of the known values.
fn mean(values: &[Option<f64>]) -> Option<f64> {
    recent::mean(values.iter().copied().flatten())
}

/// Mean of the known values, each with a weight.
fn weighted(values: &[Option<f64>], weights: &[Option<f64>]) -> Option<f64> {
    let pairs = values.iter().zip(weights).filter_map(|(value, weight)| value.zip(*weight));
    let (sum, weight) =
        pairs.fold((0.0, 0.0), |(sum, all), (value, weight)| (sum + value * weight, all + weight));
    (weight > 0.0).then(|| sum / weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_weigh_by_their_ios_and_unknown_seconds_count_for_nothing() {
        let history: History = serde_json::from_value(serde_json::json!({
            "step_ms": 1000, "start_ms": 0,
            "volume": { "window": [30.0, 34.0], "latency_ms": [20.0, 30.0], "own_latency_ms": [20.0, null], "threshold_ms": [25.0, 25.0],
                "iops": [100.0, 300.0], "bytes_per_s": [1048576.0, 3145728.0], "outstanding": [5.0, 7.0], "held": [0.0, 0.0] },
            "disks": { "vm1": { "iops": [100.0, 300.0], "bytes_per_s": [1048576.0, 3145728.0], "device_ms": [10.0, 30.0],
                "held_ms": [0.0, 4.0], "outstanding": [4.0, null], "slice": [null, 12.0] } },
            "hosts": { "kvm-02": { "window": [8.0, null], "latency_ms": [10.0, 10.0], "iops": [100.0, 200.0] } },
        }))
        .unwrap();
        let text = lines("kvm-01", &history);
        let row = |name: &str| {
            let line = text.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(row("vm1"), "vm1 200 2.0 4.0 12.0 25.00 3.00");
        assert_eq!(row("host kvm-01"), "host kvm-01 200 2.0 6.0 32.0 20.00 -");
        assert_eq!(row("host kvm-02"), "host kvm-02 150 - 1.5 8.0 10.00 -");
        assert!(text.contains("latency 25.0 ms for a threshold of 25.0 ms"), "{text}");
    }
}
