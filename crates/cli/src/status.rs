//! `parda status`: the status of an agent as text or JSON.

mod disks;
mod exchange;
mod minute;
mod origins;
pub(crate) mod outsider;
pub(crate) mod recent;
mod steered;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::TypedValueParser;
use parda_agent::latency::{Latency, Summary};
use parda_agent::outlook::ForecastStatus;
use parda_agent::settings::SettingsStatus;
use parda_agent::status::{
    DiskState, DiskStatus, HttpPlace, MemoryStats, ObjectiveStatus, VolumeStatus,
};
use parda_agent::threshold::ThresholdStatus;
use parda_api::{Host, Tenant};
use parda_control::{Costs, Liveness, Source};
use parda_terminal::output::{count, numbers};
use parda_terminal::quantity::mib;
use parda_terminal::{Failure, output, quantity};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::agent::{Named, ask, escaped};
use crate::limits;
use recent::Recent;

#[derive(Args)]
#[command(after_help = "\
Examples:
  parda status                              the agent of /etc/parda.toml, over the last second
  parda status -c vms.toml --over 10s
  parda status --minute                     besides, means over the last minute: VMs, this host, other hosts
  parda status --socket /run/parda/status.sock --json - | jq '.volumes[0].window'")]
pub(crate) struct Status {
    #[command(flatten)]
    agent: Named,
    /// Time over which rates and latencies are shown
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval())]
    over: Duration,
    /// Show rates and latencies since the agent started
    #[arg(long, conflicts_with = "over")]
    since_start: bool,
    /// Show means over the last minute as well, from the agent's history
    #[arg(long)]
    minute: bool,
    /// Write the agent's whole state as JSON to a file, - for standard output. Counters are those since the start
    #[arg(long, value_name = "OUT", conflicts_with_all = ["over", "since_start", "minute"])]
    json: Option<PathBuf>,
    /// Write whole histograms of latencies into that JSON, in place of their summaries
    #[arg(long, requires = "json")]
    histograms: bool,
}

impl Status {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        output::check([&self.json])?;
        let socket = self.agent.socket()?;
        let first = ask(&socket)?;
        if let Some(out) = &self.json {
            if self.histograms {
                return output::json(out, &first);
            }
            let wrong = |e| Failure::new(format!("cannot write the status as JSON: {e}"));
            let mut value = serde_json::to_value(&first).map_err(wrong)?;
            summarize(&mut value);
            return output::json(out, &value);
        }
        let (earlier, status) = if self.since_start {
            (None, first)
        } else {
            std::thread::sleep(self.over);
            (Some(escaped(first)?), ask(&socket)?)
        };
        // The agent is asked by the names that it has, which the table shows escaped.
        let volumes: Vec<String> = status.volumes.iter().map(|of| of.name.clone()).collect();
        let status = escaped(status)?;
        let recent = match earlier {
            None => Recent::since_start(status),
            Some(earlier) => Recent::between(&earlier, status),
        };
        let mut text = table(&recent);
        for volume in volumes.iter().filter(|_| self.minute) {
            let history = minute::history(&socket, volume)?;
            let lines = minute::lines(&recent.status.host, &history);
            text += &format!("\nvolume {}, over the last minute\n{lines}", output::line(volume));
        }
        output::print(&text)
    }
}

/// Puts the number of IOs and a summary in the place of each histogram.
fn summarize(value: &mut Value) {
    let histogram = value.get("buckets").and_then(|_| Latency::deserialize(&*value).ok());
    match (histogram, &mut *value) {
        (Some(latency), value) => {
            let Summary { mean, stddev, p50, p99, max } = latency.summary();
            *value = json!({
                "ios": latency.count(), "mean_ms": mean, "stddev_ms": stddev, "p50_ms": p50, "p99_ms": p99, "max_ms": max,
            });
        }
        (None, Value::Array(values)) => values.iter_mut().for_each(summarize),
        (None, Value::Object(values)) => values.values_mut().for_each(summarize),
        _ => {}
    }
}

/// A parser of intervals over which rates are computed.
pub(crate) fn interval() -> impl TypedValueParser<Value = Duration> {
    quantity::within(Duration::from_millis(100).., "must be at least 100ms")
}

