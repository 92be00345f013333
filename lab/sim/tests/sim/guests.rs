//! Hosts whose kernel's queue is steered: what the laboratory of real kernels shows within a tenth,
//! more closely, and what only virtual time has the time for.
use crate::common;

use common::{answer, parse};
use parda_scenario::PhaseAnswer;

/// A host with one VM of these shares, that keeps 48 IOs under way.
fn host(name: &str, shares: u32, more: &str) -> String {
    format!(
        "[[host]]\nname = \"{name}\"\n{more}\n[[host.vm]]\nname = \"{name}-vm\"\n\
         shares = {shares}\ndisk = \"16GiB\"\n\
         workload = {{ size = \"16KiB\", read = 100, random = 100, outstanding = 48 }}\n"
    )
}

fn guest(name: &str, shares: u32) -> String {
    host(name, shares, "kind = \"guest\"")
}

/// A run of so many seconds on so many drives that serve in order, some 12 ms an IO each.
fn run(drives: u32, secs: u32, control: &str, hosts: &[String], more: &str) -> Vec<PhaseAnswer> {
    answer(&parse(&format!(
        "name = \"guests\"\nduration = \"{secs}s\"\n[array]\npreset = \"drive-7200\"\n\
         raid = {{ drives = {drives} }}\ndrive = {{ queue_depth = 1, scheduling = \"fcfs\" }}\n\
         [control]\nlatency_threshold = \"30ms\"\nperiod = \"500ms\"\nwindow_max = 64\n{control}\n\
         [exchange]\nslots = 16\n{}{more}",
        hosts.concat()
    )))
    .phases
}

/// A phase of that name.
fn phase(name: &str, from: u32, to: u32) -> String {
    format!("[[phase]]\nname = \"{name}\"\nfrom = \"{from}s\"\nto = \"{to}s\"\n")
}

/// From twenty periods after the start on.
fn steady(to: u32) -> String {
    phase("steady", 10, to)
}

fn near(measured: f64, want: f64, tolerance: f64, what: &str) {
    let off = (measured / want - 1.0).abs();
    assert!(off <= tolerance, "{what}: {measured:.3}, not {want:.3} ({:.1} % off)", off * 100.0);
}

/// Each host has its part of all IOs by its shares, and the threshold is met.
fn shared(phase: &PhaseAnswer, tolerance: f64) {
    near(phase.total.device_latency_ms.unwrap(), 30.0, tolerance, "latency");
    let all: u32 = phase.hosts.iter().map(|host| host.shares).sum();
    for host in &phase.hosts {
        let want = phase.total.iops * f64::from(host.shares) / f64::from(all);
        near(host.iops, want, tolerance, &host.name);
    }
}

#[test]
fn depths_by_hand_give_throughput_in_proportion() {
    let by_hand = |name, depth| {
        let more = format!("kind = \"guest\"\nguest = {{ queue_depth = {depth} }}\noutside = true");
        host(name, 1, &more)
    };
    let phases = run(4, 60, "", &[by_hand("a", 8), by_hand("b", 4)], &steady(60));
    let [a, b] = &phases[0].hosts[..] else { panic!("{phases:?}") };
    near(a.iops / b.iops, 2.0, 0.03, "8 over 4");
    near(a.outstanding, 8.0, 0.01, "all that it may");
    near(b.outstanding, 4.0, 0.01, "all that it may");
}

#[test]
fn guests_reach_their_shares_and_the_threshold_in_twenty_periods() {
    for shares in [&[2000, 1000][..], &[1000, 1000, 2000, 2000]] {
        // Of what these issue 10 IOs are at the array, of what a guest's own NBD client issues all are.
        for (disk, drives) in [("scsi", 3), ("iscsi", 3), ("nbd", 8)] {
            let more = format!("kind = \"guest\"\nguest = {{ disk = \"{disk}\" }}");
            let hosts = shares.iter().enumerate().map(|(i, s)| host(&format!("g{i}"), *s, &more));
            let hosts: Vec<String> = hosts.collect();
            // Soon, and for as long as the laboratory looks; and for long, more closely.
            let phases = phase("soon", 10, 20) + &phase("long", 20, 200);
            let phases = run(drives, 200, "", &hosts, &phases);
            shared(&phases[0], 0.10);
            shared(&phases[1], 0.04);
        }
    }
}

