//! Limits against an oracle that adds up each window of time.

use std::collections::BTreeMap;

use parda_control::law::{LawConfig, Mode};
use parda_control::limit::{TOLERANCE, UNCAPPED};
use parda_control::{
    Burst, Bytes, Config, HeldBy, Instant, Io, IoId, IoKind, Limit, Outcome, Rate, Rates, Shares,
    Span, Tenant, TenantId, Totals, View, VmConfig, VmId, Window,
};
use proptest::prelude::*;

use crate::common::GovernedHost;

/// An IO that went: when, and what.
type Went = (Instant, Io);

/// Whether a rate counts IOs of a kind.
type Counts = fn(IoKind) -> bool;

/// Units that a rate counts of an IO, where one of more than `size` bytes counts as several.
fn units(io: Io, bytes: bool, size: Option<f64>) -> f64 {
    let data = if io.kind == IoKind::Discard { 0.0 } else { io.bytes.0 as f64 };
    if bytes { data } else { size.map_or(1.0, |size| f64::max(1.0, data / size)) }
}

/// Rates and tolerances that bound what goes under a rate of a limit.
fn bounds(rate: Rate) -> Vec<(f64, f64)> {
    let Some(Burst { most, length }) = rate.burst else {
        return vec![(rate.mean, TOLERANCE.secs())];
    };
    let whole = (rate.mean, f64::max(TOLERANCE.secs(), most * length.secs() / rate.mean));
    let cap = (length > UNCAPPED).then_some((most, TOLERANCE.secs()));
    [Some(whole), cap].into_iter().flatten().collect()
}

/// Whether `went` is within a limit: in each window of time between two IOs.
fn within(went: &[Went], limit: &Limit) -> Result<(), String> {
    let of = |rates: Rates, bytes: bool| {
        let units = |io| units(io, bytes, limit.io_size);
        let counts: [(_, Counts); 3] = [
            (rates.total, |kind| kind != IoKind::Other),
            (rates.reads, |kind| kind == IoKind::Read),
            (rates.writes, |kind| matches!(kind, IoKind::Write | IoKind::Discard)),
        ];
        for (rate, counts) in counts {
            let Some(rate) = rate else { continue };
            let went: Vec<_> = went.iter().filter(|(_, io)| counts(io.kind)).collect();
            for first in 0..went.len() {
                let (mut sum, mut largest) = (0.0, 0.0);
                for (at, io) in went[first..].iter().copied() {
                    let time = at.since(went[first].0).secs();
                    // One IO of the window may go when the rate has paid for the others. IOs of two VMs may pass one another.
                    largest = f64::max(largest, units(*io));
                    let others = sum + units(*io) - largest;
                    for (rate, tolerance) in bounds(rate) {
                        if others > rate * (time + tolerance) * (1.0 + 1e-6) + 1e-3 {
                            return Err(format!(
                                "{others} in {time} s at {rate}/s, bytes: {bytes}"
                            ));
                        }
                    }
                    sum += units(*io);
                }
            }
        }
        Ok(())
    };
    of(limit.iops, false)?;
    of(limit.bandwidth, true)
}

/// Rates with bursts of their own.
fn rates(of: std::ops::Range<f64>) -> impl Strategy<Value = Rates> {
    let burst = || prop::option::of((1.0..4.0f64, 50..3000u64));
    let rate = move || prop::option::weighted(0.4, (of.clone(), burst()));
    (rate(), rate(), rate()).prop_map(|rates| {
        let rate = |(mean, burst): (f64, Option<(f64, u64)>)| {
            let burst = burst.map(|(factor, ms)| (factor * mean, Span::from_millis(ms)));
            Rate { mean, burst: burst.map(|(most, length)| Burst { most, length }) }
        };
        Rates { total: rates.0.map(rate), reads: rates.1.map(rate), writes: rates.2.map(rate) }
    })
}

fn limit() -> impl Strategy<Value = Limit> {
    let io_size = prop::option::of(512.0..65_536.0f64);
    (rates(20.0..2000.0), rates(1e5..1e8), io_size).prop_map(|(iops, bandwidth, io_size)| Limit {
        iops,
        bandwidth,
        io_size,
    })
}

