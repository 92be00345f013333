//! The host under arbitrary calls: its window, its books and its gate.

use std::collections::BTreeMap;

use parda_control::law::{LawConfig, Mode};
use parda_control::{
    Bytes, Charge, Config, Costs, Governed, HeldBy, Host, Instant, Io, IoId, IoKind, Measurement,
    Outcome, Period, Report, Shares, Span, Totals, Tuning, View, VmConfig, VmId, Window,
};
use proptest::prelude::*;

use crate::common::GovernedHost;

fn static_window(window: f64) -> Config {
    Config {
        law: LawConfig { mode: Mode::Static, window_max: Window(window), ..LawConfig::default() },
        ..Config::default()
    }
}

/// The largest burst of a VM, in slots.
const BURST: f64 = 2.0;

const READ: Io = Io { kind: IoKind::Read, bytes: Bytes::kib(4) };

#[derive(Clone, Debug)]
enum Step {
    Submit { vm: usize, kib: u64, kind: IoKind },
    Complete { which: usize, ok: bool },
    Pass { micros: u64 },
    Tick { silent: bool, peers: usize },
    Shares { vm: usize, shares: u32 },
    WindowMax { slots: f64 },
    Remove { vm: usize },
    Add { shares: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..4usize, 1..512u64, 0..5usize).prop_map(|(vm, kib, kind)| {
            use IoKind::{Discard, Other, Read, Write};
            let kind = [Read, Read, Write, Discard, Other][kind];
            let kib = if kind == Discard { 128 * kib } else { kib };
            Step::Submit { vm, kib, kind }
        }),
        5 => (0..64usize, any::<bool>()).prop_map(|(which, ok)| Step::Complete { which, ok }),
        4 => (1..50_000u64).prop_map(|micros| Step::Pass { micros }),
        1 => (any::<bool>(), 0..4usize).prop_map(|(silent, peers)| Step::Tick { silent, peers }),
        1 => (0..4usize, 1..5000u32).prop_map(|(vm, shares)| Step::Shares { vm, shares }),
        1 => (0.05..40.0f64).prop_map(|slots| Step::WindowMax { slots }),
        1 => (0..4usize).prop_map(|vm| Step::Remove { vm }),
        1 => (1..5000u32).prop_map(|shares| Step::Add { shares }),
    ]
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        Just(Mode::Static),
        Just(Mode::Observe),
        (0.0001..0.1f64).prop_map(|beta_per_share| Mode::Published { beta_per_share }),
        Just(Mode::Parda),
    ]
}

/// An IO takes as long as 8 KiB of it, and a write as long as 24 KiB more.
const TIME: Costs = Costs { reads: Charge { io: 1, mib: 128 }, writes: Charge { io: 4, mib: 128 } };

