//! `parda explain`: arguments, the VM that is meant, and the changes that are predicted.

mod kept;
mod look;
mod words;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use parda_agent::status::{Status, VolumeStatus};
use parda_api::Outsider;
use parda_explain::{Capacity, ExplainedVm, Explanation, WhatIf};
use parda_probe::{Point, ProbeDocument, Purpose};
use parda_terminal::{Failure, output, quantity};
use serde::Serialize;

use crate::agent::{Named, ask, by_key, escaped};
use crate::status::outsider;
use look::Looks;

#[derive(Args)]
#[command(after_help = "\
Examples:
  parda explain db                                   the VM db of the agent of /etc/parda.toml, over the last ten seconds
  parda explain db --shares 2000 --threshold 15ms    predict the effect of these shares, and of this threshold
  parda explain batch --limit 1000                   predict the effect of this limit
  parda explain batch --tenant-limit 3000            of this limit of its tenant, on all hosts
  parda explain db --probe array.json                with the array's throughput as `parda probe --json` measured it
  parda explain db --keep db.jsonl                   keep the predictions in a file
  parda explain db --score db.jsonl                  compare the last one in that file with measurements of now

Exit status: 0 explained; 1 the agent does not answer, or nothing can be scored; 2 no such VM.
See docs/explain.md")]
pub(crate) struct Explain {
    /// Name of the VM's disk
    #[arg(value_name = "VM")]
    vm: String,
    /// The volume, if several have a disk of this name
    #[arg(long, value_name = "VOLUME")]
    volume: Option<String>,
    #[command(flatten)]
    agent: Named,
    /// Interval over which the agent is watched
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = quantity::within(SHORTEST..=LONGEST, "must be from 1s to 10min"))]
    over: Duration,
    /// Predict what these shares of the VM would give
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    shares: Option<u32>,
    /// Predict what this limit of the VM would give, in IO/s
    #[arg(long, value_name = "IOPS", value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    limit: Option<u32>,
    /// Predict what this limit of the VM's tenant would give, in IO/s on all hosts
    #[arg(long, value_name = "IOPS", value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    tenant_limit: Option<u32>,
    /// Predict what this latency threshold of all hosts would give
    #[arg(long, value_name = "TIME", value_parser = quantity::within(LEAST..=MOST, "must be above 0 and at most 10s"))]
    threshold: Option<Duration>,
    /// A probe of the array, as `parda probe --json` writes it: its throughput at other latencies
    #[arg(long, value_name = "FILE")]
    probe: Option<PathBuf>,
    /// Append the measurements and the predictions to a file, as a line of JSON
    #[arg(long, value_name = "FILE", conflicts_with = "score")]
    keep: Option<PathBuf>,
    /// Compare the last prediction of a file that --keep wrote with measurements of now
    #[arg(long, value_name = "FILE", conflicts_with_all = ["shares", "limit", "tenant_limit", "threshold", "probe"])]
    score: Option<PathBuf>,
    /// Write JSON to standard output
    #[arg(long)]
    json: bool,
}

/// Bounds of `--over`. Less than a second is less than a period of the law.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(600);

/// Bounds of a threshold, as in the configuration.
const LEAST: Duration = Duration::from_nanos(1);
const MOST: Duration = Duration::from_secs(10);

/// The answer as JSON.
#[derive(Serialize)]
struct Answer<'a> {
    volume: &'a str,
    pool: Option<&'a str>,
    host: &'a str,
    seconds: f64,
    threshold_ms: f64,
    latency_ms: Option<f64>,
    /// Load on the array that is not under control.
    outsider: Option<Outsider>,
    #[serde(flatten)]
    explanation: &'a Explanation,
}

