//! The scenarios that come with parda hold in virtual time, too; and a run is repeatable.
use crate::common;

use std::fs;
use std::path::Path;

use common::{answer, parse, scenario};
use parda_scenario::RunAnswer;
use parda_sim::{KeptRuns, run};

fn holds(name: &str) {
    let answer = answer(&scenario(name));
    assert!(answer.ok(), "{:#?}", answer.expectations);
}

#[test]
fn the_demo() {
    holds("demo.toml");
}

#[test]
fn static_windows() {
    holds("static-windows.toml");
}

#[test]
fn an_agent_is_killed() {
    holds("kill-agent.toml");
}

/// Faults of network, etcd and hosts, as `docs/faults.md` has them.
#[test]
fn faults() {
    for name in ["network-faults", "half-killed", "etcd-hangs", "rolling-upgrade"] {
        holds(&format!("lab/{name}.toml"));
    }
}

#[test]
fn an_outsider_comes_and_goes() {
    holds("lab/outsider.toml");
}

#[test]
fn a_reservation_and_a_limit_on_three_hosts() {
    holds("lab/guarantees.toml");
}

/// IOs that come in bursts of 100 ms each half second, which are a fifth of what a reservation of 100 IO/s would give in that time.
#[test]
fn a_client_whose_bursts_ask_for_less_than_its_reservation_is_not_short() {
    let text = r#"
        name = "bursts"
        title = "A client that works a fifth of the time"
        duration = "60s"
        [array]
        preset = "cx3-40-raid0-vms"
        raid = { drives = 4 }
        [[host]]
        name = "a"
        [[host.vm]]
        name = "db"
        shares = 100
        reservation = RESERVATION
        disk = "8GiB"
        workload = { size = "4KiB", read = 100, random = 100, outstanding = 16, on = "100ms", off = "400ms" }
        [[host.vm]]
        name = "hog"
        shares = 3000
        disk = "8GiB"
        workload = { size = "4KiB", read = 100, random = 100, outstanding = 64 }
        [[phase]]
        name = "all"
        from = "10s"
        to = "60s"
    "#;
    for reservation in ["100", "200"] {
        let scenario = parse(&text.replace("RESERVATION", reservation));
        let series = run(&scenario, KeptRuns::All, |_| ()).unwrap().series.unwrap();
        let short = series.hosts[0].short.iter().filter(|short| !short.is_empty()).count();
        assert_eq!(short, 0, "seconds, of a reservation of {reservation} IO/s");
    }
}

/// What kernels do in the laboratory, by the model of one: all that is there.
#[test]
fn guests() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/guests");
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<String> = names.map(|name| format!("guests/{}", name.display())).collect();
    assert!(!names.is_empty());
    names.iter().for_each(|name| holds(name));
}

fn seeded(seed: u64) -> RunAnswer {
    let mut scenario = scenario("demo.toml");
    scenario.seed = seed;
    answer(&scenario)
}

#[test]
fn a_seed_gives_the_same_answer_to_the_bit() {
    let json = |answer: &RunAnswer| serde_json::to_string(answer).unwrap();
    assert_eq!(json(&seeded(7)), json(&seeded(7)));
}

#[test]
fn another_seed_gives_another_answer_that_holds_as_well() {
    let (one, other) = (seeded(7), seeded(8));
    assert_ne!(one.phases, other.phases);
    assert!(one.ok() && other.ok());
    let iops = |answer: &RunAnswer| answer.phases[1].total.iops;
    assert!((iops(&one) / iops(&other) - 1.0).abs() < 0.02);
}

#[test]
fn a_series_adds_up_to_what_the_phases_say() {
    let scenario = scenario("demo.toml");
    let outcome = run(&scenario, KeptRuns::All, |_| ()).unwrap();
    let series = outcome.series.unwrap();
    assert_eq!(series.at, (1..=60).map(f64::from).collect::<Vec<_>>());
    let phase = &outcome.answer.phases[1];
    for (host, said) in series.hosts.iter().zip(&phase.hosts) {
        assert_eq!(host.name, said.name);
        // The intervals that end after 32 s and up to 60 s.
        let iops = host.iops[32..60].iter().sum::<f64>() / 28.0;
        assert!((iops - said.iops).abs() < 1e-6, "{iops} {}", said.iops);
        assert!(host.window[..20].iter().all(Option::is_none), "no control for 20 s");
        assert!(host.window[20..].iter().all(Option::is_some));
    }
}