proptest! {
    /// Whatever happens: no IO is dispatched beyond the window's last slot and its VM's slice, none is lost or
    /// dispatched twice, held and device time are what the caller saw, and windows keep their bounds.
    #[test]
    fn the_books_balance(
        mode in mode(),
        costs in prop_oneof![Just(None), Just(Some(Costs::BYTES)), Just(Some(TIME))],
        hold_max in prop_oneof![Just(Span::from_millis(60)), Just(Span::from_millis(10_000))],
        script in prop::collection::vec(step(), 1..400),
    ) {
        let mut now = Instant(0);
        let law = LawConfig { mode, window_max: Window(16.0), hold_max, ..LawConfig::default() };
        let config = Config { law, costs, ..Config::default() };
        let mut host = GovernedHost::new(now, config.clone()).unwrap();
        let mut vms: Vec<VmId> = [1000, 500, 10, 3]
            .map(|shares| host.add_vm(now, VmConfig { burst: BURST, ..VmConfig::of(Shares(shares)) }))
            .to_vec();
        // The most shares that a VM had since the last round.
        let mut most: Vec<(VmId, u32)> = vms.iter().copied().zip([1000, 500, 10, 3]).collect();
        let observes = mode == Mode::Observe;
        let mut held: BTreeMap<u64, (Instant, Io, VmId)> = BTreeMap::new();
        let mut out: Vec<(IoId, u64, Instant, Instant, Io, VmId)> = Vec::new();
        let cost = |io: Io| {
            let slots = io.bytes.0 as f64 / 8192.0;
            match (io.kind, costs) {
                (IoKind::Discard, _) => (slots / 128.0).ceil().clamp(1.0, 32.0),
                (IoKind::Read, Some(TIME)) => (1.0 + slots) / 2.0,
                (IoKind::Write, Some(TIME)) => (4.0 + slots) / 2.0,
                (IoKind::Read | IoKind::Write, Some(Costs::BYTES)) => slots.max(0.125),
                _ => 1.0,
            }
        };
        for (token, step) in script.into_iter().enumerate() {
            let token = token as u64;
            match step {
                Step::Submit { .. } | Step::Remove { .. } | Step::Shares { .. } if vms.is_empty() => {}
                Step::Submit { vm, kib, kind } => {
                    let vm = vms[vm % vms.len()];
                    let io = Io { kind, bytes: Bytes::kib(kib) };
                    host.submit(now, vm, io, token);
                    held.insert(token, (now, io, vm));
                }
                Step::Remove { vm } => {
                    let vm = vms.swap_remove(vm % vms.len());
                    prop_assert!(host.remove_vm(vm));
                    prop_assert!(!host.remove_vm(vm), "it is gone");
                    let changed = host.set_vm(now, vm, VmConfig::of(Shares(1)));
                    prop_assert!(!changed);
                }
                Step::Add { shares } => {
                    let vm = host.add_vm(now, VmConfig { burst: 1.0, ..VmConfig::of(Shares(shares)) });
                    prop_assert!(!vms.contains(&vm), "two VMs with one id");
                    let left = held.values().any(|h| h.2 == vm) || out.iter().any(|o| o.5 == vm);
                    prop_assert!(!left, "its id is still in use");
                    vms.push(vm);
                    most.push((vm, shares));
                }
                Step::Complete { which, ok } if !out.is_empty() => {
                    let (id, token, submitted, dispatched, io, vm) =
                        out.swap_remove(which % out.len());
                    let outcome = if ok { Outcome::Done } else { Outcome::Failed };
                    let done = host.complete(now, id, outcome).unwrap();
                    prop_assert_eq!((done.token, done.vm), (token, vm));
                    prop_assert_eq!(done.io, io);
                    prop_assert_eq!(done.held, dispatched.since(submitted));
                    prop_assert_eq!(done.device, now.since(dispatched));
                    // A completion is taken once.
                    if !out.iter().any(|o| o.0 == id) {
                        prop_assert!(host.complete(now, id, outcome).is_none());
                    }
                }
                Step::Complete { .. } => {}
                Step::Pass { micros } => now = now + Span::from_micros(micros),
                Step::Tick { silent, peers } => {
                    let peer = Report {
                        elapsed: Span::from_millis(1000),
                        outstanding: 3.0,
                        window: Window(3.0),
                        beta: 1.0,
                        shares: Shares(500),
                        active: 500.0,
                        governed: Governed::Yes,
                        threshold: Span::from_millis(30),
                        tuning: Tuning::Auto,
                        ..Report::default()
                    };
                    let peers = vec![peer; peers];
                    let view = if silent { View::Silent } else { View::Peers(Totals::of(&peers)) };
                    let report = host.tick(now, view);
                    prop_assert_eq!(host.vms().count(), vms.len());
                    prop_assert!(report.active.is_finite() && report.outstanding.is_finite());
                    prop_assert!(!vms.is_empty() || report.shares == Shares(0));
                    // In IOs, of which the largest takes 64 slots.
                    let least = if costs.is_some() { 0.001 / 64.0 } else { 0.001 };
                    prop_assert!(report.window.0 >= least && report.window.0.is_finite());
                    let all = most.iter().filter(|(vm, _)| vms.contains(vm));
                    let all = all.fold(0.0, |sum, (_, shares)| sum + f64::from(*shares));
                    prop_assert!(report.active >= 0.0 && report.active <= all + 1e-6, "{} of {all}", report.active);
                    most = vms.iter().map(|vm| (*vm, host.part(*vm).unwrap().shares.0)).collect();
                }
                Step::Shares { vm, shares } => {
                    let vm = vms[vm % vms.len()];
                    let part = VmConfig::of(Shares(shares));
                    let changed = host.set_vm(now, vm, part);
                    prop_assert!(changed);
                    most.push((vm, shares));
                }
                Step::WindowMax { slots } => {
                    let mut config = config.clone();
                    config.law.window_max = Window(slots);
                    host.set_config(now, config).unwrap();
                    // It is in IOs, of which the largest has 512 KiB.
                    let largest = if costs.is_some() { 64.0 } else { 1.0 };
                    prop_assert!(host.governor().window().0 <= slots * largest || observes);
                }
            }
            while let Some(d) = host.next_dispatch(now) {
                let before: f64 = out.iter().map(|o| cost(o.4)).sum();
                let (submitted, io, vm) = held.remove(&d.token).expect("held once");
                prop_assert_eq!(d.vm, vm);
                // What is granted is never exceeded: a slot was free, if only in part, or the VM is within what it has by itself.
                let free = before < host.grant().0;
                let has: f64 = out.iter().filter(|o| o.5 == vm).map(|o| cost(o.4)).sum();
                let slice = host.part(vm).and_then(|part| part.slice).unwrap_or_default();
                let own = has + cost(io) <= slice.max(cost(io)) + BURST;
                prop_assert!(free || own || d.overdue, "{} of {}", before, host.grant());
                out.push((d.id, d.token, submitted, now, io, vm));
            }
            prop_assert_eq!(host.outstanding(), out.len());
            prop_assert_eq!(host.held(), held.len());
            prop_assert!(held.is_empty() || !observes, "who observes holds nothing");
            // A caller that is woken up for nothing would be so without end.
            let wakes = host.next_wakeup();
            prop_assert!(wakes.is_none_or(|at| at > now), "{wakes:?} is not after {now:?}");
            // No deadlock: whatever waits has something that will let it go.
            let waits = !held.is_empty() && out.is_empty();
            prop_assert!(!waits || host.next_wakeup().is_some());
            if let (true, Some(wake)) = (waits, host.next_wakeup()) {
                prop_assert!(wake.since(now) <= config.law.hold_max + Span(2));
            }
        }
        // It drains: completing and waking gets everything out.
        for _ in 0..10_000 {
            if held.is_empty() && out.is_empty() {
                break;
            }
            match out.pop() {
                Some((id, ..)) => {
                    now = now + Span::from_millis(1);
                    host.complete(now, id, Outcome::Done).unwrap();
                }
                None => now = host.next_wakeup().expect("held IOs have a deadline").max(now),
            }
            while let Some(d) = host.next_dispatch(now) {
                let (submitted, io, vm) = held.remove(&d.token).unwrap();
                out.push((d.id, d.token, submitted, now, io, vm));
            }
        }
        prop_assert_eq!((held.len(), out.len()), (0, 0));
    }

    /// A backlogged host's mean outstanding is its window, fractions and all.
    #[test]
    fn the_time_average_is_the_window(
        window in prop_oneof![0.05..1.0f64, 1.0..4.0f64, 4.0..20.0f64],
        seed in 1..u64::MAX,
    ) {
        let mut now = Instant(0);
        let mut host = GovernedHost::new(now, static_window(window)).unwrap();
        let vm = host.add_vm(now, VmConfig::of(Shares(1)));
        (0..40).for_each(|i| host.submit(now, vm, READ, i));
        let mut random = seed;
        let mut out: Vec<(Instant, IoId)> = Vec::new();
        let mut busy = 0.0;
        for _ in 0..20_000 {
            while let Some(d) = host.next_dispatch(now) {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let latency = Span(5_000_000 + (random >> 40));
                out.push((now + latency, d.id));
            }
            let next = out.iter().enumerate().min_by_key(|(_, o)| o.0).map(|(i, o)| (i, o.0));
            let wake = host.next_wakeup();
            let (i, when) = match (next, wake) {
                (Some((i, done)), Some(wake)) if done <= wake => (Some(i), done),
                (Some((i, done)), None) => (Some(i), done),
                (_, Some(wake)) => (None, wake),
                (None, None) => unreachable!("a backlogged host waits for nothing"),
            };
            busy += out.len() as f64 * when.since(now).secs();
            now = now.max(when);
            if let Some(i) = i {
                let (_, id) = out.swap_remove(i);
                host.complete(now, id, Outcome::Done).unwrap();
                host.submit(now, vm, READ, 0);
            }
        }
        let mean = busy / now.since(Instant(0)).secs();
        prop_assert!((mean / window - 1.0).abs() < 0.03, "{} for {}", mean, window);
    }
}