fn table(recent: &Recent) -> String {
    let status = &recent.status;
    let over = if recent.since_start { "since the start" } else { "over the last" };
    let mut text = format!(
        "host {}, parda {}, up {:.0} s, process {}; rates and latencies {over}{}\n",
        status.host,
        status.version,
        status.uptime_s,
        status.pid,
        if recent.since_start { String::new() } else { format!(" {:.1} s", recent.seconds) },
    );
    text += &origins::policy(status);
    for HttpPlace { address, up, fault } in &status.http {
        if let Some(fault) = fault {
            let until = if *up { "the certificate from before is shown" } else { "DOWN" };
            text += &format!("HTTP at {address}: {until}; it is tried again. FAULT: {fault}\n");
        }
    }
    if let Some(fault) = &status.tokens_fault {
        text += &format!(
            "HTTP tokens: those read last hold; SIGHUP reads the file again. FAULT: {fault}\n"
        );
    }
    if let Some(reload) = &status.reload {
        if let Some(refused) = &reload.refused {
            text += &format!(
                "RELOAD REFUSED: the configuration from before is in force. {refused}; mend it, then parda reload\n"
            );
        }
        for what in &reload.not_taken {
            text += &format!("NOT TAKEN OVER: {what}\n");
        }
    }
    for volume in &status.volumes {
        text += &format!("\n{}\n", headline(volume));
        text += &last_good(volume);
        text += &origins::lines(status, volume);
        if let Some(found) = &volume.threshold {
            text += &format!("{}\n", threshold(found));
        }
        let held = if volume.is_at_window_max() { volume.held } else { 0 };
        text += &at_most(volume.window, volume.window_max, held);
        if let Some(found) = &volume.outsider {
            text += &format!("  {}\n", outsider::line(found));
        }
        if let Some(cost) = &volume.threshold_cost {
            text += &format!("  {}\n", outsider::cost(cost));
        }
        text += &late(volume);
        text += &agreed(volume);
        text += &faults(volume);
        text += &match &volume.steer {
            None => format!("{}{}", disks::lines(recent, volume), cached(volume)),
            Some(steer) => steered::lines(recent, steer),
        };
        text += &limits::lines(recent, volume);
        if let Some(memory) = &volume.memory {
            text += &clients(volume, memory);
        }
        if let Some(outlook) = &volume.outlook {
            text += &forecast("in the last period", &outlook.last);
            text += &forecast("since observing began", &outlook.since);
        }
        if let Some(exchange) = &volume.exchange {
            text += &exchange::lines(exchange);
        }
    }
    text
}

fn headline(volume: &VolumeStatus) -> String {
    let ms = |v: Option<f64>| v.map_or("unknown".to_owned(), |v| format!("{v:.1} ms"));
    format!(
        "volume {}{}: mode {}, window {}, {:.1} outstanding, {} held; latency {} ({}) for a \
         threshold of {:.1} ms",
        volume.name,
        volume.pool.as_ref().map_or_else(String::new, |pool| format!(" of pool {pool}")),
        volume.mode,
        match &volume.outlook {
            Some(outlook) => format!("none (would be {:.2})", outlook.last.window),
            None => slots(volume.window),
        },
        volume.outstanding,
        volume.held,
        ms(volume.cluster_latency_ms),
        volume.source,
        volume.latency_threshold_ms,
    )
}

/// Lines on the hosts that are not heard, and the values used in their place.
fn last_good(volume: &VolumeStatus) -> String {
    if volume.source != Source::LastGood {
        return String::new();
    }
    let peers = volume.exchange.iter().flat_map(|exchange| &exchange.peers);
    let silent = peers.filter(|peer| matches!(peer.liveness, Liveness::Stale | Liveness::Gone));
    let lines = silent.filter(|peer| !peer.ignored).map(|peer| {
        let Host { name, age_s, shares, outstanding, .. } = peer;
        format!(
            "  LAST GOOD: {name} is silent for {age_s:.1} s and may still load the array: its {shares} shares count, with the \
             {outstanding:.1} IOs that it had outstanding, and fade\n"
        )
    });
    let lines: String = lines.collect();
    if lines.is_empty() {
        return "  LAST GOOD: too few hosts are heard; the others count with what they had when all were heard, and fade\n"
            .to_owned();
    }
    lines
}

/// Line on a window at `window_max` while IOs are held: more shares would not enlarge that window.
fn at_most(window: Option<f64>, most: Option<f64>, held: u64) -> String {
    match (window, most) {
        (Some(window), Some(most)) if window >= most && held > 0 => format!(
            "  AT window_max: this host has at most {most:.2} IOs outstanding, whatever its shares\n"
        ),
        _ => String::new(),
    }
}

/// Line on a thread that had no processor.
fn late(volume: &VolumeStatus) -> String {
    volume.late.map_or_else(String::new, |late| {
        format!(
            "  this host is short of CPU: its data thread was late by {:.0} ms at most, and had no processor for {:.0} % of the last \
             period. That time is not counted as the array's latency\n",
            late.longest_ms,
            100.0 * late.part
        )
    })
}

