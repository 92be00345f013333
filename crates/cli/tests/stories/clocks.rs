//! Wall clocks that step while hosts work: nothing of control or IO rests on them.

use std::path::Path;
use std::time::{Duration, SystemTime};

use parda_control::Source;
use rustix::process::Signal;

use crate::exchange_udp::Cluster;
use crate::stage::{Agent, Stage, until};
use parda_testkit::disk::skipped;

/// libfaketime, which changes the wall clock of one process. Its monotonic clock stays.
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

/// The hour of a time, as the log has it: `2026-11-23T11`.
fn hour(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()[..13].to_owned()
}

/// The host whose clock steps.
const STEPPED: usize = 2;

/// Steps the clock so far from the machine's. Returns whether control rests on the cluster at each look while each host has ten periods.
fn step(cluster: &Cluster, seconds: i64) -> bool {
    let volumes = || cluster.agents.iter().map(Agent::volume).collect::<Vec<_>>();
    let before = volumes();
    cluster.stage.write("clock", format!("{seconds:+}s"));
    // A reload has the agent say something, and so what time it is for it.
    let agent = &cluster.agents[STEPPED].process;
    agent.signal(Signal::HUP);
    let (now, by) = (SystemTime::now(), Duration::from_secs(seconds.unsigned_abs()));
    let there = hour(if seconds > 0 { now + by } else { now - by });
    until("the clock has stepped", || agent.log().contains(&there));
    let mut quiet = true;
    until("ten periods pass", || {
        let now = volumes();
        quiet &= now.iter().all(|volume| volume.source == Source::Cluster);
        now.iter().zip(&before).all(|(now, before)| now.ticks > before.ticks + 10)
    });
    quiet
}

#[test]
fn a_clock_that_steps_by_an_hour_changes_nothing() {
    if !Path::new(LIBRARY).exists() {
        skipped("libfaketime is not there (Debian: apt install faketime)");
        return;
    }
    let stage = Stage::new();
    stage.write("clock", "+0");
    let clock = format!("FAKETIME_TIMESTAMP_FILE={}", stage.path("clock").display());
    let preload = format!("LD_PRELOAD={LIBRARY}");
    let wrapper =
        ["env", &preload, &clock, "FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1"];
    let mut cluster = Cluster::start_within(stage, "1", &wrapper);
    cluster.is_well("they hear each other");
    for seconds in [3600, -3600] {
        // A host that has no processor for three periods is not heard, whatever its clock does. A clock that matters parts hosts at each step.
        let quiet = (0..6).any(|_| {
            let quiet = step(&cluster, seconds);
            cluster.is_well("all hear all after the step");
            if !quiet {
                step(&cluster, 0);
                cluster.is_well("all hear all with the right clock");
            }
            quiet
        });
        assert!(quiet, "control falls back at each step of {seconds} s");
    }
    cluster.shares_hold("after both steps");
    // An agent that starts anew with a clock that is behind is a run of its own, though its number is a smaller one.
    cluster.agents.remove(STEPPED).process.kill();
    drop(cluster.loads.remove(STEPPED));
    let back = cluster.stage.restart(&wrapper, "c");
    cluster.agents.push(back);
    let load = cluster.load("c");
    cluster.loads.push(load);
    cluster.is_well("it is heard after a restart in the past");
    for agent in &cluster.agents {
        let log = agent.process.log();
        assert!(!log.contains("a name of its own"), "nobody is a twin: {log}");
    }
    cluster.loads.into_iter().for_each(|load| assert!(load.finish() > 0));
    cluster.agents.into_iter().for_each(Agent::stop);
}
