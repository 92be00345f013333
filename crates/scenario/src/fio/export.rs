//! From the VMs of a scenario to a job file.

use std::io::{self, Write};
use std::time::Duration;

use super::job::{Job, Target, UnsupportedByFio};
use crate::load::Load;
use crate::scenario::{Action, Scenario, Vm, VmId};
use crate::trace::{Player, Replay, TraceIo};
use crate::workload::OPEN_LOOP_DEPTH;

/// Seed of a VM's client, derived from the scenario's seed so that each VM has another one.
#[must_use]
pub fn seed(seed: u64, id: VmId) -> u64 {
    // Any mixing serves that separates seed, host and VM. fio takes 32 bits.
    let mixed = [seed, id.host.0 as u64, id.index as u64]
        .iter()
        .fold(0x9e37_79b9_7f4a_7c15_u64, |h, &x| (h ^ x).wrapping_mul(0x0100_0000_01b3));
    (mixed >> 32 ^ mixed) & 0xffff_ffff
}

/// Job file with one section for each VM, which runs from its first start to its first stop. Other
/// events of the scenario are not part of it.
///
/// `target` gives the location of a VM's disk. A VM that replays a trace replays the log
/// `NAME.iolog` in fio's working directory: see [`iolog`].
///
/// # Errors
/// A part of a workload that fio does not support, with the VM's name.
pub fn job_file(
    scenario: &Scenario,
    vms: &[VmId],
    target: impl Fn(&Vm) -> String,
) -> Result<String, (String, UnsupportedByFio)> {
    let job = |id: &VmId| {
        let vm = scenario.vm(*id);
        job(scenario, *id, &target(vm)).map_err(|error| (vm.name.clone(), error))
    };
    let jobs = vms.iter().map(job).collect::<Result<Vec<_>, _>>()?;
    sections(&jobs)
}

fn job(scenario: &Scenario, id: VmId, target: &str) -> Result<Job, UnsupportedByFio> {
    let vm = scenario.vm(id);
    let mut job = Job::new(&vm.name);
    job.target(Target::of(target));
    let (start, stop) = runs(scenario, id);
    match &vm.load {
        Load::Drawn(workload) => {
            job.load(workload, vm.disk)?;
            job.set("time_based", 1);
            job.set("runtime", time(stop.saturating_sub(start)));
            job.set("randseed", seed(scenario.seed, id));
        }
        Load::Replayed(_) => {
            job.set("size", vm.disk.0);
            job.set("read_iolog", log_name(vm));
            job.set("replay_redirect", target);
            job.set("iodepth", OPEN_LOOP_DEPTH);
        }
    }
    if !start.is_zero() {
        job.set("startdelay", time(start));
    }
    Ok(job)
}

/// A duration with its unit.
fn time(time: Duration) -> String {
    if time.subsec_nanos() == 0 {
        return format!("{}s", time.as_secs());
    }
    format!("{}us", time.as_micros())
}

/// Name of the log that a VM replays.
#[must_use]
pub fn log_name(vm: &Vm) -> String {
    format!("{}.iolog", vm.name)
}

/// Times of the first start and the first stop of a VM's client.
fn runs(scenario: &Scenario, id: VmId) -> (Duration, Duration) {
    let mut events = scenario.timeline.iter();
    let mut next = |action: Action| events.find(|event| event.action == action).map(|e| e.at);
    let start = next(Action::StartVm(id)).unwrap_or_default();
    (start, next(Action::StopVm(id)).unwrap_or(scenario.duration))
}

/// Job file: a `[global]` section with the options that all jobs share, then one section for each
/// job.
///
/// # Errors
/// A value cannot be written in a job file, with the job's name.
pub fn sections(jobs: &[Job]) -> Result<String, (String, UnsupportedByFio)> {
    let of = |job: &Job| job.section().map_err(|error| (job.name().to_owned(), error));
    let [first, others @ ..] = jobs else { return Ok(String::new()) };
    let mut global = Job::new("global");
    if !others.is_empty() {
        for (option, value) in first.options() {
            if others.iter().all(|job| job.get(option) == Some(value)) {
                global.set(option, value);
            }
        }
    }
    let mut sections = Vec::new();
    if global.options().next().is_some() {
        sections.push(of(&global)?);
    }
    for job in jobs {
        let mut own = Job::new(job.name());
        for (option, value) in job.options().filter(|(option, _)| global.get(option).is_none()) {
            own.set(option, value);
        }
        sections.push(of(&own)?);
    }
    Ok(sections.join("\n"))
}

/// Writes the log that a VM replays, in fio's format version 3, with the IOs that arrive within
/// this time. `chance`, in [0, 1), places the beginning of a replay that begins anywhere.
///
/// # Errors
/// The log cannot be written.
pub fn iolog(
    replay: &Replay,
    vm: &Vm,
    lasts: Duration,
    chance: f64,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut player = Player::new(replay, vm.disk, chance);
    let name = &vm.name;
    writeln!(out, "fio version 3 iolog\n0 {name} add\n0 {name} open")?;
    let mut at = 0_u64;
    while let Some(gap) = player.gap() {
        at = at.saturating_add(gap);
        if u128::from(at) >= lasts.as_nanos() {
            break;
        }
        let TraceIo { offset, len, read, .. } = player.io();
        let action = if read { "read" } else { "write" };
        writeln!(out, "{} {name} {action} {offset} {len}", at / 1000)?;
    }
    writeln!(out, "{} {name} close", at / 1000)
}
