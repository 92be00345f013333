//! Tests of the answer: its numbers and its JSON.

use std::time::Duration;

use parda_config::Document;
use parda_scenario::count::settled;
use parda_scenario::expectation::Tally;
use parda_scenario::shares::{Unit, fairness, host_errors, host_parts, jain, saturated, vm_errors};
use parda_scenario::{
    Distribution, Engine, HostAnswer, Phase, PhaseAnswer, RunAnswer, Scenario, Verdict, VmAnswer,
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
    let phase = Phase {
        name: name.to_owned(),
        from: Duration::from_secs(1),
        to: Duration::from_millis(2500),
    };
    PhaseAnswer::new(&phase, hosts)
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

#[test]
fn jains_index_is_one_for_equals_and_one_nth_for_a_monopoly() {
    assert_eq!(jain(&[3.0, 3.0, 3.0]), Some(1.0));
    assert_eq!(jain(&[4.0, 0.0, 0.0, 0.0]), Some(0.25));
    assert!((jain(&[1.0, 2.0]).unwrap() - 0.9).abs() < 1e-12);
    assert_eq!((jain(&[]), jain(&[0.0])), (None, None));
}

#[test]
fn totals_follow_from_hosts() {
    let [before, after] = phases().try_into().unwrap();
    assert_eq!(after.total.iops, 960.0);
    assert_eq!(after.total.mib_per_s, 15.0);
    assert_eq!(after.total.device_latency_ms, Some((30.0 * 720.0 + 31.0 * 240.0) / 960.0));
    assert_eq!(after.total.fairness, Some(1.0));
    // x = 400 / 3000 and 600 / 1000.
    let (x, y) = (400.0 / 3000.0, 0.6);
    let jain: f64 = (x + y) * (x + y) / (2.0 * (x * x + y * y));
    assert!((before.total.fairness.unwrap() - jain).abs() < 1e-12);
}

#[test]
fn share_errors_are_relative_to_the_share() {
    let [before, after] = phases().try_into().unwrap();
    assert!(host_errors(&after.hosts, None).values().all(|e| e.abs() < 1e-12));
    // 400 of 1000 IOPS for 3 of 4 shares; 600 for 1 of 4.
    let errors = host_errors(&before.hosts, None);
    assert!((errors["a"] - 7.0 / 15.0).abs() < 1e-12 && (errors["b"] - 1.4).abs() < 1e-12);
    let errors = vm_errors(&before.hosts, None);
    assert!((errors["db"] - 0.6).abs() < 1e-12 && (errors["web"] - 0.2).abs() < 1e-12);
}

#[test]
fn who_wants_less_than_its_share_is_not_judged() {
    let mut hosts = phases().remove(1).hosts;
    hosts[0].vms[1].saturated = false;
    hosts[0].vms[1].iops = 1.0;
    assert_eq!(phase("p", hosts.clone()).total.fairness, Some(1.0));
    assert!(!vm_errors(&hosts, None).contains_key("web"));
    hosts.iter_mut().flat_map(|h| &mut h.vms).for_each(|vm| vm.saturated = false);
    assert_eq!(phase("p", hosts).total.fairness, None);
}

#[test]
fn who_is_hardly_ever_held_is_not_saturated() {
    let (all, window) = (times(40.0), Some(8.0));
    assert!(saturated(true, window, Some(&all), Some(&times(4.0))));
    assert!(!saturated(true, window, Some(&all), Some(&times(3.9))));
    assert!(!saturated(false, window, Some(&all), Some(&times(20.0))));
    assert!(!saturated(true, window, None, None));
    // Without a window no IO is held.
    assert!(saturated(true, None, Some(&all), Some(&times(0.0))));
}

#[test]
fn a_window_has_settled_from_when_it_stays_near_where_it_ends() {
    let windows = |values: [f64; 9]| values.into_iter().enumerate().map(|(s, w)| (s as f64, w));
    let of = |values| settled(&windows(values).collect::<Vec<_>>(), 9.0);
    assert_eq!(of([10.0; 9]), Some(0.0));
    assert_eq!(of([20.0, 15.0, 11.2, 10.0, 10.9, 10.0, 10.0, 10.0, 10.0]), Some(3.0));
    // The window returns to its former value: it had not settled before.
    assert_eq!(of([10.0, 10.0, 10.0, 15.0, 10.0, 10.0, 10.0, 10.0, 10.0]), Some(4.0));
    // The window never settles: the time is the length of the phase.
    assert_eq!(of([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]), Some(9.0));
    assert_eq!(settled(&[(1.0, 10.0)], 9.0), None);
}

fn scenario(expectations: &str) -> Scenario {
    let text = format!(
        "name = \"small\"\nseed = 3\nduration = \"10s\"\n[array]\npreset = \"cx3-40-raid0\"\n{}{}{}{}",
        "[[host]]\nname = \"a\"\n[[host.vm]]\nname = \"db\"\nshares = 2000\ndisk = \"1GiB\"\n\
         workload = { size = \"16KiB\", read = 100, random = 100, outstanding = 32 }\n\
         [[host.vm]]\nname = \"web\"\nshares = 1000\ndisk = \"1GiB\"\n\
         workload = { size = \"16KiB\", read = 100, random = 100, outstanding = 32 }\n",
        "[[host]]\nname = \"b\"\n[[host.vm]]\nname = \"batch\"\nshares = 1000\ndisk = \"1GiB\"\n\
         workload = { size = \"16KiB\", read = 100, random = 100, outstanding = 32 }\n",
        "[[phase]]\nname = \"before\"\nfrom = \"1s\"\nto = \"2s\"\n\
         [[phase]]\nname = \"after\"\nfrom = \"3s\"\nto = \"4s\"\n",
        expectations,
    );
    Scenario::parse(&Document::new("small.toml", text)).expect("a scenario")
}

/// Measured value of an expectation, and whether it holds.
fn judge(expectation: &str) -> (Option<f64>, bool) {
    let text = format!("[[expect]]\nsource = \"here\"\n{expectation}\n");
    let answer = RunAnswer::new(&scenario(&text), Engine::Lab, phases());
    assert_eq!(answer.ok(), answer.expectations[0].ok);
    (answer.expectations[0].measured, answer.expectations[0].ok)
}

#[test]
fn expectations_are_judged_by_what_was_measured() {
    let near = |path: &str, expected: f64, tolerance: &str| {
        judge(&format!("what = \"{path}\"\nexpected = {expected}\ntolerance = {tolerance}"))
    };
    assert_eq!(near("after/total/iops", 1000.0, "\"4%\""), (Some(960.0), true));
    assert_eq!(near("after/total/iops", 1000.0, "\"3.9%\""), (Some(960.0), false));
    assert_eq!(near("after/total/iops", 1000.0, "40"), (Some(960.0), true));
    assert_eq!(near("after/total/iops", 1000.0, "39"), (Some(960.0), false));
    let of = "what = \"after/total/iops\"\nof = \"before/total/iops\"\n";
    assert_eq!(judge(&format!("{of}at_least = \"96%\"")), (Some(0.96), true));
    assert_eq!(judge(&format!("{of}at_least = 0.97")), (Some(0.96), false));
    assert_eq!(judge(&format!("{of}at_most = 0.95")), (Some(0.96), false));
}

#[test]
fn every_kind_of_path_finds_its_number() {
    for (path, value) in [
        ("before/total/device_latency_ms", 62.0),
        ("after/total/fairness", 1.0),
        ("after/host/b/window", 12.0),
        ("after/host/b/beta", 1.5),
        ("before/host/b/settled_s", 7.0),
        ("before/total/settled_s", 7.0),
        ("before/total/mb_per_s", 15.625 * 1.048_576),
        ("largest/total/device_latency_ms", 62.0),
        ("smallest/host/a/iops", 400.0),
        ("largest.after/vm/db/iops", 480.0),
        ("after/host/b/device_latency_ms", 31.0),
        ("after/host/b/device_latency_ms/p99", 62.0),
        ("before/host/b/share_error", 1.4),
        ("before/hosts/max_share_error", 1.4),
        ("before/vms/max_share_error", 1.4),
        ("before/vm/web/iops", 200.0),
        ("before/vm/web/latency_ms/max", 120.0),
        ("before/vm/web/held_ms", 10.0),
    ] {
        let near = format!("what = \"{path}\"\nexpected = {value}\ntolerance = 1e-9");
        assert!(judge(&near).1, "{path}: {:?}", judge(&near));
    }
}

#[test]
fn what_was_not_measured_holds_no_expectation() {
    let expectation =
        "[[expect]]\nsource = \"here\"\nwhat = \"after/vm/db/latency_ms\"\nat_most = 99\n";
    let mut phases = phases();
    phases[1].hosts[0].vms[0].latency_ms = None;
    let answer = RunAnswer::new(&scenario(expectation), Engine::Lab, phases);
    assert_eq!((answer.expectations[0].measured, answer.ok()), (None, false));
}

const EXPECTATIONS: &str = "[[expect]]\nwhat = \"after/total/fairness\"\nat_least = 0.98\n\
    source = \"docs\"\n[[expect]]\nwhat = \"after/total/device_latency_ms\"\nexpected = 40\n\
    tolerance = \"10%\"\nsource = \"FAST '09\"\n";

#[test]
fn the_json_has_the_documented_shape() {
    let phase = phases().remove(1);
    let answer = RunAnswer::new(&scenario(EXPECTATIONS), Engine::Lab, vec![phase]);
    let times = |mean: f64| serde_json::to_value(times(mean)).unwrap();
    let vm = |name: &str, shares: u32, iops: f64| {
        serde_json::json!({
            "name": name, "shares": shares, "saturated": true, "ran": true, "iops": iops,
            "mib_per_s": iops / 64.0, "latency_ms": times(40.0), "held_ms": times(10.0), "device_ms": 30.0,
        })
    };
    let want = serde_json::json!({
        "scenario": "small", "engine": "lab", "seed": 3,
        "phases": [{
            "name": "after", "from": 1.0, "to": 2.5,
            "total": {
                "iops": 960.0, "mib_per_s": 15.0, "device_latency_ms": 30.25, "fairness": 1.0,
                "fairness_slots": answer.phases[0].total.fairness_slots, "settled_s": 3.1
            },
            "hosts": [
                {
                    "name": "a", "shares": 3000, "beta": 1.5, "window": 12.0, "settled_s": 3.0,
                    "outstanding": 21.6,
                    "iops": 720.0, "mib_per_s": 11.25, "device_latency_ms": times(30.0),
                    "vms": [vm("db", 2000, 480.0), vm("web", 1000, 240.0)],
                },
                {
                    "name": "b", "shares": 1000, "beta": 1.5, "window": 12.0, "settled_s": 3.1,
                    "outstanding": 7.44,
                    "iops": 240.0, "mib_per_s": 3.75, "device_latency_ms": times(31.0),
                    "vms": [vm("batch", 1000, 240.0)],
                },
            ],
        }],
        "expectations": [
            {
                "what": "after/total/fairness", "source": "docs", "expected": 0.98,
                "measured": 1.0, "tolerance": "at least", "ok": true,
            },
            {
                "what": "after/total/device_latency_ms", "source": "FAST '09", "expected": 40.0,
                "measured": 30.25, "tolerance": "10%", "ok": false,
            },
        ],
    });
    assert_eq!(serde_json::to_value(&answer).unwrap(), want);
    assert_eq!(serde_json::from_value::<RunAnswer>(want).unwrap(), answer);
}

#[test]
fn who_has_more_than_its_share_is_judged_whether_it_wants_more_or_not() {
    let mut hosts = phases().remove(1).hosts;
    // It has all that it wants, ten times what it may have, and nothing of it is held.
    hosts[1].vms[0].saturated = false;
    hosts[1].vms[0].iops = 2400.0;
    assert!(phase("p", hosts.clone()).total.fairness.unwrap() < 0.7);
    let parts = host_parts(&hosts, None);
    assert!(parts["b"] > 3.0 && parts["a"] < 0.5, "{parts:?}");
    // A client that did not work all the time, or is outside control, has no share to be judged by.
    hosts[1].vms[0].ran = false;
    assert_eq!(phase("p", hosts).total.fairness, Some(1.0));
}

#[test]
fn shares_are_judged_in_the_unit_that_they_divide() {
    let mut hosts = phases().remove(1).hosts;
    // As many IOs as its shares say, each of them four times as large.
    hosts[1].vms[0].mib_per_s *= 4.0;
    assert_eq!(fairness(&hosts, None), Some(1.0));
    hosts.iter_mut().for_each(|host| host.unit = Unit::Bytes);
    assert!(fairness(&hosts, None).unwrap() < 0.8);
    assert!(host_errors(&hosts, None)["b"] > 1.0);
    // What one host with few shares was told makes no difference.
    hosts[0].unit = Unit::Ios;
    assert_eq!(fairness(&hosts, None), Some(1.0));
    // Slots: of IOs that stay at the array twice as long.
    hosts[1].vms[0].latency_ms = Some(times(70.0));
    assert!(fairness(&hosts, Some(Unit::Slots)).unwrap() < 0.95);
    assert_eq!(phase("p", hosts).total.fairness, Some(1.0));
}

#[test]
fn what_is_exempt_has_neither_passed_nor_failed() {
    let verdict = |ok, exempt: bool| Verdict {
        what: format!("p/total/{ok}{exempt}"),
        source: "a paper".to_owned(),
        expected: 1.0,
        measured: Some(2.0),
        tolerance: "10%".to_owned(),
        ok,
        exempt: exempt.then(|| "it contradicts itself".to_owned()),
    };
    let all = [(true, false), (true, true), (false, true), (false, false)];
    let answer = RunAnswer {
        scenario: "s".to_owned(),
        engine: Engine::Sim,
        seed: 1,
        phases: phases(),
        expectations: all.map(|(ok, exempt)| verdict(ok, exempt)).into(),
    };
    assert!(!answer.ok());
    assert_eq!(Tally::of(&answer.expectations).to_string(), "1 passed, 1 missed, 2 exempt");
}