#[test]
fn without_control_order_is_kept_and_nothing_is_held() {
    let mut config = Config::default();
    config.law.mode = Mode::Off;
    let mut host = GovernedHost::new(Instant(0), config).unwrap();
    let vms = [1, 1_000_000].map(|shares| host.add_vm(Instant(0), VmConfig::of(Shares(shares))));
    for token in 0..1000 {
        host.submit(Instant(token), vms[token as usize % 2], READ, token);
        assert_eq!(host.next_dispatch(Instant(token)).unwrap().token, token);
    }
    let report = host.tick(Instant(2000), View::Peers(Totals::default()));
    assert_eq!((report.window, report.governed), (Window(0.0), Governed::No));
    assert!(host.governor().window().0.is_infinite());
}

/// A trim of 8 MiB takes eight slots, so that others wait for it, and is heard as one write.
#[test]
fn a_trim_takes_slots_by_its_length_and_is_heard() {
    let mut host = GovernedHost::new(Instant(0), static_window(8.0)).unwrap();
    let vm = VmConfig::of(Shares(1000));
    let vm = host.add_vm(Instant(0), vm);
    let trim = Io { kind: IoKind::Discard, bytes: Bytes(8 << 20) };
    host.submit(Instant(0), vm, trim, 1);
    host.submit(Instant(0), vm, READ, 2);
    let id = host.next_dispatch(Instant(0)).unwrap().id;
    assert_eq!(host.next_dispatch(Instant(0)), None, "its eight slots are all there are");
    let now = Instant(0) + Span::from_millis(80);
    host.complete(now, id, Outcome::Done).unwrap();
    assert_eq!(host.next_dispatch(now).unwrap().token, 2);
    let second = Instant(0) + Span::from_millis(1000);
    let report = host.tick(second, View::Peers(Totals::default()));
    let writes = report.interval.writes;
    assert_eq!((writes.ios, writes.latency), (1, Span::from_millis(10)));
    assert_eq!(writes.bytes, Config::default().reference_size);
}

