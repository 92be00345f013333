//! From clients to a job file.

use std::io::{self, Write};
use std::time::Duration;

use parda_control::Bytes;

use super::job::{Job, JobTarget, UnsupportedByFio};
use crate::drawn::OPEN_LOOP_DEPTH;
use crate::load::ClientLoad;
use crate::trace::{Player, Replay, TraceIo};

/// A client to export.
#[derive(Clone, Copy, Debug)]
pub struct ExportedClient<'a> {
    /// Name of the client, which is its job's.
    pub name: &'a str,
    /// Size of the client's disk.
    pub disk: Bytes,
    /// IOs of the client.
    pub load: &'a ClientLoad,
    /// Seed of the numbers that the client draws, below 2³².
    pub seed: u64,
    /// Time at which the client starts.
    pub start: Duration,
    /// Time at which the client stops.
    pub stop: Duration,
}

/// Job file with one section for each client.
///
/// `target` gives the location of a client's disk by the client's name. A client that replays a trace
/// replays the log `NAME.iolog` in fio's working directory: see [`iolog`].
///
/// # Errors
/// A part of a workload that fio does not support, with the client's name.
pub fn job_file(
    clients: &[ExportedClient<'_>],
    target: impl Fn(&str) -> String,
) -> Result<String, (String, UnsupportedByFio)> {
    let job = |client: &ExportedClient<'_>| {
        job(client, &target(client.name)).map_err(|error| (client.name.to_owned(), error))
    };
    let jobs = clients.iter().map(job).collect::<Result<Vec<_>, _>>()?;
    sections(&jobs)
}

fn job(client: &ExportedClient<'_>, target: &str) -> Result<Job, UnsupportedByFio> {
    let ExportedClient { name, disk, load, seed, start, stop } = *client;
    let mut job = Job::new(name);
    job.target(JobTarget::of(target));
    match load {
        ClientLoad::Drawn(workload) => {
            job.load(workload, disk)?;
            job.set("time_based", 1);
            job.set("runtime", time(stop.saturating_sub(start)));
            job.set("randseed", seed);
        }
        ClientLoad::Replayed(_) => {
            job.set("size", disk.0);
            job.set("read_iolog", log_name(name));
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

/// Name of the log that a client of this name replays.
#[must_use]
pub fn log_name(client: &str) -> String {
    format!("{client}.iolog")
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

/// Writes the log that a client replays, in fio's format version 3, with the IOs that arrive within
/// this time. `chance`, in [0, 1), places the beginning of a replay that begins anywhere.
///
/// # Errors
/// The log cannot be written.
pub fn iolog(
    replay: &Replay,
    client: &ExportedClient<'_>,
    lasts: Duration,
    chance: f64,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut player = Player::new(replay, client.disk, chance);
    let name = client.name;
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