#[derive(Clone, Debug)]
enum Step {
    Submit {
        vm: usize,
        kib: u64,
        kind: usize,
        count: usize,
    },
    Complete {
        which: usize,
    },
    Pass {
        micros: u64,
    },
    Wake,
    Tick,
    Remove {
        vm: usize,
    },
    /// The same limits once more.
    Same {
        vm: usize,
    },
    /// Nobody waits any more for some of what it has held.
    Withdraw {
        vm: usize,
        every: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..3usize, 1..256u64, 0..4usize, 1..20usize)
            .prop_map(|(vm, kib, kind, count)| Step::Submit { vm, kib, kind, count }),
        6 => (0..64usize).prop_map(|which| Step::Complete { which }),
        4 => (1..30_000u64).prop_map(|micros| Step::Pass { micros }),
        4 => Just(Step::Wake),
        1 => Just(Step::Tick),
        1 => (0..3usize).prop_map(|vm| Step::Remove { vm }),
        1 => (0..3usize).prop_map(|vm| Step::Same { vm }),
        1 => (0..3usize, 1..4u64).prop_map(|(vm, every)| Step::Withdraw { vm, every }),
    ]
}

/// A host, what it holds, and what is outstanding.
struct Run {
    host: GovernedHost,
    now: Instant,
    token: u64,
    held: BTreeMap<u64, (VmId, Io)>,
    out: Vec<IoId>,
    /// What went, in its order.
    went: Vec<(VmId, Went)>,
}

impl Run {
    fn new(mode: Mode) -> Run {
        let law = LawConfig { mode, ..LawConfig::default() };
        let host = GovernedHost::new(Instant(0), Config { law, ..Config::default() }).unwrap();
        let (held, out, went) = Default::default();
        Run { host, now: Instant(0), token: 0, held, out, went }
    }

    fn submit(&mut self, vm: VmId, io: Io) {
        self.token += 1;
        self.host.submit(self.now, vm, io, self.token);
        self.held.insert(self.token, (vm, io));
    }

    /// Withdraws what a VM has held of every so many IOs.
    fn withdraw(&mut self, vm: VmId, every: u64) {
        let mut out = self.host.withdraw(self.now, vm, |token| token.is_multiple_of(every));
        out.sort_unstable();
        let gone = |token: &u64, of: &VmId| *of == vm && token.is_multiple_of(every);
        let expected = self.held.iter().filter(|(token, (of, _))| gone(token, of));
        assert_eq!(out, expected.map(|(token, _)| *token).collect::<Vec<_>>());
        self.held.retain(|token, (of, _)| !gone(token, of));
    }

    fn dispatch(&mut self) {
        while let Some(d) = self.host.next_dispatch(self.now) {
            let (_, io) = self.held.remove(&d.token).expect("held once");
            self.went.push((d.vm, (self.now, io)));
            self.out.push(d.id);
        }
        let wakes = self.host.next_wakeup();
        assert!(wakes.is_none_or(|at| at > self.now), "{wakes:?} is not after {:?}", self.now);
        assert_eq!((self.host.held(), self.host.outstanding()), (self.held.len(), self.out.len()));
        assert!(self.held.is_empty() || !self.out.is_empty() || wakes.is_some(), "a deadlock");
    }
}

