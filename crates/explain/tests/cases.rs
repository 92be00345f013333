//! VMs as operators meet them, and what is found of each.

use parda_api::Limit;
use parda_explain::{
    Capacity, Cause, ExplainedPeer, ExplainedVm, ExplainedVolume, Explanation, HeldParts, Holding,
    Record, Unknown, Unmet, VmLimit, VmTenant, WhatIf, Who, predict, score,
};

/// A service time of 7.1 ms, as drives have it.
const DRIVES: Capacity = Capacity::Assumed { service_ms: 7.1 };

/// A VM that keeps so many IOs pending, of which so many are at the array for 30 ms.
fn vm(name: &str, shares: f64, pending: f64, outstanding: f64) -> ExplainedVm {
    let iops = outstanding / 0.03;
    ExplainedVm {
        name: name.to_owned(),
        shares,
        iops,
        bytes_per_s: 8192.0 * iops,
        held_ms: 1e3 * pending / iops - 30.0,
        device_ms: 30.0,
        slots: 1.0,
        slice: Some(0.054 * shares),
        spread: Some(0.1),
        ..ExplainedVm::default()
    }
}

/// A database that keeps three IOs pending of a window of 54, beside a host of batch jobs that has as many shares.
fn trial() -> ExplainedVolume {
    ExplainedVolume {
        host: "kvm-01".to_owned(),
        seconds: 10.0,
        holding: Holding::Slices { window_max: Some(256.0) },
        threshold_ms: 30.0,
        latency_ms: Some(30.0),
        vms: vec![vm("db", 1000.0, 3.0, 3.0)],
        peers: vec![ExplainedPeer {
            host: "kvm-02".to_owned(),
            shares: 1000.0,
            active_shares: 1000.0,
            outstanding: 54.0,
            iops: 1800.0,
            limited_by: Some(Limit::Slice),
        }],
    }
}

fn sum(found: &Explanation) -> f64 {
    found.spent.iter().map(|part| part.ms).sum()
}

#[test]
fn a_database_of_three_ios_is_latency_bound_and_only_a_threshold_helps_it() {
    let view = trial();
    let changes = [WhatIf::Shares(4000.0), WhatIf::Shares(250.0), WhatIf::ThresholdMs(15.0)];
    let found = Explanation::of(&view, "db", &changes, &DRIVES).unwrap();
    assert_eq!(found.limit, Limit::Depth);
    assert_eq!(found.entitled.unwrap().slots, 54.0);
    assert!((sum(&found) - 30.0).abs() < 1e-9, "{:?}", found.spent);
    let [more, fewer, lower] = found.predictions[..] else { panic!("{:?}", found.predictions) };
    for same in [more, fewer] {
        assert!((same.vm.iops - 100.0).abs() < 0.1, "shares change nothing: {same:?}");
        assert!((same.others.unwrap() - 1.0).abs() < 0.01, "{same:?}");
    }
    let times = lower.vm.iops / found.vm.iops;
    assert!((1.9..3.0).contains(&times), "about twice: {times}");
    // What remains of all throughput at 15 ms is 0.69 of it, and the database has more of that.
    let others = lower.others.unwrap();
    assert!((0.55..0.75).contains(&others), "{others}");
    let (least, most) = lower.range.unwrap();
    assert!(least < others && others < most, "{least} {others} {most}");
    assert!(found.unknown.contains(&Unknown::Capacity));
}

#[test]
fn nobody_is_entitled_to_more_than_the_largest_window() {
    let mut view = trial();
    view.peers.clear();
    view.vms[0].slice = Some(8000.0);
    let found = Explanation::of(&view, "db", &[], &DRIVES).unwrap();
    assert_eq!(found.entitled.unwrap().slots, 256.0);
}

#[test]
fn held_time_is_told_by_its_measured_causes() {
    let mut view = trial();
    view.vms = vec![vm("batch", 1000.0, 64.0, 27.0)];
    view.vms[0].held_by = Some(HeldParts { share: 0.75, turn: 0.25, ..HeldParts::default() });
    let found = Explanation::of(&view, "batch", &[], &DRIVES).unwrap();
    let of = |cause| found.spent.iter().find(|part| part.cause == cause).map(|part| part.ms);
    let (share, turn) = (of(Cause::HeldBySlice).unwrap(), of(Cause::HeldForTurn).unwrap());
    assert!((share / turn - 3.0).abs() < 1e-9, "{:?}", found.spent);
    assert_eq!(of(Cause::HeldByWindowMax), None);
    assert!((sum(&found) - found.vm.held_ms - found.vm.device_ms).abs() < 1e-9);
}