#[test]
fn a_depth_that_changes_with_ticks_only_does_too() {
    let nbd = |name, shares| host(name, shares, "kind = \"guest\"\nguest = { disk = \"nbd\" }");
    let phases = run(8, 200, "", &[nbd("a", 2000), nbd("b", 1000)], &steady(200));
    shared(&phases[0], 0.04);
}

#[test]
fn a_guest_that_dies_leaves_its_share_and_takes_it_back() {
    let events = "[[event]]\nat = \"40s\"\nhost = \"b\"\ndo = \"kill\"\n\
                  [[event]]\nat = \"80s\"\nhost = \"b\"\ndo = \"start\"\n";
    let phases = phase("before", 10, 40) + &phase("alone", 50, 80) + &phase("after", 90, 120);
    let phases = run(3, 120, "", &[guest("a", 2000), guest("b", 1000)], &(phases + events));
    shared(&phases[0], 0.06);
    // Its window is 13.5, and what is more than ten of these IOs waits before the array.
    near(phases[1].total.device_latency_ms.unwrap(), 30.0 * 10.0 / 13.5, 0.06, "latency alone");
    near(phases[1].hosts[0].iops, phases[0].total.iops, 0.06, "all that the array gives");
    shared(&phases[2], 0.06);
}

#[test]
fn guests_and_hosts_that_serve_share_by_their_shares() {
    let hosts = [guest("a", 2000), host("b", 1000, ""), host("c", 500, ""), guest("d", 500)];
    let phases = run(4, 200, "", &hosts, &steady(200));
    shared(&phases[0], 0.05);
}

#[test]
fn a_light_guest_keeps_what_it_asks_for_and_the_others_share_the_rest() {
    let light = guest("light", 2000).replace("outstanding = 48", "outstanding = 2");
    let phases = run(3, 200, "", &[light, guest("a", 2000), guest("b", 1000)], &steady(200));
    let [light, a, b] = &phases[0].hosts[..] else { panic!("{phases:?}") };
    near(light.outstanding, 2.0, 0.02, "what it asks for");
    near(a.iops / b.iops, 2.0, 0.05, "what the others have");
    near(phases[0].total.device_latency_ms.unwrap(), 30.0, 0.05, "latency");
}

/// Sixteen guests at one drive, which meets the threshold with two IOs: no queue can be held to that.
#[test]
fn windows_below_the_least_depth_are_as_small_as_can_be_and_the_threshold_is_not_met() {
    let hosts: Vec<String> = (0..16).map(|i| guest(&format!("g{i}"), 1000)).collect();
    let phases = run(1, 120, "", &hosts, &steady(120));
    for host in &phases[0].hosts {
        assert!(host.window.unwrap() < 0.5, "{host:?}");
        assert!(host.outstanding <= 1.01, "{host:?}");
        near(host.iops, phases[0].total.iops / 16.0, 0.02, "all alike");
    }
    assert!(phases[0].total.device_latency_ms.unwrap() > 100.0);
}

#[test]
fn guests_that_observe_are_as_if_nobody_looked() {
    // A period at which the exchange is less than 1 % of the array's IOs, so that no mode lengthens it.
    let hosts = |mode: &str| {
        let more = format!("kind = \"guest\"\ncontrol = {{ mode = \"{mode}\", period = \"2s\" }}");
        [host("a", 2000, &more), host("b", 1000, &more)]
    };
    let [observe, off] = ["observe", "off"].map(|mode| run(4, 60, "", &hosts(mode), &steady(60)));
    assert_eq!(observe, off);
    assert!(observe[0].hosts.iter().all(|host| host.window.is_none()));
}