/// An IO that took the array 3 ms and waited 7 ms for its caller is no sign of a slow array.
#[test]
fn time_that_an_io_waits_for_its_caller_is_not_the_arrays() {
    let vm = VmConfig::of(Shares(1000));
    for (device, expected) in [(3, 3), (10, 10), (11, 10)] {
        let mut host = GovernedHost::new(Instant(0), static_window(4.0)).unwrap();
        let vm = host.add_vm(Instant(0), vm);
        host.submit(Instant(0), vm, READ, 7);
        let id = host.next_dispatch(Instant(0)).unwrap().id;
        let (now, device) = (Instant(0) + Span::from_millis(10), Span::from_millis(device));
        let done = host.complete_after(now, id, Outcome::Done, device).unwrap();
        assert_eq!((done.device, done.held), (Span::from_millis(expected), Span::ZERO));
        assert_eq!(host.complete_after(now, id, Outcome::Done, device), None);
    }
}

#[test]
fn parameters_that_cannot_work_are_refused_and_change_nothing() {
    let mut host = GovernedHost::new(Instant(0), Config::default()).unwrap();
    let mut bad = Config::default();
    bad.law.gamma = 0.0;
    assert_eq!(host.set_config(Instant(0), bad.clone()).unwrap_err().parameter, "gamma");
    assert_eq!(host.governor().config(), &Config::default());
    assert!(GovernedHost::new(Instant(0), bad).is_err());
}