proptest! {
    /// No window of time has more than the limit, none of the IOs is lost, and all of it drains.
    #[test]
    fn limits_hold_in_each_window_of_time(
        limits in prop::collection::vec(limit(), 3),
        shared in limit(),
        mode in prop_oneof![Just(Mode::Parda), Just(Mode::Off), Just(Mode::Static)],
        script in prop::collection::vec(step(), 1..300),
    ) {
        let mut run = Run::new(mode);
        // The first two VMs are of one tenant.
        let tenant = TenantId::of("gold");
        let tenants = [(tenant, Tenant { limit: shared, ..Tenant::default() })];
        run.host.set_tenants(run.now, &tenants);
        let part = |vm: usize| VmConfig {
            limit: limits[vm],
            tenant: (vm < 2).then_some(tenant),
            ..VmConfig::of(Shares(1000))
        };
        let vms: Vec<VmId> = (0..3).map(|vm| run.host.add_vm(run.now, part(vm))).collect();
        let mut left: [Option<usize>; 3] = [None; 3];
        for step in script {
            match step {
                Step::Submit { vm, kib, kind, count } if left[vm].is_none() => {
                    use IoKind::{Discard, Other, Read, Write};
                    let io = Io { kind: [Read, Write, Discard, Other][kind], bytes: Bytes::kib(kib) };
                    (0..count).for_each(|_| run.submit(vms[vm], io));
                }
                Step::Complete { which } if !run.out.is_empty() => {
                    let id = run.out.swap_remove(which % run.out.len());
                    run.host.complete(run.now, id, Outcome::Done).unwrap();
                }
                Step::Pass { micros } => run.now = run.now + Span::from_micros(micros),
                Step::Wake => run.now = run.host.next_wakeup().unwrap_or(run.now).max(run.now),
                Step::Tick => {
                    run.host.hear_tenants(Some(Vec::new()));
                    run.host.tick(run.now, View::Peers(Totals::default()));
                }
                Step::Same { vm } => {
                    run.host.set_vm(run.now, vms[vm], part(vm));
                    run.host.set_tenants(run.now, &tenants);
                }
                Step::Withdraw { vm, every } => run.withdraw(vms[vm], every),
                Step::Remove { vm } => {
                    prop_assert_eq!(run.host.remove_vm(vms[vm]), left[vm].is_none());
                    // What it has held then goes at once.
                    left[vm].get_or_insert(run.went.len());
                }
                _ => {}
            }
            run.dispatch();
        }
        for _ in 0..100_000 {
            if run.held.is_empty() && run.out.is_empty() {
                break;
            }
            match run.out.pop() {
                Some(id) => _ = run.host.complete(run.now, id, Outcome::Done).unwrap(),
                None => run.now = run.host.next_wakeup().expect("what is held goes some time"),
            }
            run.dispatch();
        }
        prop_assert_eq!((run.held.len(), run.out.len()), (0, 0));
        // What a VM sends that was removed is not limited.
        let of = |of: &[usize]| {
            let counts = |(at, (vm, _)): &(usize, &(VmId, Went))| {
                of.iter().any(|i| vms[*i] == *vm && left[*i].is_none_or(|left| *at < left))
            };
            run.went.iter().enumerate().filter(counts).map(|(_, (_, went))| *went).collect::<Vec<_>>()
        };
        for (vm, limit) in limits.iter().enumerate() {
            prop_assert_eq!(within(&of(&[vm]), limit), Ok(()));
        }
        prop_assert_eq!(within(&of(&[0, 1]), &shared), Ok(()), "of the tenant");
    }
}

const READ: Io = Io { kind: IoKind::Read, bytes: Bytes::kib(8) };
const WRITE: Io = Io { kind: IoKind::Write, bytes: Bytes::kib(8) };

/// Runs an array that takes `service` for each IO, however many are outstanding, with a client that keeps `depth` of each of these IOs
/// pending. Gives the IOs of each kind that went in ten seconds, and the times for which they were held by their limit.
fn client(run: &mut Run, vm: VmId, service: Span, ios: &[Io], depth: usize) -> (Vec<u64>, Span) {
    let mut done = vec![0; ios.len()];
    let mut under_way: BTreeMap<(Instant, usize), (IoId, usize)> = BTreeMap::new();
    let (begin, mut limited, mut n) = (run.now, Span::ZERO, 0);
    let mut tick = begin + Span::from_millis(1000);
    for (kind, io) in ios.iter().enumerate() {
        (0..depth).for_each(|_| run.host.submit(run.now, vm, *io, kind as u64));
    }
    loop {
        while let Some(d) = run.host.next_dispatch(run.now) {
            n += 1;
            under_way.insert((run.now + service, n), (d.id, d.token as usize));
        }
        let completes = under_way.first_key_value().map(|((at, _), _)| *at);
        let wakes = run.host.next_wakeup();
        run.now = [completes, wakes, Some(tick)].into_iter().flatten().min().unwrap();
        if run.now.since(begin) > Span::from_millis(10_000) {
            return (done, limited);
        }
        if run.now == tick {
            run.host.tick(run.now, View::Peers(Totals::default()));
            tick = tick + Span::from_millis(1000);
        }
        while let Some(entry) = under_way.first_entry().filter(|entry| entry.key().0 <= run.now) {
            let (id, kind) = entry.remove();
            let completed = run.host.complete(run.now, id, Outcome::Done).unwrap();
            if completed.held_by == HeldBy::Limit {
                limited += completed.held;
            }
            done[kind] += 1;
            run.host.submit(run.now, vm, ios[kind], kind as u64);
        }
    }
}