#[test]
fn a_vm_that_wants_more_than_its_slice_gains_by_shares_what_the_others_lose() {
    let mut view = trial();
    view.vms = vec![vm("batch", 1000.0, 64.0, 27.0)];
    view.peers[0].shares = 1000.0;
    view.peers[0].outstanding = 27.0;
    let found = Explanation::of(&view, "batch", &[WhatIf::Shares(2000.0)], &DRIVES).unwrap();
    assert_eq!(found.limit, Limit::Slice);
    assert_eq!(found.spent[0].cause, Cause::HeldBySlice);
    assert!((sum(&found) - view.vms[0].latency_ms()).abs() < 1e-9);
    let more = found.predictions[0];
    // Two thirds of the 54 in place of one half; the other host has one third.
    assert!((more.vm.iops / found.vm.iops - 4.0 / 3.0).abs() < 0.01, "{more:?}");
    assert!((more.others.unwrap() - 2.0 / 3.0).abs() < 0.01, "{more:?}");
    assert!((more.vm.latency_ms.unwrap() - 64.0 / more.vm.iops * 1e3).abs() < 0.1);
    assert_eq!(found.others[0].who, Who::Host("kvm-02".to_owned()));
}

#[test]
fn a_vm_never_gets_more_than_it_has_pending() {
    let mut view = trial();
    view.vms = vec![vm("app", 1000.0, 30.0, 27.0)];
    view.peers[0].outstanding = 27.0;
    let more = predict(&view, "app", WhatIf::Shares(100_000.0), &DRIVES).unwrap();
    assert!((more.vm.iops / view.vms[0].iops - 30.0 / 27.0).abs() < 0.01, "{more:?}");
    assert_eq!(more.limit, Limit::Depth);
}

#[test]
fn a_full_window_divides_between_the_vms_of_its_host_alone() {
    let mut view = trial();
    view.holding = Holding::Slices { window_max: Some(54.0) };
    view.vms = vec![vm("a", 1000.0, 64.0, 27.0), vm("b", 1000.0, 64.0, 27.0)];
    let found = Explanation::of(&view, "a", &[WhatIf::Shares(2000.0)], &DRIVES).unwrap();
    assert_eq!((found.limit, found.spent[0].cause), (Limit::WindowMax, Cause::HeldByWindowMax));
    let more = found.predictions[0];
    assert!((more.vm.iops / found.vm.iops - 4.0 / 3.0).abs() < 0.02, "{more:?}");
}

#[test]
fn a_threshold_that_the_largest_window_does_not_let_latency_reach_changes_nothing() {
    let mut view = trial();
    view.holding = Holding::Slices { window_max: Some(54.0) };
    view.vms = vec![vm("deep", 1000.0, 200.0, 54.0)];
    view.peers.clear();
    let now = view.vms[0].iops;
    let higher = predict(&view, "deep", WhatIf::ThresholdMs(100.0), &DRIVES).unwrap();
    assert!((higher.vm.iops / now - 1.0).abs() < 0.01, "{higher:?}");
    assert_eq!(higher.limit, Limit::WindowMax);
    // With room for more than that it has more IOs outstanding, at an array that does more of them.
    view.holding = Holding::Slices { window_max: Some(256.0) };
    let higher = predict(&view, "deep", WhatIf::ThresholdMs(100.0), &DRIVES).unwrap();
    assert!(higher.vm.iops > 1.1 * now, "{higher:?}");
}

#[test]
fn who_sends_at_times_of_its_own_is_promised_no_gain() {
    let mut view = trial();
    view.vms[0].spread = Some(1.0);
    let lower = predict(&view, "db", WhatIf::ThresholdMs(15.0), &DRIVES).unwrap();
    assert_eq!(lower.vm.iops, view.vms[0].iops);
    assert!(lower.vm.latency_ms.unwrap() < 16.0, "its IOs are faster all the same: {lower:?}");
}

#[test]
fn nothing_is_predicted_where_nothing_is_held_or_done() {
    let mut view = trial();
    view.vms[0].iops = 0.0;
    view.vms[0].others_per_s = 3.0;
    let found = Explanation::of(&view, "db", &[WhatIf::Shares(1.0)], &DRIVES).unwrap();
    assert_eq!((found.limit, found.predictions.len()), (Limit::Others, 0));
    let view = ExplainedVolume { holding: Holding::Nothing, ..trial() };
    let found = Explanation::of(&view, "db", &[WhatIf::Shares(1.0)], &DRIVES).unwrap();
    assert_eq!((found.predictions.len(), found.entitled), (0, None));
    assert!(found.unknown.contains(&Unknown::NoControl));
    assert_eq!(Explanation::of(&view, "nobody", &[], &DRIVES), None);
}

/// A VM that its limit of 100 IO/s holds: three of its sixteen IOs are at the array.
fn limited() -> ExplainedVm {
    ExplainedVm {
        limit: Some(VmLimit { words: "its limit of 100 IO/s".to_owned(), iops: Some(100.0) }),
        held_by: Some(HeldParts { limit: 1.0, ..HeldParts::default() }),
        ..vm("batch", 1000.0, 16.0, 3.0)
    }
}

