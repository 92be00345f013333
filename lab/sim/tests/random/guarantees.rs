//! Limits and reservations in fleets, whatever happens to them.
//!
//! What all of a fleet's reservations come to is at most 60 % of what its array does at the threshold, as measured in the same fleet
//! without them and without faults. Then no VM exceeds its limit, which the simulator itself looks after; and a VM that always wants
//! more has its reservation in any five seconds, or the run says that it is short.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use fastrand::Rng;
use parda_scenario::array::ArrayEvent;
use parda_scenario::{Action, Scenario, VmIndex};
use parda_sim::{KeptRuns, SimError, run};

use crate::common::parse;
use crate::fleet::{Fleet, HEALED, Kind, RECOVERY, TROUBLE, log_uniform, phase};

/// Part of the array's throughput at the threshold that is reserved at most.
const RESERVED: f64 = 0.6;
/// Seconds in which a reservation must be met.
const WINDOW: usize = 5;
/// Part of a reservation that counts as met, and IOs at both ends of the window.
const MET: f64 = 0.95;
const ENDS: f64 = 2.0;
/// The drive that fails.
const DRIVE: u32 = 2;

/// A fleet with limits and reservations.
pub(crate) struct Guaranteed {
    text: String,
    classes: Vec<&'static str>,
    reserved: Vec<(VmIndex, f64)>,
    /// The longest period of a host, in seconds.
    period: f64,
}

/// A window in which a VM had less than its reservation.
struct Missed {
    vm: String,
    /// Start of the window, in seconds.
    at: usize,
    /// Part of the reservation that it had.
    had: f64,
    /// The run says that the VM is short.
    said: bool,
    /// Something happens in the window or three periods before, or a drive is being rebuilt.
    faulty: bool,
}

/// What came of a fleet.
pub(crate) struct Outcome {
    /// Windows that were judged.
    windows: usize,
    missed: Vec<Missed>,
    /// Seconds in which the run says that a VM is short, and those of them that no missed window explains.
    said: usize,
    needless: usize,
    /// What must never happen, and did: such as a limit that was exceeded.
    violation: Option<SimError>,
}

/// IO/s of all hosts under control, while nothing happens to the fleet.
fn calm(fleet: &Fleet) -> f64 {
    let [from, to] = [25.0, 45.0].map(|periods| periods * fleet.longest * fleet.period);
    let (title, settings, hosts) = (&fleet.title, &fleet.settings, &fleet.hosts);
    let phase = phase("calm", from, to);
    let scenario = parse(&format!("{title}duration = \"{to:.2}s\"\n{settings}{phase}{hosts}"));
    let answer = run(&scenario, KeptRuns::Nothing, |_| ()).unwrap().answer;
    answer.phases[0].controlled().iops
}

/// A limit of about so many IOs per second, as the file says it.
fn limit(rng: &mut Rng, iops: f64) -> String {
    let iops = iops.max(1.0);
    let rate = match rng.u32(..4) {
        0 => format!("iops_reads = {iops:.1}, iops_writes = {:.1}", 2.0 * iops),
        1 => format!("bandwidth = \"{:.0}KiB\"", 16.0 * iops),
        2 => format!("iops = {iops:.1}, bandwidth_writes = \"{:.0}KiB\"", 16.0 * iops),
        _ => format!("iops = {iops:.1}"),
    };
    let burst = match rng.u32(..3) {
        0 => format!(
            ", burst = {:.1}, burst_for = \"{}ms\"",
            1.5 + 3.0 * rng.f64(),
            rng.u32(100..5000)
        ),
        _ => String::new(),
    };
    format!("limit = {{ {rate}{burst} }}\n")
}

