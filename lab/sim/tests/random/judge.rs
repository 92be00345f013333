//! What is expected of a fleet some time after what happened to it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use parda_scenario::{HostAnswer, PhaseAnswer, VmAnswer};
use parda_sim::{KeptRuns, run};

use crate::fleet::{Fleet, HOLD_MAX, Kind};

/// How near the latency must be to the threshold, and VMs to their shares.
const LATENCY: f64 = 0.05;
const SHARES: f64 = 0.08;
/// What all hosts may have outstanding together whatever the latency is, by default, and some more.
const CLUSTER_MIN: f64 = 1.25;
/// What part of the throughput of static windows there must be.
const CONSERVED: f64 = 0.97;
/// How well a period must tell the mean latency, as a standard error. Else windows follow chance, and static ones do not.
const KNOWN_BY: f64 = 0.10;
/// What a fleet is judged by, and by how much it is off: more than 1 is a miss.
pub(crate) type Judged = BTreeMap<&'static str, f64>;

pub(crate) fn answer(fleet: &Fleet, text: Option<&str>) -> PhaseAnswer {
    let scenario = text.map_or_else(|| fleet.scenario(), crate::common::parse);
    let answer = run(&scenario, KeptRuns::Nothing, |_| ());
    let answer = answer.unwrap_or_else(|e| panic!("{e}\n{}", fleet.text)).answer;
    answer.phases.into_iter().next().unwrap()
}

/// Judges what there is to judge.
pub(crate) fn judge(fleet: &Fleet) -> (PhaseAnswer, Judged) {
    let well = answer(fleet, None);
    let mut judged = Judged::new();
    judged.insert("hold", held_too_long(fleet, &well));
    let saturated = well.hosts.iter().flat_map(|host| &host.vms).any(|vm| vm.saturated);
    if fleet.settles && saturated {
        match off_threshold(fleet, &well) {
            Some(off) => _ = judged.insert("threshold", off / LATENCY),
            None => _ = judged.insert(OUT_OF_REACH, 0.0),
        }
        if let Some(off) = off_shares(fleet, &well) {
            judged.insert("shares", off / SHARES);
        }
        if error_of_a_period(fleet, &well) < KNOWN_BY {
            let fixed = answer(fleet, Some(&fixed(fleet, &well)));
            let part = controlled(&well) / controlled(&fixed);
            judged.insert("conservation", (1.0 - part).max(0.0) / (1.0 - CONSERVED));
        }
    }
    (well, judged)
}

/// The standard error of the mean latency of one period's IOs, over the mean.
fn error_of_a_period(fleet: &Fleet, phase: &PhaseAnswer) -> f64 {
    let hosts = phase.hosts.iter().filter(|host| !host.outside);
    let sums = hosts.filter_map(|host| {
        let latency = host.device_latency_ms?;
        Some((host.iops, host.iops * latency.mean, host.iops * latency.stddev.powi(2)))
    });
    // Within hosts: what they differ by is not chance.
    let (iops, all, squares) =
        sums.fold((0.0, 0.0, 0.0), |sum, host| (sum.0 + host.0, sum.1 + host.1, sum.2 + host.2));
    (squares / iops).sqrt() / (all / iops) / (iops * fleet.period).sqrt()
}

fn controlled(phase: &PhaseAnswer) -> f64 {
    phase.hosts.iter().filter(|host| !host.outside).map(|host| host.iops).sum()
}

/// By what part the latency of those under control is off the threshold: nobody hears the others.
///
/// `None`: all of them together keep no more than `cluster_min` outstanding, and latency is above the threshold all
/// the same. A single IO takes longer than that, or an outsider fills the array: no window can meet it.
fn off_threshold(fleet: &Fleet, phase: &PhaseAnswer) -> Option<f64> {
    let off = phase.controlled().device_latency_ms.unwrap_or(0.0) / fleet.threshold_ms - 1.0;
    let outstanding: f64 =
        phase.hosts.iter().filter(|host| !host.outside).map(|host| host.outstanding).sum();
    (off <= 0.0 || outstanding >= CLUSTER_MIN).then_some(off.abs())
}

/// What somebody got by one measure, for so many shares, with so many IOs.
struct Claim {
    got: f64,
    shares: f64,
    ios: f64,
}

/// How far each is off its part of what all of them have. Of those whose part is too few IOs for chance not
/// to count, nothing is said.
fn errors(claims: &[Claim]) -> Vec<f64> {
    let ios: f64 = claims.iter().map(|claim| claim.ios).sum();
    let shares: f64 = claims.iter().map(|claim| claim.shares).sum();
    let judged: Vec<_> =
        claims.iter().filter(|claim| ios * claim.shares / shares >= 1000.0).collect();
    let got: f64 = judged.iter().map(|claim| claim.got).sum();
    let of: f64 = judged.iter().map(|claim| claim.shares).sum();
    judged.iter().map(|claim| (claim.got / claim.shares * of / got - 1.0).abs()).collect()
}