#[test]
fn where_others_wait_a_higher_limit_takes_from_them() {
    let mut view = trial();
    view.vms = vec![limited(), vm("app", 1000.0, 64.0, 54.0)];
    let more = predict(&view, "batch", WhatIf::LimitIops(200.0), &DRIVES).unwrap();
    assert!((more.vm.iops - 200.0).abs() < 2.0, "{more:?}");
    assert!((more.vm.latency_ms.unwrap() - 80.0).abs() < 1.0, "sixteen IOs at 200 a second");
    assert_eq!(more.limit, Limit::Configured);
    let others = more.others.unwrap();
    assert!((others - 105.0 / 108.0).abs() < 0.01, "three slots of 111 go to it: {others}");
    let none = predict(&view, "batch", WhatIf::LimitIops(1e6), &DRIVES).unwrap();
    assert!((none.vm.iops / 533.0 - 1.0).abs() < 0.05 && none.limit == Limit::Depth, "{none:?}");
    // Shares and thresholds leave it at its limit.
    let shares = predict(&view, "batch", WhatIf::Shares(4000.0), &DRIVES).unwrap();
    assert!((shares.vm.iops - 100.0).abs() < 1e-6 && shares.limit == Limit::Configured);
    let lower = predict(&view, "batch", WhatIf::ThresholdMs(20.0), &DRIVES).unwrap();
    assert!((lower.vm.iops - 100.0).abs() < 1.0, "{lower:?}");
}

#[test]
fn a_limit_of_a_tenant_moves_the_vms_that_it_holds_in_proportion() {
    let tenant = Some(VmTenant {
        name: "gold".to_owned(),
        iops: 200.0,
        own_iops: 200.0,
        limit_iops: Some(200.0),
    });
    let words = "the limit of its tenant gold".to_owned();
    let held = ExplainedVm {
        limit: Some(VmLimit { words, iops: None }),
        tenant: tenant.clone(),
        ..limited()
    };
    let mut view = trial();
    let free = ExplainedVm { tenant, ..vm("free", 1000.0, 3.0, 3.0) };
    view.vms = vec![held, free, vm("app", 1000.0, 64.0, 54.0)];
    let of = |view: &ExplainedVolume, name: &str, iops| {
        predict(view, name, WhatIf::TenantLimitIops(iops), &DRIVES).unwrap()
    };
    let more = of(&view, "batch", 400.0);
    assert!((more.vm.iops - 200.0).abs() < 2.0 && more.limit == Limit::Configured, "{more:?}");
    assert!(more.others.unwrap() < 1.0, "{more:?}");
    let same = of(&view, "free", 400.0);
    assert!((same.vm.iops - view.vms[1].iops).abs() < 1.0, "it has what it wants: {same:?}");
    for (name, iops) in [("batch", 50.0), ("free", 0.5 * view.vms[1].iops)] {
        let less = of(&view, name, 100.0);
        assert!((less.vm.iops - iops).abs() < 2.0, "{name}: {less:?}");
    }
    // Of its VMs on other hosts too little is known to say what the others have.
    view.vms[0].tenant.as_mut().unwrap().iops = 400.0;
    assert_eq!(of(&view, "batch", 800.0).others, None);
    let none = predict(&view, "app", WhatIf::TenantLimitIops(400.0), &DRIVES);
    assert_eq!(none, None, "it has no tenant");

    // A limit of the tenant that changed meanwhile is what is scored.
    let [at, volume, vm] = ["2026-01-01T00:00:00Z", "array", "batch"].map(str::to_owned);
    let mut now = view.clone();
    let (capacity, predictions) = (DRIVES.clone(), Vec::new());
    let then = Record { at, volume, vm, view, capacity, predictions };
    assert!(matches!(score(&then, &now).unwrap().prediction.change, WhatIf::Shares(_)));
    now.vms[0].tenant.as_mut().unwrap().limit_iops = Some(300.0);
    let scored = score(&then, &now).unwrap();
    assert_eq!(scored.prediction.change, WhatIf::TenantLimitIops(300.0));
}

