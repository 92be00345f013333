//! Workloads beyond the plain closed loop: open loops, bursts, mixes of sizes, hot parts.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a panic is how a test fails")]

use crate::common;

use common::{answer, parse};
use parda_scenario::{Distribution, PhaseAnswer, Scenario, VmAnswer};

/// One drive that does one IO after the other, in their order, and a host with these VMs.
fn scenario(seconds: u32, control: &str, workloads: &[&str], phases: &[(u32, u32)]) -> Scenario {
    let mut text = format!(
        "name = \"one-drive\"\nduration = \"{seconds}s\"\n\
         [array]\npreset = \"drive-7200\"\ndrive = {{ queue_depth = 1 }}\n\
         [control]\n{control}\n[[host]]\nname = \"a\"\n"
    );
    for (i, workload) in workloads.iter().enumerate() {
        text += &format!(
            "[[host.vm]]\nname = \"v{i}\"\nshares = 1000\ndisk = \"16GiB\"\n\
             workload = {{ read = 100, random = 100, {workload} }}\n"
        );
    }
    for (from, to) in phases {
        text +=
            &format!("[[phase]]\nname = \"p{from}-{to}\"\nfrom = \"{from}s\"\nto = \"{to}s\"\n");
    }
    parse(&text)
}

fn phases(scenario: &Scenario) -> Vec<PhaseAnswer> {
    answer(scenario).phases
}

fn vm(phase: &PhaseAnswer, index: usize) -> &VmAnswer {
    &phase.hosts[0].vms[index]
}

fn near(is: f64, should: f64, by: f64) {
    assert!((is / should - 1.0).abs() <= by, "{is} is not within {by} of {should}");
}

const OFF: &str = "mode = \"off\"";
const ONE: &str = "size = \"4KiB\", outstanding = 1";

/// One after the other, by chance: an M/G/1 queue, whose mean wait is known (Pollaczek, Khinchine).
#[test]
fn an_open_loop_at_half_load_waits_as_queueing_theory_says() {
    let service = phases(&scenario(4000, OFF, &[ONE], &[(0, 4000)]));
    let Distribution { mean, stddev, .. } = vm(&service[0], 0).latency_ms.unwrap();
    let rate = (0.5 / (mean / 1e3)).round();
    let open = format!("size = \"4KiB\", rate = {rate}");
    let open = phases(&scenario(4000, OFF, &[&open], &[(100, 4000)]));
    let load = rate * mean / 1e3;
    let wait = load * (mean * mean + stddev * stddev) / (2.0 * mean * (1.0 - load));
    println!("service {mean:.2} ± {stddev:.2} ms, {rate} IOs a second, wait {wait:.2} ms");
    near(open[0].total.iops, rate, 0.01);
    near(vm(&open[0], 0).latency_ms.unwrap().mean, mean + wait, 0.03);
    assert!(!vm(&open[0], 0).saturated, "it gets all that it asks for");
}

/// The array can do a hundredth of it. What waits outside is a number, not memory.
#[test]
fn an_open_loop_beyond_the_array_becomes_a_closed_one() {
    let fixed = "mode = \"static\"\nwindow_max = 8";
    let open = phases(&scenario(300, fixed, &["size = \"4KiB\", rate = 10000"], &[(100, 300)]));
    let vm = vm(&open[0], 0);
    // Little's law, with 1,024 under way.
    near(vm.latency_ms.unwrap().mean * vm.iops / 1e3, 1024.0, 0.02);
    assert!(vm.saturated && vm.iops < 200.0, "{vm:?}");
}

/// IOs wait behind one another, but the client has all that it asks for.
#[test]
fn an_open_loop_that_is_held_is_not_saturated_while_it_has_its_rate() {
    let one = "mode = \"static\"\nwindow_max = 1";
    let open = phases(&scenario(300, one, &["size = \"4KiB\", rate = 50"], &[(100, 300)]));
    let vm = vm(&open[0], 0);
    near(vm.iops, 50.0, 0.05);
    let (all, held) = (vm.latency_ms.unwrap().mean, vm.held_ms.unwrap().mean);
    assert!(held > 0.2 * all && !vm.saturated, "{vm:?}");
}

#[test]
fn a_burst_is_the_whole_client_and_between_bursts_there_is_nothing() {
    let closed = "size = \"4KiB\", outstanding = 8";
    let bursts = format!("{closed}, on = \"20s\", off = \"30s\"");
    let fixed = "mode = \"static\"\nwindow_max = 4";
    let plain = phases(&scenario(20, fixed, &[closed], &[(0, 20)]));
    let edges = [(0, 20), (21, 50), (52, 68), (0, 100)];
    let parts = phases(&scenario(100, fixed, &[&bursts], &edges));
    let iops = |phase: usize| parts[phase].total.iops;
    assert_eq!(iops(0), plain[0].total.iops);
    assert_eq!((iops(1), parts[1].total.device_latency_ms), (0.0, None));
    near(iops(2), iops(0), 0.05);
    near(iops(3), 0.4 * iops(0), 0.02);
    // It wants more in a burst, and not in between.
    let saturated: Vec<bool> = parts.iter().map(|part| vm(part, 0).saturated).collect();
    assert_eq!(saturated, [true, false, true, false]);
}

#[test]
fn an_open_loop_in_bursts_has_its_rate_in_each() {
    let bursts = "size = \"4KiB\", rate = 40, on = \"1s\", off = \"3s\"";
    let parts = phases(&scenario(2000, OFF, &[bursts], &[(0, 2000)]));
    near(parts[0].total.iops, 10.0, 0.02);
}

#[test]
fn sizes_make_their_mean_and_large_ones_take_longer() {
    let mix = "sizes = { \"4KiB\" = 75, \"256KiB\" = 25 }, outstanding = 1";
    let parts = [ONE, mix].map(|workload| phases(&scenario(500, OFF, &[workload], &[(0, 500)])));
    let [one, mixed] = parts.each_ref().map(|phases| &phases[0].total);
    near(mixed.mib_per_s * 1024.0 / mixed.iops, 0.75 * 4.0 + 0.25 * 256.0, 0.02);
    assert!(mixed.iops < 0.98 * one.iops, "{} {}", mixed.iops, one.iops);
}

#[test]
fn a_hot_part_saves_seeks() {
    let hot = format!("{ONE}, hot = {{ part = 1, hits = 95 }}");
    let parts = [ONE, &hot].map(|workload| phases(&scenario(500, OFF, &[workload], &[(0, 500)])));
    let [anywhere, hot] = parts.each_ref().map(|phases| phases[0].total.iops);
    assert!(hot > 1.05 * anywhere, "{hot} {anywhere}");
}

#[test]
fn all_of_it_together_gives_the_same_answer_to_the_bit() {
    let workloads = [
        "sizes = { \"4KiB\" = 60, \"64KiB\" = 40 }, rate = 25, on = \"1500ms\", off = \"700ms\"",
        "size = \"8KiB\", outstanding = 4, on = \"2s\", off = \"1s\", hot = { part = 5, hits = 80 }",
        "size = \"16KiB\", rate = 30",
    ];
    let json = || {
        let scenario = scenario(120, "latency_threshold = \"40ms\"", &workloads, &[(10, 120)]);
        serde_json::to_string(&answer(&scenario)).unwrap()
    };
    assert_eq!(json(), json());
}