impl Guaranteed {
    pub(crate) fn new(seed: u64) -> Guaranteed {
        let fleet = Fleet::new(seed);
        let mut rng = Rng::with_seed(seed ^ 0x9a7a_17ee);
        let iops = calm(&fleet);
        let mut classes = fleet.classes.clone();
        let all = fleet.vms.iter().enumerate();
        let all = all.flat_map(|(host, vms)| {
            vms.iter().enumerate().map(move |(vm, kind)| (host, vm, *kind))
        });
        let (mut reserved, mut limited) = (Vec::new(), Vec::new());
        let mut weights = 0.0;
        for (host, vm, kind) in all {
            if kind == Kind::Deep && (reserved.is_empty() || rng.bool()) {
                let weight = log_uniform(&mut rng, 0.1, 1.0);
                weights += weight;
                reserved.push((host, vm, weight));
            } else if rng.u32(..3) == 0 {
                limited.push((host, vm));
            }
        }
        let part = RESERVED * (0.2 + 0.8 * rng.f64());
        let mut text = fleet.text.clone();
        let mut add = |host: usize, vm: usize, more: &str| {
            let name = format!("name = \"h{host}v{vm}\"\n");
            text = text.replacen(&name, &format!("{name}{more}"), 1);
        };
        for (host, vm, weight) in &mut reserved {
            *weight = (iops * part * *weight / weights).round().max(1.0);
            let most = *weight * (1.0 + 2.0 * rng.f64());
            let most = if rng.u32(..4) == 0 {
                format!("limit = {{ iops = {most:.0} }}\n")
            } else {
                String::new()
            };
            add(*host, *vm, &format!("reservation = {weight}\n{most}"));
        }
        for (host, vm) in limited {
            let most = iops * log_uniform(&mut rng, 0.005, 0.5);
            add(host, vm, &limit(&mut rng, most));
        }
        if fleet.text.contains("raid5") && rng.bool() {
            classes.push("a drive fails");
            let mut two = [0, 0].map(|_| TROUBLE + rng.f64() * (HEALED - TROUBLE) * fleet.longest);
            two.sort_by(f64::total_cmp);
            for (at, what) in two.into_iter().zip(["fail_drive", "rebuild_drive"]) {
                write!(
                    text,
                    "[[event]]\nat = \"{:.2}s\"\narray = {{ {what} = {DRIVE} }}\n",
                    at * fleet.period
                )
                .unwrap();
            }
        }
        let mut scenario = parse(&text);
        let seconds = scenario.duration.as_secs() as usize;
        text.extend((0..seconds).map(|i| phase(&format!("s{i}"), i as f64, (i + 1) as f64)));
        scenario = parse(&text);
        // What an array does that writes into a cache is not known from some seconds.
        if classes.contains(&"write cache") {
            reserved.clear();
        }
        let reserved = reserved.into_iter().map(|(host, vm, rate)| {
            let id =
                scenario.vm_ids().map(|(id, _)| id).find(|id| (id.host.0, id.index) == (host, vm));
            (id.unwrap(), rate)
        });
        let reserved = reserved.collect();
        if std::env::var_os("PARDA_SHOW").is_some() {
            println!("{text}");
        }
        Guaranteed { text, classes, reserved, period: fleet.longest * fleet.period }
    }

    /// When a VM's host or its client is away or has just come back, in seconds.
    fn away(&self, scenario: &Scenario, vm: VmIndex) -> Vec<[f64; 2]> {
        let recovery = RECOVERY * self.period;
        let (mut away, mut since) = (vec![[0.0, recovery]], None);
        for event in &scenario.timeline {
            let at = event.at.as_secs_f64();
            match event.action {
                Action::KillHost(host) | Action::HangHost(host) if host == vm.host => {
                    since = Some(at)
                }
                Action::StopVm(id) if id == vm => since = Some(at),
                Action::StartHost(host) | Action::ResumeHost(host) if host == vm.host => {
                    away.extend(since.take().map(|since| [since, at + recovery]));
                }
                Action::StartVm(id) if id == vm => {
                    away.extend(since.take().map(|since| [since, at + recovery]));
                }
                _ => {}
            }
        }
        away.extend(since.map(|since| [since, f64::INFINITY]));
        away
    }