/// How far VMs that always want more are off their shares, where all do the same IOs; else hosts that have
/// no other VMs, off theirs of the slots. Nothing is said of clients that keep few IOs under way: they may have
/// been held now and then, and all the same have had what they can use.
///
/// Between hosts shares divide slots, within a host they divide IOs. Disks that lie where drives are faster make
/// a difference of some percent between the two, so that a VM is right if it is by either.
fn off_shares(fleet: &Fleet, phase: &PhaseAnswer) -> Option<f64> {
    let secs = phase.to - phase.from;
    let hosts = phase.hosts.iter().zip(&fleet.vms);
    let is_deep = |(vm, kind): &(&VmAnswer, &Kind)| vm.saturated && **kind == Kind::Deep;
    let off = if fleet.alike {
        let deep: Vec<&VmAnswer> = hosts
            .flat_map(|(host, kinds)| host.vms.iter().zip(kinds))
            .filter(is_deep)
            .map(|(vm, _)| vm)
            .collect();
        let by = |got: fn(&VmAnswer) -> f64| {
            let claim = |vm: &&VmAnswer| Claim {
                got: got(vm),
                shares: f64::from(vm.shares),
                ios: vm.iops * secs,
            };
            errors(&deep.iter().map(claim).collect::<Vec<_>>())
        };
        let iops = by(|vm| vm.iops);
        let slots = by(|vm| match (vm.latency_ms, vm.held_ms) {
            (Some(all), Some(held)) => vm.iops * (all.mean - held.mean),
            _ => 0.0,
        });
        iops.into_iter().zip(slots).map(|(iops, slots)| iops.min(slots)).collect()
    } else {
        let all = |(host, kinds): &(&HostAnswer, &Vec<Kind>)| {
            host.vms.iter().zip(*kinds).all(|vm| is_deep(&vm))
        };
        let claim = |host: &HostAnswer| Claim {
            got: host.outstanding,
            shares: f64::from(host.shares),
            ios: host.iops * secs,
        };
        errors(&hosts.filter(all).map(|(host, _)| claim(host)).collect::<Vec<_>>())
    };
    (off.len() > 1).then(|| off.into_iter().fold(0.0, f64::max))
}

/// The longest that a VM waited for an IO, over what it may: of one that keeps a single IO under way it
/// is known, of all others that always want more how many they had. A VM that was stopped and started again has one IO
/// more under way, until the one that was held when it stopped is done.
fn held_too_long(fleet: &Fleet, phase: &PhaseAnswer) -> f64 {
    let (most, secs) = (HOLD_MAX * fleet.period, phase.to - phase.from);
    let mut worst: f64 = 0.0;
    for (host, kinds) in phase.hosts.iter().zip(&fleet.vms) {
        for (vm, kind) in host.vms.iter().zip(kinds) {
            let over = match kind {
                Kind::Shallow(1) if !fleet.text.contains(&format!("vm = \"{}\"\n", vm.name)) => {
                    vm.held_ms.map_or(2.0, |held| held.max / 1e3 / (most + 0.1 * fleet.period))
                }
                // Also the last of them must come back within the phase.
                Kind::Deep | Kind::Shallow(_) => {
                    let least = (secs / most).floor() - 2.0;
                    if vm.iops * secs >= least { 0.0 } else { 2.0 }
                }
                _ => 0.0,
            };
            worst = worst.max(over);
        }
    }
    worst
}

/// The same cluster with windows that nobody moves, as large as what each host had outstanding.
fn fixed(fleet: &Fleet, phase: &PhaseAnswer) -> String {
    let mut text = fleet.text.clone();
    for host in phase.hosts.iter().filter(|host| !host.outside) {
        let name = format!("name = \"{}\"\n", host.name);
        let window = host.outstanding.max(0.001);
        let own = format!("mode = \"static\", window_max = {window:.4}, window_min = 0.001");
        let (head, tail) = text.split_once(&name).unwrap();
        text = match tail.strip_prefix("control = { ") {
            Some(more) => format!("{head}{name}control = {{ {own}, {more}"),
            None => format!("{head}{name}control = {{ {own} }}\n{tail}"),
        };
    }
    text
}

/// How many fleets were tried, judged and missed.
#[derive(Default)]
pub(crate) struct Tally {
    tried: BTreeMap<&'static str, u64>,
    /// By class and by what it was judged by: judged, missed, and the worst.
    judged: BTreeMap<(&'static str, &'static str), (u64, u64, f64)>,
    pub(crate) missed: Vec<String>,
}

/// Not judged by the threshold, as nothing can meet it.
const OUT_OF_REACH: &str = "out of reach";

const BY: [&str; 5] = ["threshold", OUT_OF_REACH, "shares", "conservation", "hold"];

impl Tally {
    pub(crate) fn add(&mut self, seed: u64, fleet: &Fleet, judged: &Judged) {
        for class in fleet.classes.iter().copied().chain(["all"]) {
            *self.tried.entry(class).or_default() += 1;
            for (by, off) in judged {
                let (count, missed, worst) = self.judged.entry((class, by)).or_default();
                *count += 1;
                *missed += u64::from(*off > 1.0);
                *worst = worst.max(*off);
            }
        }
        let missed = judged.iter().filter(|(_, off)| **off > 1.0);
        let missed: Vec<String> = missed.map(|(by, off)| format!("{by} {off:.2}")).collect();
        if !missed.is_empty() {
            let (missed, classes) = (missed.join(", "), fleet.classes.join(", "));
            self.missed.push(format!("seed {seed}: {missed} times what it may be ({classes})"));
        }
    }

    /// As Markdown: of each class how many were tried, and missed of how many judged.
    pub(crate) fn table(&self) -> String {
        let mut text = format!("| class | tried | {} |\n|", BY.join(" | "));
        text += &format!(" --- | {} |\n", ["---:"; 1 + BY.len()].join(" | "));
        for (class, tried) in &self.tried {
            write!(text, "| {class} | {tried} |").unwrap();
            for by in BY {
                let of = self.judged.get(&(*class, by));
                let cell = of.map_or("–".to_owned(), |(n, missed, _)| match by {
                    OUT_OF_REACH => n.to_string(),
                    _ => format!("{missed} of {n}"),
                });
                write!(text, " {cell} |").unwrap();
            }
            text.push('\n');
        }
        text
    }
}