fn limited(limit: Limit) -> (Run, VmId) {
    let mut run = Run::new(Mode::Parda);
    let vm = run.host.add_vm(run.now, VmConfig { limit, ..VmConfig::of(Shares(1000)) });
    (run, vm)
}

/// Shares and windows hold nothing.
fn off() -> Config {
    Config { law: LawConfig { mode: Mode::Off, ..LawConfig::default() }, ..Config::default() }
}

#[test]
fn a_client_that_wants_more_has_what_its_limit_allows() {
    for rate in [50.0, 500.0, 5000.0, 50_000.0] {
        let iops = Rates { total: Some(Rate::from(rate)), ..Rates::default() };
        let (mut run, vm) = limited(Limit { iops, ..Limit::default() });
        let (done, held) = client(&mut run, vm, Span::from_micros(100), &[READ], 32);
        let iops = done[0] as f64 / 10.0;
        assert!((iops / rate - 1.0).abs() < 0.03, "{iops} of {rate}");
        assert!(held > Span::from_millis(10_000), "{held:?}");
        let part = run.host.part(vm).unwrap();
        assert!(2 * part.limited > part.held, "{part:?}");
        // What its limit holds back is no demand.
        let report = run.host.tick(run.now, View::Peers(Totals::default()));
        assert!(!matches!(report.bounded, parda_control::Bounded::Slices), "{:?}", report.bounded);
    }
}

#[test]
fn a_limit_of_writes_does_not_hold_reads() {
    let iops = Rates { writes: Some(100.0.into()), ..Rates::default() };
    let (mut run, vm) = limited(Limit { iops, ..Limit::default() });
    let (done, _) = client(&mut run, vm, Span::from_millis(1), &[READ, WRITE], 4);
    assert!((990..1020).contains(&done[1]), "{done:?}");
    assert!(done[0] > 38_000, "{done:?}");
}

fn bursting(mean: f64, most: f64, ms: u64) -> Limit {
    let burst = Some(Burst { most, length: Span::from_millis(ms) });
    let iops = Rates { total: Some(Rate { mean, burst }), ..Rates::default() };
    Limit { iops, ..Limit::default() }
}

#[test]
fn a_burst_is_had_once_by_who_did_nothing_for_long() {
    let (mut run, vm) = limited(bursting(100.0, 300.0, 2000));
    run.now = run.now + Span::from_millis(60_000);
    // Three seconds at 300, as the bucket of 600 leaks at 100 meanwhile; seven at 100.
    let (done, _) = client(&mut run, vm, Span::from_millis(1), &[READ], 8);
    assert!((1590..1640).contains(&done[0]), "{done:?}");
}

#[test]
fn a_burst_of_a_second_may_be_had_at_once() {
    let (mut run, vm) = limited(bursting(100.0, 200.0, 1000));
    (0..500).for_each(|_| run.submit(vm, READ));
    run.host.set_config(run.now, off()).unwrap();
    run.dispatch();
    let went = run.went.len();
    assert!(
        (200..=201).contains(&went),
        "{went}: the size of the bucket, and the IO that fills it"
    );
}