#[test]
fn where_nobody_waits_a_higher_limit_is_more_latency_for_all() {
    let mut view = trial();
    (view.latency_ms, view.peers) = (Some(10.0), Vec::new());
    let at = |vm: ExplainedVm, ms: f64| {
        let iops = vm.iops * 3.0;
        ExplainedVm { iops, device_ms: ms, held_ms: vm.pending() / iops * 1e3 - ms, ..vm }
    };
    let mut batch = at(limited(), 10.0);
    batch.limit.as_mut().unwrap().iops = Some(300.0);
    view.vms = vec![batch, at(vm("db", 1000.0, 3.0, 3.0), 10.0)];
    let more = predict(&view, "batch", WhatIf::LimitIops(600.0), &DRIVES).unwrap();
    assert!((more.vm.iops / 600.0 - 1.0).abs() < 0.15, "{more:?}");
    assert!(more.vm.device_ms > 10.5 && more.vm.device_ms < 14.0, "{more:?}");
    assert!(more.others.unwrap() < 0.97, "{more:?}");
    let less = predict(&view, "batch", WhatIf::LimitIops(100.0), &DRIVES).unwrap();
    assert!((less.vm.iops / 100.0 - 1.0).abs() < 0.15 && less.others.unwrap() > 1.0, "{less:?}");
}

#[test]
fn a_prediction_is_scored_by_what_is_in_force_now() {
    let view = trial();
    let change = WhatIf::ThresholdMs(15.0);
    let predictions = vec![predict(&view, "db", change, &DRIVES).unwrap()];
    let [at, volume, vm] = ["2026-01-01T00:00:00Z", "array", "db"].map(str::to_owned);
    let then = Record { at, volume, vm, view: view.clone(), capacity: DRIVES.clone(), predictions };
    let mut now = view.clone();
    now.threshold_ms = 15.0;
    now.vms[0].iops = 180.0;
    now.peers[0].shares = 3000.0;
    let scored = score(&then, &now).unwrap();
    assert!(scored.logged && scored.prediction.change == change, "{scored:?}");
    assert!((scored.error - (scored.prediction.vm.iops / 180.0 - 1.0)).abs() < 1e-9);
    assert_eq!(scored.changed, ["host kvm-02"]);
    // Another threshold than the one that was predicted is predicted now, from the view of then.
    now.threshold_ms = 20.0;
    assert!(!score(&then, &now).unwrap().logged);
    now.vms[0].shares = 2000.0;
    assert_eq!(score(&then, &now), None, "two changes at once");
}

#[test]
fn windows_that_no_threshold_moves_are_predicted_for_shares_alone() {
    let mut view = trial();
    view.holding = Holding::Window { window: 54.0 };
    view.vms = vec![vm("a", 1000.0, 64.0, 27.0), vm("b", 1000.0, 64.0, 27.0)];
    let changes = [WhatIf::Shares(3000.0), WhatIf::ThresholdMs(15.0)];
    let found = Explanation::of(&view, "a", &changes, &DRIVES).unwrap();
    let [more] = found.predictions[..] else { panic!("{:?}", found.predictions) };
    assert!((more.vm.iops / found.vm.iops - 1.5).abs() < 0.02, "{more:?}");
    assert_eq!(found.unknown, []);
}

#[test]
fn a_threshold_that_does_not_bound_the_latency_predicts_nothing() {
    // Two hosts with 32 IOs each, an outsider with 64: three times the threshold, and 95 % of IOs take longer than it.
    let mut view = trial();
    view.vms = vec![vm("batch", 1000.0, 32.0, 27.0)];
    let changes = [WhatIf::Shares(2000.0), WhatIf::ThresholdMs(15.0), WhatIf::ThresholdMs(60.0)];
    let slow = Capacity::Assumed { service_ms: 60.0 };
    for (latency_ms, capacity, why) in [
        (90.0, &slow, Unmet::LatencyFarAbove),
        (90.0, &DRIVES, Unmet::LatencyFarAbove),
        (50.0, &slow, Unmet::ServiceTime),
    ] {
        view.latency_ms = Some(latency_ms);
        let found = Explanation::of(&view, "batch", &changes, capacity).unwrap();
        let none: Vec<_> = found.unpredicted.iter().map(|none| (none.change, none.why)).collect();
        assert_eq!(none, [(changes[1], why), (changes[2], why)]);
        let [shares] = found.predictions[..] else { panic!("{:?}", found.predictions) };
        assert_eq!(shares.change, changes[0]);
        assert!(!found.unknown.contains(&Unknown::Capacity), "{:?}", found.unknown);
    }
    // A threshold below the service time is out of reach, a higher one is not.
    view.latency_ms = Some(30.0);
    let near = Capacity::Assumed { service_ms: 16.0 };
    let found = Explanation::of(&view, "batch", &changes, &near).unwrap();
    let none: Vec<_> = found.unpredicted.iter().map(|none| none.change).collect();
    assert_eq!(none, [changes[1]]);
    assert_eq!(found.predictions.len(), 2);
    // Nobody is held: a higher threshold changes nothing, which needs no assumption.
    let mut idle = trial();
    idle.latency_ms = Some(5.0);
    idle.peers[0].limited_by = Some(Limit::Depth);
    assert!(predict(&idle, "db", WhatIf::ThresholdMs(60.0), &slow).is_some());
}