#[test]
fn what_waits_is_charged_by_the_slots_in_force() {
    let large = Io { kind: IoKind::Read, bytes: Bytes::kib(1024) };
    let bytes = Config { costs: Some(Costs::BYTES), ..static_window(4.0) };
    let mut host = GovernedHost::new(Instant(0), bytes.clone()).unwrap();
    let vm = VmConfig::of(Shares(1000));
    let vms = [(); 2].map(|()| host.add_vm(Instant(0), vm));
    for token in 0..8 {
        host.submit(Instant(0), vms[token as usize % 2], large, token);
    }
    let out = |host: &mut GovernedHost, now| -> Vec<u64> {
        std::iter::from_fn(|| host.next_dispatch(now)).map(|dispatch| dispatch.token).collect()
    };
    // An IO of 128 slots goes when nothing is at the array, and no second one beside it.
    assert_eq!(out(&mut host, Instant(0)).len(), 1);
    let now = Instant(1_000_000);
    host.set_config(now, static_window(5.0)).unwrap();
    host.tick(now, View::Silent);
    host.set_config(now, static_window(5.0)).unwrap();
    assert_eq!(host.held(), 7);
    let ios = out(&mut host, now);
    assert!(ios.is_empty(), "128 slots of before are at the array: {ios:?}");
    let first = IoId(0);
    assert!(host.complete(now, first, Outcome::Done).is_some());
    assert_eq!(out(&mut host, now).len(), 5, "of one slot each");
    host.set_config(now, bytes).unwrap();
    assert!(out(&mut host, now).is_empty(), "the next one is of 128 slots again");
    assert_eq!(host.held(), 2);
}

#[test]
fn held_time_has_the_cause_that_the_io_met_when_it_came() {
    let law = |mode, window_max| LawConfig {
        mode,
        window_start: Window(4.0),
        window_max: Window(window_max),
        ..LawConfig::default()
    };
    let parda = Mode::Parda;
    for (law, expected) in [
        (law(parda, 64.0), HeldBy::Share),
        (law(parda, 4.0), HeldBy::Window),
        (law(Mode::Static, 4.0), HeldBy::Window),
    ] {
        let mut host =
            GovernedHost::new(Instant(0), Config { law: law.clone(), ..Config::default() })
                .unwrap();
        let vm = VmConfig::of(Shares(1000));
        let vms = [(); 2].map(|()| host.add_vm(Instant(0), vm));
        for token in 0..16 {
            host.submit(Instant(0), vms[token as usize % 2], READ, token);
        }
        let (mut now, mut done) = (Instant(0), BTreeMap::new());
        while done.len() < 16 {
            let ids: Vec<_> =
                std::iter::from_fn(|| host.next_dispatch(now)).map(|d| d.id).collect();
            now = now + Span::from_millis(10);
            for id in ids {
                let io = host.complete(now, id, Outcome::Done).unwrap();
                done.insert(io.token, io);
            }
        }
        assert_eq!(done[&15].held_by, expected, "{law:?}");
        assert!(done[&15].held > Span::ZERO);
    }
    // Who wants less than its slice waits for others at most.
    let mut host = GovernedHost::new(Instant(0), Config::default()).unwrap();
    let vm = VmConfig::of(Shares(1000));
    let vms = [(); 2].map(|()| host.add_vm(Instant(0), vm));
    for token in 0..9 {
        host.submit(Instant(0), vms[token / 8], READ, token as u64);
    }
    let all = std::iter::from_fn(|| host.next_dispatch(Instant(0))).collect::<Vec<_>>();
    let shallow = all.iter().find(|dispatch| dispatch.token == 8).expect("goes ahead").id;
    let io = host.complete(Instant(1), shallow, Outcome::Done).unwrap();
    assert_eq!(io.held_by, HeldBy::Turn);
}