#[test]
fn an_io_counts_as_often_as_the_size_goes_into_it() {
    let iops = Rates { total: Some(100.0.into()), ..Rates::default() };
    for (kib, each) in [(4, 1.0), (8, 1.0), (12, 1.5), (64, 8.0)] {
        let limit = Limit { iops, io_size: Some(8192.0), ..Limit::default() };
        let (mut run, vm) = limited(limit);
        let io = Io { bytes: Bytes::kib(kib), ..READ };
        let (done, _) = client(&mut run, vm, Span::from_millis(1), &[io], 16);
        let units = done[0] as f64 * each;
        assert!((1000.0..1020.0 + each).contains(&units), "{kib} KiB: {units}");
    }
}

#[test]
fn reads_and_writes_take_turns_at_a_limit_of_both() {
    let iops = Rates { total: Some(200.0.into()), ..Rates::default() };
    let (mut run, vm) = limited(Limit { iops, ..Limit::default() });
    let (done, _) = client(&mut run, vm, Span::from_millis(1), &[READ, WRITE], 16);
    assert!(done[0].abs_diff(done[1]) < 40, "{done:?}");
}

/// When two reads go, the second of another VM, after so many were withdrawn that came with one that went. The limit is that of both VMs'
/// tenant or of each.
fn after_a_withdrawal(of_tenant: bool, withdrawn: usize) -> Vec<Instant> {
    let iops = Rates { total: Some(10.0.into()), ..Rates::default() };
    let limit = Limit { iops, ..Limit::default() };
    let (mut run, tenant) = (Run::new(Mode::Parda), TenantId::of("gold"));
    let mut part = VmConfig { limit, ..VmConfig::of(Shares(1000)) };
    if of_tenant {
        part = VmConfig { tenant: Some(tenant), ..VmConfig::of(Shares(1000)) };
        run.host.set_tenants(run.now, &[(tenant, Tenant { limit, ..Tenant::default() })]);
    }
    let vms = [run.host.add_vm(run.now, part), run.host.add_vm(run.now, part)];
    (0..=withdrawn).for_each(|_| run.submit(vms[0], READ));
    run.dispatch();
    run.withdraw(vms[0], 1);
    assert_eq!((run.host.held(), run.host.part(vms[0]).unwrap().held), (0, 0));
    let went = |vm: VmId| {
        let before = run.went.len();
        run.submit(vm, READ);
        run.dispatch();
        while run.went.len() == before {
            run.now = run.host.next_wakeup().unwrap();
            run.dispatch();
        }
        run.now
    };
    vms.into_iter().map(went).collect()
}

#[test]
fn what_is_withdrawn_takes_nothing_of_a_limit() {
    for of_tenant in [false, true] {
        assert_eq!(after_a_withdrawal(of_tenant, 200), after_a_withdrawal(of_tenant, 0));
    }
}

#[test]
fn what_is_hastened_goes_at_once_and_counts() {
    let iops = Rates { total: Some(10.0.into()), ..Rates::default() };
    let (mut run, vm) = limited(Limit { iops, ..Limit::default() });
    (0..20).for_each(|_| run.submit(vm, READ));
    run.dispatch();
    run.host.hasten(run.now, vm, |token| token <= 15);
    while let Some(id) = run.out.pop() {
        run.host.complete(run.now, id, Outcome::Done).unwrap();
        run.dispatch();
    }
    assert_eq!((run.went.len(), run.now), (15, Instant(0)));
    while run.went.len() == 15 {
        run.now = run.host.next_wakeup().unwrap();
        run.dispatch();
    }
    let paid = run.now.since(Instant(0));
    assert!((1300..1600).contains(&(paid.0 / 1_000_000)), "the next one waits for all: {paid:?}");
}