    pub(crate) fn run(&self) -> Outcome {
        let scenario = parse(&self.text);
        let mut outcome =
            Outcome { windows: 0, missed: Vec::new(), said: 0, needless: 0, violation: None };
        let (answer, series) = match run(&scenario, KeptRuns::All, |_| ()) {
            Ok(run) => (run.answer, run.series.unwrap()),
            Err(error) => {
                outcome.violation = Some(error);
                return outcome;
            }
        };
        let seconds: Vec<_> = answer
            .phases
            .iter()
            .filter(|phase| phase.name.starts_with('s') && phase.to - phase.from == 1.0)
            .collect();
        let later = (3.0 * self.period).ceil() as usize;
        for (id, rate) in &self.reserved {
            let ios: Vec<f64> =
                seconds.iter().map(|second| second.hosts[id.host.0].vms[id.index].iops).collect();
            let away = self.away(&scenario, *id);
            let short = |second: usize| {
                series.hosts[id.host.0].short.get(second).is_some_and(|vms| vms.contains(&id.index))
            };
            let mut latest = None;
            for at in 0..=ios.len().saturating_sub(WINDOW) {
                let end = at + WINDOW;
                if away.iter().any(|[from, to]| (at as f64) < *to && (end as f64) > *from) {
                    continue;
                }
                outcome.windows += 1;
                let (had, asked) = (ios[at..end].iter().sum::<f64>(), rate * WINDOW as f64);
                let missed = had < MET * asked - ENDS;
                latest = if missed { Some(at) } else { latest };
                // It begins before the window has ended, and ends when it is made up for.
                if short(at + 1) {
                    outcome.said += 1;
                    outcome.needless +=
                        usize::from(latest.is_none_or(|latest| at > latest + WINDOW + later));
                }
                if missed {
                    let said = (at..end + later).any(short);
                    let faulty = scenario.timeline.iter().any(|event| {
                        let after = end as f64 - event.at.as_secs_f64();
                        let rebuild = Action::Array(ArrayEvent::RebuildDrive(DRIVE));
                        let shortly = after < WINDOW as f64 + 3.0 * self.period;
                        after > 0.0 && (shortly || event.action == rebuild)
                    });
                    let vm = scenario.vm(*id).name.clone();
                    outcome.missed.push(Missed { vm, at, had: had / asked, said, faulty });
                }
            }
        }
        outcome
    }
}

/// What was missed, of how much.
#[derive(Default)]
pub(crate) struct Tally {
    /// By class: fleets, and those with windows that were missed and not said.
    classes: BTreeMap<&'static str, [u64; 2]>,
    windows: usize,
    /// Seconds in which VMs were said to be short, and those of them without a window that was missed.
    alarms: [usize; 2],
    /// Windows that were missed: said; not said, beside a fault and else.
    said: usize,
    unsaid: [usize; 2],
    /// Fleets with what must never happen, and those with windows that were missed and not said.
    pub(crate) never: Vec<String>,
    pub(crate) missed: Vec<String>,
}

impl Tally {
    pub(crate) fn add(&mut self, seed: u64, fleet: &Guaranteed, outcome: &Outcome) {
        let (said, unsaid): (Vec<&Missed>, _) =
            outcome.missed.iter().partition(|missed| missed.said);
        self.windows += outcome.windows;
        self.alarms[0] += outcome.said;
        self.alarms[1] += outcome.needless;
        self.said += said.len();
        let faulty = unsaid.iter().filter(|missed| missed.faulty).count();
        self.unsaid[0] += faulty;
        self.unsaid[1] += unsaid.len() - faulty;
        for class in fleet.classes.iter().copied().chain(["all"]) {
            let [fleets, missed] = self.classes.entry(class).or_default();
            *fleets += 1;
            *missed += u64::from(!unsaid.is_empty());
        }
        let violation = outcome.violation.iter().map(|error| format!("seed {seed}: {error}"));
        self.never.extend(violation);
        let worst = unsaid.iter().min_by(|a, b| a.had.total_cmp(&b.had));
        self.missed.extend(worst.map(|Missed { vm, at, had, .. }| {
            let (count, classes) = (unsaid.len(), fleet.classes.join(", "));
            format!("seed {seed}: {count} windows; from {at} s on {vm} has {had:.2} of what it is to have ({classes})")
        }));
    }

    /// Parts of all windows: missed, and missed without a word.
    pub(crate) fn parts(&self) -> [f64; 2] {
        let unsaid = self.unsaid[0] + self.unsaid[1];
        [self.said + unsaid, unsaid].map(|count| count as f64 / self.windows.max(1) as f64)
    }

    pub(crate) fn table(&self) -> String {
        let mut text =
            String::from("| class | fleets | short, and not said |\n| --- | ---: | ---: |\n");
        for (class, [fleets, missed]) in &self.classes {
            writeln!(text, "| {class} | {fleets} | {missed} |").unwrap();
        }
        let [faulty, other] = self.unsaid;
        let (windows, said, [alarms, needless]) = (self.windows, self.said, self.alarms);
        text + &format!(
            "{windows} windows of {WINDOW} s; short and said: {said}; not said: {faulty} beside a fault, {other} else; {alarms} seconds said, {needless} needlessly\n"
        )
    }
}