/// Sentence on the quantity that shares divide.
fn divided(settings: &SettingsStatus) -> String {
    let divided = match settings.costs {
        None => "outstanding IOs; IO/s follow as far as the array serves equal queues alike",
        Some(Costs::IOPS) => "IO/s",
        Some(Costs::BYTES) => "bytes/s",
        Some(_) => return format!("shares divide the array's time, by {}", settings.fairness),
    };
    format!("shares divide {divided}")
}

/// Sentence on the objective in force, and its price.
fn in_force(threshold_ms: f64, objective: &ObjectiveStatus) -> String {
    let iops = |v: Option<f64>| v.map_or("unknown".to_owned(), |v| format!("{v:.0}"));
    format!(
        "latency objective of {}: the threshold is {threshold_ms:.1} ms in place of {:.1} ms; IO/s of all \
         others: {}, before: {}",
        objective.of,
        objective.own_ms,
        iops(objective.others_iops_now),
        iops(objective.others_iops_before),
    )
}

/// Lines on the latency objectives of disks.
fn targets(disks: &[DiskStatus]) -> String {
    let mut text = String::new();
    for disk in disks {
        let Some(target) = &disk.latency_target else { continue };
        let ms = |v: Option<f64>| v.map_or("-".to_owned(), |v| format!("{v:.1} ms"));
        text += &format!(
            "  disk {}: objective {:.1} ms; at the array {}, held {}; asks for a threshold of {}\n",
            disk.name,
            target.target_ms,
            ms(target.device_ms),
            ms(target.held_ms),
            ms(target.asks_ms),
        );
        if target.rests {
            text += &format!(
                "  disk {}: its objective RESTS: the array could not meet it. It is tried again later\n",
                disk.name
            );
        }
        if target.short_of_shares {
            text += &format!(
                "  disk {}: HELD beyond its objective: it wants more outstanding IOs than its shares \
                 give, which no threshold can mend\n",
                disk.name
            );
        }
    }
    text
}

/// Lines on disks that do not have their reservation.
fn reservations(disks: &[DiskStatus]) -> String {
    let mut text = String::new();
    for disk in disks {
        let Some(reservation) = disk.reservation.filter(|reservation| reservation.short) else {
            continue;
        };
        text += &format!(
            "  disk {}: SHORT of its reservation: {:.0} IO/s of {:.0}. More is reserved than the array does\n",
            disk.name, reservation.iops, reservation.reserved_iops
        );
    }
    text
}

/// Line on a tenant.
fn line_of(tenant: &Tenant) -> String {
    let Tenant { name, settings, settings_from: _, iops, own_iops, limit_part, short } = tenant;
    let set = settings.iter().map(|(key, value)| format!("{key} {value}"));
    let part = limit_part.map(|part| format!("this host has {:.0} % of the limit", 100.0 * part));
    let short =
        short.then(|| "SHORT of its reservation: more is reserved than the array does".into());
    let said: Vec<String> = set.chain(part).chain(short).collect();
    format!(
        "  tenant {name}: {iops:.0} IO/s on all hosts, {own_iops:.0} here; {}\n",
        said.join("; ")
    )
}

/// Lines on settings in which hosts differ, and on disks that were held for too long.
fn agreed(volume: &VolumeStatus) -> String {
    let mut text = String::new();
    if let Some(settings) = &volume.settings {
        text += &format!("{}\n", divided(settings));
        if volume.steer.is_some() && settings.costs.is_some() {
            text += "  this device is steered: its own shares divide outstanding IOs\n";
        }
    }
    if let Some(objective) = &volume.objective {
        text += &format!("{}\n", in_force(volume.latency_threshold_ms, objective));
    }
    text += &targets(&volume.disks);
    text += &reservations(&volume.disks);
    volume.tenants.iter().for_each(|tenant| text += &line_of(tenant));
    for difference in volume.settings.iter().flat_map(|settings| &settings.differ) {
        text += &format!("  DIFFERENT SETTINGS: {difference}\n");
    }
    for disk in volume.disks.iter().filter(|disk| disk.overdue > 0) {
        text += &format!(
            "  disk {}: {} went out of turn, as the disk had been held for hold_max: it has few \
             shares beside the other disks\n",
            disk.name,
            count(disk.overdue, "IO")
        );
    }
    text
}

