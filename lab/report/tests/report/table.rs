//! The text tables of an answer.

use std::time::Duration;

use parda_report::table;
use parda_report::table::missed;
use parda_scenario::shares::Unit;
use parda_scenario::{
    Distribution, Engine, HostAnswer, Phase, PhaseAnswer, RunAnswer, Verdict, VmAnswer,
};

fn times(mean: f64) -> Distribution {
    Distribution { mean, stddev: 1.0, p50: mean, p99: 2.0 * mean, max: 3.0 * mean }
}

fn vm(name: &str, shares: u32, iops: f64) -> VmAnswer {
    VmAnswer {
        name: name.to_owned(),
        shares,
        saturated: true,
        ran: true,
        iops,
        mib_per_s: iops / 64.0,
        slots_per_s: None,
        latency_ms: Some(times(40.0)),
        held_ms: Some(times(10.0)),
        device_ms: Some(30.0),
    }
}

fn host(name: &str, device_ms: f64, vms: Vec<VmAnswer>) -> HostAnswer {
    let iops = vms.iter().map(|v| v.iops).sum();
    HostAnswer {
        name: name.to_owned(),
        outside: false,
        shares: vms.iter().map(|v| v.shares).sum(),
        unit: Unit::Ios,
        beta: 1.5,
        settled_s: Some(device_ms / 10.0),
        window: Some(12.0),
        outstanding: iops * device_ms / 1e3,
        iops,
        mib_per_s: iops / 64.0,
        device_latency_ms: Some(times(device_ms)),
        vms,
    }
}

fn phase(name: &str, hosts: Vec<HostAnswer>) -> PhaseAnswer {
    let (from, to) = (Duration::from_secs(1), Duration::from_millis(2500));
    PhaseAnswer::new(&Phase { name: name.to_owned(), from, to }, hosts)
}

/// Shares 3 : 1 on two hosts; the first host has two VMs at 2 : 1.
fn phases() -> Vec<PhaseAnswer> {
    let uneven = vec![
        host("a", 50.0, vec![vm("db", 2000, 200.0), vm("web", 1000, 200.0)]),
        host("b", 70.0, vec![vm("batch", 1000, 600.0)]),
    ];
    let even = vec![
        host("a", 30.0, vec![vm("db", 2000, 480.0), vm("web", 1000, 240.0)]),
        host("b", 31.0, vec![vm("batch", 1000, 240.0)]),
    ];
    vec![phase("before", uneven), phase("after", even)]
}

fn verdict(what: &str, ok: bool, exempt: Option<&str>) -> Verdict {
    Verdict {
        what: what.to_owned(),
        source: "a paper".to_owned(),
        expected: 40.0,
        measured: Some(30.25),
        tolerance: "10%".to_owned(),
        ok,
        exempt: exempt.map(str::to_owned),
    }
}

fn answer(expectations: Vec<Verdict>) -> RunAnswer {
    let scenario = "small".to_owned();
    RunAnswer { scenario, engine: Engine::Lab, seed: 3, phases: phases(), expectations }
}

#[test]
fn phases_stand_side_by_side_with_a_verdict_for_each_expectation() {
    let fair = Verdict {
        expected: 0.98,
        measured: Some(1.0),
        tolerance: "at least".to_owned(),
        ..verdict("after/total/fairness", true, None)
    };
    let answer = answer(vec![fair, verdict("after/total/device_latency_ms", false, None)]);
    let text = table(&answer, false);
    println!("{text}");
    assert!(text.starts_with("small: real processes in real time, seed 3\n"));
    assert!(!text.contains('\x1b') && table(&answer, true).contains('\x1b'));
    let row = |name: &str| -> Vec<&str> {
        text.lines()
            .find(|l| l.trim_start().starts_with(name))
            .unwrap_or_default()
            .split_whitespace()
            .collect()
    };
    assert_eq!(
        row("web"),
        ["web", "1000", "200", "80%", "40.0", "/", "80", "240", "100%", "40.0", "/", "80"]
    );
    // A host with one VM has one row.
    assert_eq!(row("b batch")[..5], ["b", "batch", "1000", "600", "240%"]);
    assert_eq!(row("all")[..2], ["all", "1000"]);
    assert_eq!(row("ok")[..4], ["ok", "after/total/fairness", "1.000", "at"]);
    assert_eq!(row("FAIL")[..5], ["FAIL", "after/total/device_latency_ms", "30.2", "40", "±10%"]);
    assert!(text.trim_end().ends_with("1 passed, 1 missed, 0 exempt"));
    let said = |words: &str| assert!(text.contains(words), "{words} in {text}");
    said(
        "before: shares are not kept, batch gets 240 % of its share and db 40 %. An IO takes 62 ms",
    );
    said("after: shares are kept, every VM within 0 %. An IO takes 30 ms");
    said("Throughput: 96 % of before.");
}

#[test]
fn variants_have_a_row_for_each_phase() {
    let mut answer = answer(Vec::new());
    for phase in &mut answer.phases {
        phase.variant = Some("both".to_owned());
        phase.name = format!("both.{}", phase.name);
    }
    let text = table(&answer, false);
    let row = |line: &str| line.split_whitespace().take(4).eq(["both", "after", "2", "960"]);
    assert!(text.lines().any(row), "{text}");
}

#[test]
fn what_is_exempt_has_neither_passed_nor_failed() {
    let answer = answer(vec![
        verdict("p/total/kept", true, None),
        verdict("p/total/kept_and_exempt", true, Some("it contradicts itself")),
        verdict("p/total/missed_and_exempt", false, Some("the paper's own sum differs")),
        verdict("p/total/missed", false, None),
    ]);
    let text = table(&answer, false);
    assert!(text.contains("1 passed, 1 missed, 2 exempt"), "{text}");
    assert!(text.contains("a paper; the paper's own sum differs"), "{text}");
    assert!(!text.contains("ok      p/total/kept_and_exempt"), "{text}");
    let brief = missed(&answer, false);
    assert!(brief.contains("p/total/missed ") && !brief.contains("exempt  "), "{brief}");
    assert!(brief.ends_with("small: 1 passed, 1 missed, 2 exempt\n"), "{brief}");
}
