//! Wall clocks that step while hosts work: nothing of control or IO rests on them.

use std::path::Path;
use std::time::{Duration, SystemTime};

use parda_agent::status::ExchangeStatus;
use parda_control::Source;
use parda_exchange::Liveness;
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

fn exchange(agent: &Agent) -> ExchangeStatus {
    agent.volume().exchange.unwrap_or_default()
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
    let stepped = 2;
    for (step, seconds) in [("+3600s", 3600), ("-3600s", -3600_i64)] {
        let ticks: Vec<_> = cluster.agents.iter().map(|agent| agent.volume().ticks).collect();
        cluster.stage.write("clock", step);
        // A reload has the agent say something, and so what time it is for it.
        cluster.agents[stepped].process.signal(Signal::HUP);
        let hour_is = Duration::from_secs(3600);
        let now = SystemTime::now();
        let there = hour(if seconds > 0 { now + hour_is } else { now - hour_is });
        until("the clock has stepped", || cluster.agents[stepped].process.log().contains(&there));
        until("ten periods pass", || {
            cluster.agents.iter().zip(&ticks).all(|(agent, before)| {
                let volume = agent.volume();
                assert_eq!(volume.source, Source::Cluster, "control falls back: {step}");
                volume.ticks > before + 10
            })
        });
        let live = |agent: &Agent| {
            exchange(agent).peers.iter().filter(|p| p.liveness == Liveness::Live).count()
        };
        assert!(cluster.agents.iter().all(|agent| live(agent) == 2), "all hear all: {step}");
    }
    cluster.shares_hold("after both steps");
    // An agent that starts anew with a clock that is behind is a run of its own, though its number is a smaller one.
    cluster.agents.remove(stepped).process.kill();
    drop(cluster.loads.remove(stepped));
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