#[test]
fn a_limit_changes_and_goes_at_once() {
    let of = |rate: Option<f64>| Limit {
        iops: Rates { total: rate.map(Rate::from), ..Rates::default() },
        ..Limit::default()
    };
    let (mut run, vm) = limited(of(Some(0.1)));
    (0..5).for_each(|_| run.submit(vm, READ));
    run.dispatch();
    assert_eq!(run.out.len(), 1, "the next one goes in ten seconds");
    run.now = run.now + Span::from_millis(1);
    run.host.set_vm(run.now, vm, VmConfig { limit: of(Some(10.0)), ..VmConfig::of(Shares(1000)) });
    run.dispatch();
    assert_eq!(
        run.out.len(),
        2,
        "a debt is of IOs: one at ten a second, and as much is the size of the bucket"
    );
    run.now = run.now + Span::from_millis(106);
    run.dispatch();
    assert_eq!(run.out.len(), 3);
    run.host.set_vm(run.now, vm, VmConfig::of(Shares(1000)));
    run.dispatch();
    assert_eq!(run.out.len(), 4, "as the window allows");
}

#[test]
fn a_lower_limit_after_a_burst_does_not_stop_the_disk() {
    let of = |limit| VmConfig { limit, ..VmConfig::of(Shares(1000)) };
    let rate = |mean| bursting(mean, mean, 0);
    // Another rate, the same one without the burst, and the same burst, shorter.
    for lower in [rate(10.0), rate(200.0), bursting(200.0, 1000.0, 100)] {
        let mut run = Run::new(Mode::Parda);
        run.now = Instant(0) + Span::from_millis(60_000);
        let vm = run.host.add_vm(run.now, of(bursting(200.0, 1000.0, 10_000)));
        client(&mut run, vm, Span::from_millis(1), &[READ], 8);
        run.host.set_vm(run.now, vm, of(lower));
        let before = run.now;
        while run.host.next_dispatch(run.now).is_none() {
            run.now = run.host.next_wakeup().unwrap();
        }
        let waited = run.now.since(before);
        assert!(waited <= Span::from_millis(1110), "{lower:?}: {waited:?}");
    }
}

#[test]
fn another_rate_of_a_limit_forgets_nothing_of_those_that_stay() {
    let bandwidth = Rates { total: Some(1e6.into()), ..Rates::default() };
    let (mut run, vm) = limited(Limit { bandwidth, ..Limit::default() });
    run.host.set_config(run.now, off()).unwrap();
    (0..100).for_each(|_| run.submit(vm, READ));
    run.dispatch();
    let before = run.went.len();
    let iops = Rates { total: Some(1e6.into()), ..Rates::default() };
    let limit = Limit { iops, bandwidth, io_size: None };
    run.host.set_vm(run.now, vm, VmConfig { limit, ..VmConfig::of(Shares(1000)) });
    run.dispatch();
    assert_eq!((before, run.went.len()), (13, 13));
}

#[test]
fn what_waits_for_its_turn_is_held_by_a_limit_that_is_lowered() {
    let of = |rate| {
        let iops = Rates { total: Some(Rate::from(rate)), ..Rates::default() };
        VmConfig { limit: Limit { iops, ..Limit::default() }, ..VmConfig::of(Shares(1000)) }
    };
    let mut run = Run::new(Mode::Parda);
    let vm = run.host.add_vm(run.now, of(100.0));
    (0..100).for_each(|_| run.submit(vm, READ));
    run.dispatch();
    assert_eq!(run.out.len(), 4, "the first window, and within the limit");
    run.host.set_vm(run.now, vm, of(10.0));
    while run.now < Instant(0) + Span::from_millis(1000) {
        run.out.drain(..).for_each(|id| _ = run.host.complete(run.now, id, Outcome::Done));
        run.dispatch();
        run.now = run.now + Span::from_millis(1);
    }
    assert!(run.went.len() <= 4 + 10, "{} IOs in a second", run.went.len());
}

#[test]
fn the_last_ios_of_a_vm_that_is_removed_are_not_limited() {
    let iops = Rates { total: Some(0.001.into()), ..Rates::default() };
    let (mut run, vm) = limited(Limit { iops, ..Limit::default() });
    (0..3).for_each(|_| run.submit(vm, READ));
    run.dispatch();
    assert_eq!((run.out.len(), run.host.held()), (1, 2));
    run.host.remove_vm(vm);
    run.dispatch();
    assert_eq!((run.out.len(), run.host.held()), (3, 0));
}

