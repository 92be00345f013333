//! Tenants in random clusters whose demand moves between hosts: limits of tenants in each window of ten seconds.
//!
//! Each cluster follows from one seed, which is printed when it fails. `PARDA_SEED=N` begins with that one, `PARDA_TENANTS=N` tries so many, `PARDA_SHOW` prints them.

#![allow(clippy::print_stdout, reason = "it shows a cluster that failed")]

use std::fmt::Write as _;

use fastrand::Rng;
use parda_sim::{KeptRuns, run};

use super::common::parse;

/// Length of a run, and where the windows begin: a host that starts has not heard the others yet.
const END: u64 = 100;
const FIRST: u64 = 10;

/// Length of a window in which a limit holds.
const WINDOW: u64 = 10;

/// What a limit may be exceeded by while demand moves.
const OVER: f64 = 1.05;

fn number(variable: &str) -> Option<u64> {
    Some(std::env::var(variable).ok()?.parse().expect("it must be a number"))
}

/// The text of a cluster, and the limit of its tenant.
fn cluster(seed: u64) -> (String, f64) {
    let mut rng = Rng::with_seed(seed);
    let (limit, hosts) = (rng.u32(100..1500), rng.usize(2..7));
    let shares =
        if rng.bool() { format!("shares = {}\n", rng.u32(500..5000)) } else { String::new() };
    let udp = if rng.bool() { "[exchange]\ntransport = \"udp\"\n" } else { "" };
    let mut text = format!(
        "name = \"tenants\"\nseed = {seed}\nduration = \"{END}s\"\n\
         [array]\npreset = \"cx3-40-raid0\"\nraid = {{ level = \"raid10\", drives = 12 }}\n\
         [control]\nlatency_threshold = \"25ms\"\n{udp}\
         [[tenant]]\nname = \"gold\"\n{shares}limit = {{ iops = {limit} }}\n"
    );
    for host in 0..hosts {
        writeln!(text, "[[host]]\nname = \"h{host}\"").unwrap();
        for vm in 0..rng.usize(1..5) {
            let tenant = if vm == 0 || rng.bool() { "tenant = \"gold\"\n" } else { "" };
            let depth = 1 << rng.u32(0..7);
            let load = if rng.u32(0..3) > 0 {
                format!("outstanding = {depth}")
            } else {
                format!("rate = {}", rng.u32(10..600))
            };
            writeln!(
                text,
                "[[host.vm]]\nname = \"v{host}-{vm}\"\nshares = {}\n{tenant}disk = \"2GiB\"\n\
                 workload = {{ size = \"8KiB\", read = 70, random = 100, {load} }}",
                rng.u32(1..30) * 100
            )
            .unwrap();
            // It comes, goes, or stays.
            let start = if rng.bool() { rng.u64(0..END / 2) } else { 0 };
            writeln!(text, "start = \"{start}s\"").unwrap();
            if rng.bool() {
                writeln!(text, "stop = \"{}s\"", start + rng.u64(5..END / 2)).unwrap();
            }
        }
    }
    for window in FIRST..=END - WINDOW {
        let to = window + WINDOW;
        writeln!(text, "[[phase]]\nname = \"p{window}\"\nfrom = \"{window}s\"\nto = \"{to}s\"")
            .unwrap();
    }
    (text, limit.into())
}

/// The largest part of its limit that the tenant had in a window, with that window.
fn most(seed: u64) -> (f64, String) {
    let (text, limit) = cluster(seed);
    if std::env::var_os("PARDA_SHOW").is_some() {
        println!("{text}");
    }
    let scenario = parse(&text);
    let members: Vec<&str> = scenario
        .hosts
        .iter()
        .flat_map(|host| &host.vms)
        .filter(|vm| vm.settings.tenant.is_some())
        .map(|vm| vm.name.as_str())
        .collect();
    let answer = run(&scenario, KeptRuns::Nothing, |_| ()).unwrap().answer;
    // One IO of each host may be under way beyond the limit, and a few at each end of the window.
    let slack = scenario.hosts.len() as f64 * 2.0 / WINDOW as f64;
    let parts = answer.phases.iter().map(|phase| {
        let vms = phase.hosts.iter().flat_map(|host| &host.vms);
        let iops: f64 =
            vms.filter(|vm| members.contains(&vm.name.as_str())).map(|vm| vm.iops).sum();
        ((iops - slack) / limit, phase.name.clone())
    });
    parts.reduce(|one, other| if one.0 >= other.0 { one } else { other }).unwrap()
}

#[test]
fn a_limit_of_a_tenant_holds_in_any_ten_seconds_while_demand_moves() {
    let first = number("PARDA_SEED").unwrap_or(1);
    let count = number("PARDA_TENANTS").unwrap_or(12);
    let mut over = Vec::new();
    for seed in first..first + count {
        let (part, window) = most(seed);
        if part > OVER {
            over.push(format!("seed {seed}: {part:.3} of the limit in {window}"));
        }
    }
    assert!(over.is_empty(), "{} of {count}: {over:#?}", over.len());
}