impl Explain {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        output::check([&self.keep])?;
        let probed = self.probe.as_deref().map(read_probe).transpose()?;
        let last = self.score.as_deref().map(|file| kept::last(file, &self.vm)).transpose()?;
        let socket = self.agent.socket()?;
        let look = || Ok(by_key(escaped(ask(&socket)?)?));
        let first = look()?;
        let volume = self.find(&first)?;
        if let Some(steer) = volume.steer.as_ref().filter(|_| volume.disks.is_empty()) {
            return words::steered(&self.vm, volume, steer, self.json);
        }
        let of = volume.disks.iter().find(|disk| disk.name == self.vm);
        if self.tenant_limit.is_some() && of.is_none_or(|disk| disk.settings.tenant.is_none()) {
            let message = format!("{}: has no tenant: leave --tenant-limit out", self.vm);
            return Err(Failure::usage(message));
        }
        let (volume, pool) = (volume.name.clone(), volume.pool.clone());
        let looks = Looks::take(first, &volume, self.over, look)?;
        let view = looks.view();
        if let Some(last) = last {
            return kept::tell_score(&last, &view, self.json);
        }
        let service_ms = looks.service_ms();
        let capacity = probed.unwrap_or(Capacity::Assumed { service_ms });
        let changes = self.changes(view.vm(&self.vm), view.threshold_ms);
        let found = Explanation::of(&view, &self.vm, &changes, &capacity)
            .ok_or_else(|| Failure::new(format!("the disk {} was removed meanwhile", self.vm)))?;
        if let Some(file) = &self.keep {
            kept::append(file, &volume, &self.vm, &view, &capacity, &found)?;
        }
        let answer = Answer {
            volume: &volume,
            pool: pool.as_deref(),
            host: &view.host,
            seconds: view.seconds,
            threshold_ms: view.threshold_ms,
            latency_ms: view.latency_ms,
            outsider: looks.outsider(),
            explanation: &found,
        };
        output::tell_as(self.json, &answer, |answer| {
            let outsider = answer.outsider.as_ref();
            let outsider =
                outsider.map_or(String::new(), |found| format!("\n{}\n", outsider::line(found)));
            let of_pool = answer.pool.map_or(String::new(), |pool| format!(" of pool {pool}"));
            let volume = format!("{volume}{of_pool}");
            words::of(&volume, &view, &found, self.asked(), &capacity) + &outsider
        })
    }

    /// The volume that has the VM.
    fn find<'a>(&self, status: &'a Status) -> Result<&'a VolumeStatus, Failure> {
        let named =
            |volume: &&VolumeStatus| self.volume.as_ref().is_none_or(|name| *name == volume.name);
        let volumes: Vec<_> = status.volumes.iter().filter(named).collect();
        if let (Some(name), true) = (&self.volume, volumes.is_empty()) {
            let all: Vec<_> = status.volumes.iter().map(|volume| volume.name.as_str()).collect();
            return Err(none("volume", name, &all));
        }
        let has: Vec<_> =
            volumes.iter().filter(|volume| names(volume).contains(&self.vm.as_str())).collect();
        match has[..] {
            [volume] => Ok(volume),
            [] => {
                let all: Vec<_> = volumes.iter().flat_map(|volume| names(volume)).collect();
                Err(none("VM", &self.vm, &all))
            }
            [..] => {
                let all: Vec<_> = has.iter().map(|volume| volume.name.as_str()).collect();
                Err(Failure::usage(format!(
                    "{}: a VM of several volumes: {}: say which with --volume",
                    self.vm,
                    all.join(", ")
                )))
            }
        }
    }

    /// Changes to predict: those that the command line names, and some multiples of shares, limit and threshold.
    fn changes(&self, vm: Option<&ExplainedVm>, threshold_ms: f64) -> Vec<WhatIf> {
        let mut all: Vec<WhatIf> = self.asked();
        let shares = vm.map_or(0.0, |vm| vm.shares);
        let limit = vm.and_then(|vm| vm.limit.as_ref()?.iops);
        let half_and_twice = |of: f64| [0.5 * of, 2.0 * of];
        let shares = [0.5, 2.0, 4.0].into_iter().map(|factor| factor * shares);
        let shares = shares.filter(|shares| (1.0..=1e6).contains(shares));
        all.extend(shares.map(|shares| WhatIf::Shares(shares.round())));
        let limits = limit.into_iter().flat_map(half_and_twice);
        all.extend(limits.map(|iops| WhatIf::LimitIops(iops.round())));
        let tenant = vm.filter(|vm| vm.limit.as_ref().is_some_and(|limit| limit.iops.is_none()));
        let tenant = tenant.and_then(|vm| vm.tenant.as_ref()).map(|tenant| tenant.iops);
        let tenants = tenant.into_iter().flat_map(half_and_twice);
        all.extend(tenants.map(|iops| WhatIf::TenantLimitIops(iops.round())));
        let most = MOST.as_secs_f64() * 1e3;
        let thresholds = half_and_twice(threshold_ms).into_iter().filter(|ms| *ms <= most);
        all.extend(thresholds.map(WhatIf::ThresholdMs));
        let mut unique: Vec<WhatIf> = Vec::new();
        for change in all {
            if !unique.contains(&change) {
                unique.push(change);
            }
        }
        unique
    }

    fn asked(&self) -> Vec<WhatIf> {
        let shares = self.shares.map(|shares| WhatIf::Shares(f64::from(shares)));
        let limit = self.limit.map(|iops| WhatIf::LimitIops(f64::from(iops)));
        let threshold = self.threshold.map(|t| WhatIf::ThresholdMs(t.as_secs_f64() * 1e3));
        let tenant = self.tenant_limit.map(|iops| WhatIf::TenantLimitIops(f64::from(iops)));
        shares.into_iter().chain(limit).chain(tenant).chain(threshold).collect()
    }
}

fn names(volume: &VolumeStatus) -> Vec<&str> {
    let disks = volume.disks.iter().map(|disk| disk.name.as_str());
    let vms = volume.steer.iter().flat_map(|steer| &steer.vms).map(|vm| vm.name.as_str());
    disks.chain(vms).collect()
}

fn none(kind: &str, name: &str, all: &[&str]) -> Failure {
    let there = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
    Failure::usage(format!("{name}: no {kind} of this name; there are: {there}"))
}

/// The array's throughput over its latency, from a stored probe: the mix that its advice rests on.
fn read_probe(file: &std::path::Path) -> Result<Capacity, Failure> {
    let probe = ProbeDocument::read(file).map_err(|error| Failure::usage(error.to_string()))?;
    let mix = probe.findings.curves.first().map(|curve| curve.mix);
    let of_curve = |point: &&Point| point.purpose == Purpose::Depth && Some(point.load.mix) == mix;
    let points = probe.points.iter().filter(of_curve);
    let mut curve: Vec<(f64, f64)> =
        points.map(|point| (point.all.mean_ms, point.all.iops)).collect();
    curve.sort_by(|a, b| a.0.total_cmp(&b.0));
    if curve.len() < 2 {
        return Err(Failure::usage(format!(
            "{}: no curve of throughput by latency: probe with several numbers of outstanding IOs",
            file.display()
        )));
    }
    Ok(Capacity::Probed { curve })
}