#[test]
fn a_vm_within_its_slice_waits_for_no_large_io_of_its_neighbour() {
    let mut host = GovernedHost::new(Instant(0), Config::default()).unwrap();
    let [large, light] = [(); 2].map(|()| host.add_vm(Instant(0), VmConfig::of(Shares(1000))));
    let trim = Io { kind: IoKind::Discard, bytes: Bytes(32 << 20) };
    (0..2).for_each(|token| host.submit(Instant(0), large, trim, token));
    let goes =
        |host: &mut GovernedHost| host.next_dispatch(Instant(0)).map(|dispatch| dispatch.token);
    assert_eq!([goes(&mut host), goes(&mut host)], [Some(0), None], "32 slots of a window of 4");
    (2..6).for_each(|token| host.submit(Instant(0), light, READ, token));
    let went: Vec<_> = std::iter::from_fn(|| goes(&mut host)).collect();
    assert_eq!(went, [2, 3], "its slice is two slots");
}

#[test]
fn a_host_that_is_made_anew_works_by_what_the_law_decided_before() {
    let mut period = Period::new(Config::default()).unwrap();
    let mut measured = Measurement::default();
    let mut now = Instant(0);
    let mut host = Host::new(now, period.decision());
    let vm = host.add_vm(now, VmConfig::of(Shares(1000)));
    // Thirty IOs of 60 ms each at a threshold of 30 ms: the window falls to half of them.
    (0..30).for_each(|token| host.submit(now, vm, READ, token));
    for ms in 1..=20_000 {
        let out: Vec<_> = std::iter::from_fn(|| host.next_dispatch(now)).collect();
        now = now + Span::from_millis(60);
        for dispatch in out {
            let done = host.complete(now, dispatch.id, Outcome::Done).unwrap();
            host.submit(now, vm, READ, done.token);
        }
        if ms % 16 == 0 {
            host.measure(now, &mut measured);
            period.tick(&mut measured, View::Peers(Totals::default()), None);
            host.apply(now, period.decision());
        }
    }
    let before = period.decision().window;
    assert!(before.0 < 3.0, "{before:?}");
    let mut host = Host::new(Instant(0), period.decision());
    let vm = host.add_vm(Instant(0), VmConfig::of(Shares(1000)));
    (0..30).for_each(|token| host.submit(Instant(0), vm, READ, token));
    let out = std::iter::from_fn(|| host.next_dispatch(Instant(0))).count();
    assert!(out as f64 <= before.0.max(1.0).ceil(), "{out} outstanding under {before:?}");
}

#[test]
fn an_io_between_a_measurement_and_its_decision_counts_for_the_next_objective() {
    let mut period = Period::new(Config::default()).unwrap();
    let (mut measured, mut host) =
        (Measurement::default(), Host::new(Instant(0), period.decision()));
    let target = Some(Span::from_millis(10));
    let vm = host.add_vm(Instant(0), VmConfig { target, ..VmConfig::of(Shares(1000)) });
    let second = |n: u64| Instant(n * 1_000_000_000);
    let io = |host: &mut Host, now| {
        host.submit(now, vm, READ, 0);
        let id = host.next_dispatch(now).unwrap().id;
        host.complete(now + Span::from_millis(5), id, Outcome::Done).unwrap();
    };
    (0..10).for_each(|_| io(&mut host, second(0)));
    host.measure(second(1), &mut measured);
    io(&mut host, second(1));
    period.tick(&mut measured, View::Silent, None);
    host.apply(second(1), period.decision());
    let device = host.standing(vm).unwrap().seen.unwrap().device;
    assert!((device - 0.005).abs() < 1e-9, "{device}");
    host.measure(second(2), &mut measured);
    assert_eq!(period.tick(&mut measured, View::Silent, None).wants.ios, 1);
    // Another VM of the same id, which came while the law decided, begins by itself.
    assert!(host.remove_vm(vm));
    assert_eq!(host.add_vm(second(2), VmConfig { target, ..VmConfig::of(Shares(1)) }), vm);
    host.apply(second(2), period.decision());
    assert_eq!(host.standing(vm).unwrap().seen, None);
}
