//! A cluster with a transport: when it has settled, how exact it is, and what it sends.

use std::fmt;

use parda_config::Document;
use parda_scenario::{PhaseAnswer, Scenario};
use parda_sim::{KeptRuns, SimProgress, run};
use serde::{Deserialize, Serialize};

use crate::Fallible;
use crate::transport::{Traffic, Transport};

/// Threshold of all hosts, in ms.
const THRESHOLD: f64 = 30.0;

/// Least length of a run, in seconds of its own time. The last half of a run is what accuracy is measured over.
const SECONDS: u64 = 120;

/// Least number of periods of a run.
const PERIODS: u64 = 12;

/// Number of hosts from which on a run takes no longer than it must: each period adds up as many reports as there are pairs of hosts.
const MANY: u64 = 4096;
const SHORT: u64 = 30;

/// Length of a mean of the array's latency, in seconds, and how far from the threshold a settled one may be.
const MEAN: usize = 5;
const WITHIN: f64 = 0.1;

/// Answer of a cluster's run, with its traffic.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) transport: String,
    pub(crate) hosts: u64,
    /// Mean time between two messages of a host, in seconds.
    period_s: f64,
    /// Seconds until the array's latency stays at the threshold, and until windows stay what they are.
    pub(crate) latency_settled_s: f64,
    pub(crate) windows_settled_s: f64,
    /// Over the last half of the run.
    latency_ms: f64,
    window_error: f64,
    fairness: f64,
    /// Of a host, per second.
    sent: f64,
    pub(crate) sent_bytes: f64,
    received: f64,
    pub(crate) received_bytes: f64,
    /// CPU time of the simulation.
    ns_per_io: f64,
}

const HEAD: &str = "\
| transport | hosts | period, s | latency settled, s | windows settled, s | periods | latency, ms | largest error of a window | fairness | \
a host sends, messages/s | kB/s | receives, messages/s | kB/s | all hosts, MB/s | ns per IO |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |";

/// Runs the clusters, and prints each as a row of a table.
pub(crate) fn rows(transports: &[&Transport], sizes: &[u64]) -> Fallible<Vec<Row>> {
    println!("{HEAD}");
    let mut rows = Vec::new();
    for transport in transports {
        for hosts in sizes.iter().filter(|hosts| **hosts <= transport.most) {
            let row = row(transport, *hosts)?;
            println!("{row}");
            rows.push(row);
        }
    }
    Ok(rows)
}

/// A drive for eight hosts, one VM on each host, and every third VM with twice the shares of the others.
fn scenario(transport: &Transport, hosts: u64, seconds: u64) -> Fallible<Scenario> {
    let (drives, third, half) = ((hosts / 8).clamp(2, 1024), hosts / 3, seconds / 2);
    let group = |name: &str, count: u64, shares: u64| {
        format!(
            "[[host]]\nname = \"{name}\"\ncount = {count}\n[[host.vm]]\nname = \"{name}-vm\"\nshares = {shares}\ndisk = \"4GiB\"\n\
             workload = {{ size = \"16KiB\", read = 100, random = 100, outstanding = 16 }}\n"
        )
    };
    let text = format!(
        "name = \"scale\"\nduration = \"{seconds}s\"\n\
         [array]\npreset = \"cx3-40-raid0\"\nraid = {{ drives = {drives} }}\nextent = \"16MiB\"\n\
         controller = {{ io_cost = \"100ns\", link = \"100GB/s\" }}\n\
         [exchange]\n{}\n[control]\nlatency_threshold = \"{THRESHOLD}ms\"\n\
         [[phase]]\nname = \"all\"\nfrom = \"0s\"\nto = \"{seconds}s\"\n\
         [[phase]]\nname = \"steady\"\nfrom = \"{half}s\"\nto = \"{seconds}s\"\n{}{}",
        transport.keys,
        group("a", hosts - third, 1000),
        group("b", third, 2000),
    );
    Ok(Scenario::parse(&Document::new(transport.name, text))?)
}