/// Lines on the memory of a volume's clients, and on those that were dropped.
fn clients(volume: &VolumeStatus, memory: &MemoryStats) -> String {
    let mib = |bytes: usize| mib(bytes as f64);
    let mut text = format!(
        "clients: {}; memory {:.1} MiB in use and {:.1} idle, {:.1} of {:.0} MiB granted; {} wait \
         for memory",
        volume.connections,
        mib(memory.buffers),
        mib(memory.idle),
        mib(memory.granted),
        mib(memory.limit),
        memory.waiting,
    );
    if memory.tls > 0 {
        text += &format!(", {:.1} MiB for TLS", mib(memory.tls));
    }
    let dropped = &volume.dropped;
    let reasons = [
        (dropped.handshake, "in the handshake"),
        (dropped.stalled, "without progress"),
        (dropped.protocol, "for breaking the protocol"),
        (dropped.turned_away, "turned away by a limit"),
        (dropped.socket, "for a failed socket"),
    ];
    let reasons: Vec<String> =
        (reasons.iter().filter(|(n, _)| *n > 0)).map(|(n, why)| format!("{n} {why}")).collect();
    if !reasons.is_empty() {
        text += &format!("\n  dropped since the start: {}", reasons.join(", "));
    }
    text + "\n"
}

/// Line on an automatic threshold.
fn threshold(found: &ThresholdStatus) -> String {
    let who = if found.leads { "this host" } else { "the host that leads" };
    let mut text = format!("threshold found by {who}: {}", found.doing);
    if let (Some(slope), Some(error)) = (found.slope, found.slope_error) {
        text += &format!(
            "; 10 % more latency brought {:.1} ± {:.1} % more throughput",
            10.0 * slope,
            10.0 * error
        );
    }
    if let Some(last) = &found.last_move {
        text += &format!(
            "; last moved {:.2} to {:.2} ms {} ago: {}",
            last.from_ms,
            last.to_ms,
            count(last.periods_ago, "period"),
            last.why
        );
    }
    if let Some(probed) = found.probed_ms {
        text += &format!("; the stored probe recommends {probed:.2} ms");
    }
    text
}

/// Lines on faults, each with its age and reason.
fn faults(volume: &VolumeStatus) -> String {
    let mut text = String::new();
    if let Some(fault) = &volume.fault {
        text += &format!("  FAULT: {fault}; started again {}\n", count(volume.restarts, "time"));
    }
    if let Some(last) = &volume.last_failure {
        let (ago, why, restarts) = (last.ago_s, &last.why, count(volume.restarts, "time"));
        text += &format!("  last failure {ago:.0} s ago: {why}; started again {restarts}\n");
    }
    for disk in &volume.disks {
        if disk.state == DiskState::Serving {
            if let Some(fault) = &disk.fault {
                text += &format!("  disk {}: {fault}\n", disk.name);
            }
            continue;
        }
        let why = disk.fault.as_deref().unwrap_or("no fault");
        text += &format!("  disk {}: {} for {:.0} s: {why}\n", disk.name, disk.state, disk.state_s);
    }
    for disk in volume.disks.iter().filter(|disk| disk.replaced) {
        let what = "its path leads to another file now, or to none; what was opened is served on";
        text += &format!("  disk {}: {what}\n", disk.name);
    }
    for listener in &volume.listeners {
        let Some(fault) = &listener.fault else { continue };
        text += &match listener.is_bound {
            true => {
                format!("  {}: {fault}; the certificate from before is shown\n", listener.address)
            }
            false => format!("  nobody can connect for {:.0} s: {fault}\n", listener.state_s),
        };
    }
    text
}

/// Lines on disks whose latency is that of the page cache.
fn cached(volume: &VolumeStatus) -> String {
    let cached = volume.disks.iter().filter(|disk| disk.page_cache);
    cached
        .map(|disk| {
            let name = &disk.name;
            format!("disk {name} goes through the page cache: its latency is not the array's\n")
        })
        .collect()
}

/// Table of the forecast of observe mode.
fn forecast(when: &str, forecast: &ForecastStatus) -> String {
    let rows = forecast.disks.iter().map(|disk| {
        [
            disk.name.clone(),
            disk.shares.to_string(),
            format!("{:.1} %", disk.part * 100.0),
            format!("{:.1} %", disk.part_would_be * 100.0),
        ]
    });
    format!(
        "under control, {when} ({:.0} s): latency {:.1} ms in place of {:.1} ms, window {:.2}\n{}\n",
        forecast.over_s,
        forecast.latency_would_be_ms,
        forecast.latency_ms,
        forecast.window,
        numbers("|shares|part now|would be", rows)
    )
}

fn slots(window: Option<f64>) -> String {
    window.map_or("none".to_owned(), |w| format!("{w:.2}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_that_shares_cannot_enlarge_is_said_to_be_at_its_bound() {
        let said = at_most(Some(64.0), Some(64.0), 1);
        assert!(said.contains("AT window_max: this host has at most 64.00 IOs"), "{said}");
        for (window, most) in [(Some(63.9), Some(64.0)), (None, Some(64.0)), (Some(64.0), None)] {
            assert_eq!(at_most(window, most, 1), "");
        }
        assert_eq!(at_most(Some(64.0), Some(64.0), 0), "", "nobody wants more");
    }
}