#[test]
fn who_observes_holds_nothing() {
    let mut run = Run::new(Mode::Observe);
    let iops = Rates { total: Some(1.0.into()), ..Rates::default() };
    let vm = run.host.add_vm(
        run.now,
        VmConfig { limit: Limit { iops, ..Limit::default() }, ..VmConfig::of(Shares(1)) },
    );
    (0..50).for_each(|_| run.submit(vm, READ));
    run.dispatch();
    assert_eq!(run.out.len(), 50);
}

#[test]
fn a_vm_at_its_own_limit_keeps_nobody_of_its_tenant_waiting() {
    let tenant = TenantId::of("gold");
    let rate = |rate| Limit {
        iops: Rates { total: Some(Rate::from(rate)), ..Rates::default() },
        ..Limit::default()
    };
    let mut run = Run::new(Mode::Off);
    run.host.set_tenants(run.now, &[(tenant, Tenant { limit: rate(1e6), ..Tenant::default() })]);
    let part = VmConfig { tenant: Some(tenant), ..VmConfig::of(Shares(1000)) };
    let slow = run.host.add_vm(run.now, VmConfig { limit: rate(1.0), ..part });
    let quick = run.host.add_vm(run.now, part);
    (0..10).for_each(|_| run.submit(slow, READ));
    run.dispatch();
    assert_eq!(run.went.len(), 1, "the rest waits for its own limit");
    (0..5).for_each(|_| run.submit(quick, READ));
    run.dispatch();
    assert_eq!(run.went.len(), 6);
}

#[test]
fn vms_of_a_tenant_divide_its_limit_by_their_shares() {
    let tenant = TenantId::of("gold");
    let iops = Rates { total: Some(600.0.into()), ..Rates::default() };
    let limit = Limit { iops, ..Limit::default() };
    let mut run = Run::new(Mode::Parda);
    run.host.set_tenants(run.now, &[(tenant, Tenant { limit, ..Tenant::default() })]);
    let vm = |shares| VmConfig { tenant: Some(tenant), ..VmConfig::of(Shares(shares)) };
    let vms = [1000, 2000, 3000].map(|shares| run.host.add_vm(run.now, vm(shares)));
    // Whoever comes first, and however deep its queue is.
    let depths = [64, 4, 16];
    let mut pending = [0; 3];
    while run.now < Instant(0) + Span::from_millis(10_000) {
        for (i, vm) in vms.into_iter().enumerate() {
            (pending[i]..depths[i]).for_each(|_| run.submit(vm, READ));
            pending[i] = depths[i];
        }
        run.dispatch();
        for id in run.out.drain(..) {
            let done = run.host.complete(run.now, id, Outcome::Done).unwrap();
            pending[vms.iter().position(|vm| *vm == done.vm).unwrap()] -= 1;
        }
        run.now = run.now + Span::from_millis(1);
    }
    let went = vms.map(|vm| run.went.iter().filter(|(of, _)| *of == vm).count() as f64);
    let sum: f64 = went.iter().sum();
    for (went, part) in went.iter().zip([1.0, 2.0, 3.0]) {
        assert!((went / sum * 6.0 / part - 1.0).abs() < 0.03, "{went} of {sum}");
    }
}

#[test]
fn a_window_that_holds_a_vm_below_its_limit_is_the_cause() {
    // One IO at a time, of 20 ms and of 100 ms.
    for (rate, ms) in [(200.0, 20), (50.0, 100)] {
        let iops = Rates { total: Some(Rate::from(rate)), ..Rates::default() };
        let (mut run, vm) = limited(Limit { iops, ..Limit::default() });
        let law = LawConfig { mode: Mode::Static, window_max: Window(1.0), ..LawConfig::default() };
        run.host.set_config(run.now, Config { law, ..Config::default() }).unwrap();
        let (done, limited) = client(&mut run, vm, Span::from_millis(ms), &[READ], 64);
        assert!((9_800..=10_000).contains(&(done[0] * ms)), "{done:?} of {ms} ms");
        assert_eq!(limited, Span::ZERO);
        let part = run.host.part(vm).unwrap();
        assert_eq!((part.limited, part.held), (0, 63));
    }
}