/// At least [`PERIODS`] of the longest periods: hosts over etcd have the period of their number, and hosts over a file meet as often as a hundredth of
/// the array's IOs allows.
fn length(transport: &Transport, hosts: u64) -> u64 {
    let period = match transport.name {
        "etcd" => hosts * hosts / 20_000,
        "file" => hosts / 20,
        _ => 1,
    };
    let least = if hosts < MANY { SECONDS } else { SHORT };
    least.max(PERIODS * period)
}

fn row(transport: &Transport, hosts: u64) -> Fallible<Row> {
    let seconds = length(transport, hosts);
    let scenario = scenario(transport, hosts, seconds)?;
    let mut latencies = Vec::new();
    let began = cpu_time()?;
    let see = |at: SimProgress| latencies.push(at.device_latency_ms.unwrap_or_default());
    let outcome = run(&scenario, KeptRuns::Nothing, see)?;
    let spent = cpu_time()? - began;
    let [all, steady] = &outcome.answer.phases[..] else { return Err("two phases".into()) };
    let rounds = outcome.publications as f64 / hosts as f64 / seconds as f64;
    let Traffic { sent, sent_bytes, received, received_bytes } = (transport.round)(hosts as f64);
    Ok(Row {
        transport: transport.name.to_owned(),
        hosts,
        period_s: 1.0 / rounds,
        latency_settled_s: settled(&latencies) as f64,
        windows_settled_s: all.total.settled_s.unwrap_or_default(),
        latency_ms: steady.total.device_latency_ms.unwrap_or_default(),
        window_error: window_error(steady),
        fairness: steady.total.fairness_slots.unwrap_or_default(),
        sent: sent * rounds,
        sent_bytes: sent_bytes * rounds,
        received: received * rounds,
        received_bytes: received_bytes * rounds,
        ns_per_io: spent * 1e9 / outcome.ios as f64,
    })
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all_bytes = self.hosts as f64 * (self.sent_bytes + self.received_bytes);
        write!(
            f,
            "| {} | {} | {:.1} | {:.0} | {:.0} | {:.0} | {:.1} | {:.1} % | {:.4} | {:.2} | {:.1} | {:.2} | {:.1} | {:.2} | {:.0} |",
            self.transport,
            self.hosts,
            self.period_s,
            self.latency_settled_s,
            self.windows_settled_s,
            self.windows_settled_s / self.period_s,
            self.latency_ms,
            100.0 * self.window_error,
            self.fairness,
            self.sent,
            self.sent_bytes / 1e3,
            self.received,
            self.received_bytes / 1e3,
            all_bytes / 1e6,
            self.ns_per_io,
        )
    }
}

/// The second from which on the array's latency stays at the threshold.
fn settled(latencies: &[f64]) -> usize {
    let mean = |ms: &[f64]| ms.iter().sum::<f64>() / ms.len() as f64;
    let off = |ms: &[f64]| (mean(ms) / THRESHOLD - 1.0).abs() > WITHIN;
    latencies.windows(MEAN).rposition(off).map_or(0, |last| last + MEAN)
}

/// Largest difference of a host's window per share from the mean of all hosts, as a part of it.
fn window_error(phase: &PhaseAnswer) -> f64 {
    let per_share = |host: &parda_scenario::HostAnswer| {
        host.window.unwrap_or_default() / f64::from(host.shares.max(1))
    };
    let mean = phase.hosts.iter().map(per_share).sum::<f64>() / phase.hosts.len() as f64;
    phase.hosts.iter().map(|host| (per_share(host) / mean - 1.0).abs()).fold(0.0, f64::max)
}

/// CPU time of this thread until now, in seconds.
fn cpu_time() -> Fallible<f64> {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds: u64 = times.split(' ').next().unwrap_or_default().parse()?;
    Ok(nanoseconds as f64 / 1e9)
}
