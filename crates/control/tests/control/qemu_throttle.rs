//! Limits against QEMU's throttle groups: the same clients do as many IOs under both. The oracle is made from the equations of QEMU's
//! `docs/throttle.txt`: each rate has a bucket that leaks at the rate, and whose size is `max · length`, or a tenth of a second of the
//! rate. Where the length is above one second, a second bucket leaks at `max`, with a tenth of a second of that as its size. An IO goes
//! while no bucket that counts it is above its size.

use parda_control::law::{LawConfig, Mode};
use parda_control::{
    Burst, Bytes, Config, Instant, Io, IoKind, Limit, Outcome, Rate, Rates, Shares, Span, VmConfig,
};
use proptest::prelude::*;

use crate::common::GovernedHost;

/// When IOs are counted, in seconds.
const LOOKS: [f64; 4] = [1.0, 5.0, 30.0, 60.0];

/// A rate as QEMU is given it: `avg`, and `max` with its length in whole seconds.
#[derive(Clone, Copy, Debug)]
struct Keys {
    avg: f64,
    max: Option<(f64, u32)>,
}

#[derive(Clone, Copy, Debug)]
struct Throttle {
    /// Of both directions, of reads, of writes.
    iops: [Option<Keys>; 3],
    bps: [Option<Keys>; 3],
    iops_size: Option<f64>,
}

struct Leaky {
    keys: Keys,
    level: f64,
    burst_level: f64,
}

impl Leaky {
    fn leak(&mut self, seconds: f64) {
        self.level = f64::max(0.0, self.level - self.keys.avg * seconds);
        let burst = self.keys.max.map_or(0.0, |(max, _)| max);
        self.burst_level = f64::max(0.0, self.burst_level - burst * seconds);
    }

    /// Seconds until it is not above its size.
    fn wait(&self) -> f64 {
        let Keys { avg, max } = self.keys;
        let size = max.map_or(avg / 10.0, |(max, length)| max * f64::from(length));
        let own = (self.level - size) / avg;
        let burst = max.filter(|(_, length)| *length > 1);
        let burst = burst.map_or(0.0, |(max, _)| (self.burst_level - max / 10.0) / max);
        own.max(burst).max(0.0)
    }
}

/// IOs that QEMU lets through until each look, of clients that always have an IO waiting in each of these directions.
fn qemu(throttle: &Throttle, ios: &[Io]) -> Vec<u64> {
    let leaky = |keys: &Option<Keys>| keys.map(|keys| Leaky { keys, level: 0.0, burst_level: 0.0 });
    let mut buckets = [throttle.iops.each_ref().map(leaky), throttle.bps.each_ref().map(leaky)];
    let (mut now, mut done, mut counts) = (0.0, 0, Vec::new());
    let mut turn = 0;
    // Which buckets count an IO: those of both directions and of its own.
    let counted = |io: &Io| if io.kind == IoKind::Read { [0, 1] } else { [0, 2] };
    loop {
        let wait = |io: &Io| {
            let of = counted(io).into_iter().flat_map(|at| [&buckets[0][at], &buckets[1][at]]);
            of.flatten().fold(0.0, |most, bucket| f64::max(most, bucket.wait()))
        };
        let waits: Vec<f64> = ios.iter().map(wait).collect();
        let least = waits.iter().copied().fold(f64::INFINITY, f64::min);
        if now + least > LOOKS[counts.len()] {
            let step = LOOKS[counts.len()] - now;
            buckets.iter_mut().flatten().flatten().for_each(|bucket| bucket.leak(step));
            now = LOOKS[counts.len()];
            counts.push(done);
            if counts.len() == LOOKS.len() {
                return counts;
            }
            continue;
        }
        if least > 0.0 {
            // What is rounded away would be waited for without end.
            let step = least + 1e-9;
            buckets.iter_mut().flatten().flatten().for_each(|bucket| bucket.leak(step));
            now += step;
            continue;
        }
        let next = (turn..turn + ios.len()).map(|at| at % ios.len()).find(|at| waits[*at] <= 0.0);
        let next = next.unwrap_or(0);
        turn = next + 1;
        let bytes = ios[next].bytes.0 as f64;
        let units = throttle.iops_size.map_or(1.0, |size| f64::max(1.0, bytes / size));
        for at in counted(&ios[next]) {
            for (of, units) in buckets.iter_mut().zip([units, bytes]) {
                if let Some(bucket) = &mut of[at] {
                    bucket.level += units;
                    bucket.burst_level += units;
                }
            }
        }
        done += 1;
    }
}

/// The same in parda.
fn parda(throttle: &Throttle, ios: &[Io]) -> Vec<u64> {
    let rate = |keys: Keys| {
        let burst =
            keys.max.map(|(most, length)| (most, Span::from_millis(1000 * u64::from(length))));
        Rate { mean: keys.avg, burst: burst.map(|(most, length)| Burst { most, length }) }
    };
    let rates = |of: [Option<Keys>; 3]| {
        let [total, reads, writes] = of.map(|keys| keys.map(rate));
        Rates { total, reads, writes }
    };
    let (iops, bandwidth) = (rates(throttle.iops), rates(throttle.bps));
    let limit = Limit { iops, bandwidth, io_size: throttle.iops_size };
    let law = LawConfig { mode: Mode::Off, ..LawConfig::default() };
    let mut host = GovernedHost::new(Instant(0), Config { law, ..Config::default() }).unwrap();
    let mut now = Instant(0);
    let vm = host.add_vm(now, VmConfig { limit, ..VmConfig::of(Shares(1000)) });
    let (mut done, mut counts) = (0, Vec::new());
    for kind in (0..ios.len()).cycle().take(32 * ios.len()) {
        host.submit(now, vm, ios[kind], kind as u64);
    }
    loop {
        while let Some(dispatch) = host.next_dispatch(now) {
            host.complete(now, dispatch.id, Outcome::Done).unwrap();
            done += 1;
            host.submit(now, vm, ios[dispatch.token as usize], dispatch.token);
        }
        let look = Instant(0) + Span::from_secs(LOOKS[counts.len()]);
        now = host.next_wakeup().unwrap_or(look).min(look);
        if now == look {
            counts.push(done);
            if counts.len() == LOOKS.len() {
                return counts;
            }
        }
    }
}

/// Both, and whether they are within 3 % at each look, and what goes in 10 ms besides: parda lets IOs go in groups.
fn race(throttle: &Throttle, ios: &[Io]) -> Result<(), String> {
    let (theirs, ours) = (qemu(throttle, ios), parda(throttle, ios));
    let near = theirs.iter().zip(&ours).zip(LOOKS).all(|((theirs, ours), look)| {
        let group = 2.0 + 0.01 * *theirs as f64 / look;
        theirs.abs_diff(*ours) as f64 <= 0.03 * *theirs as f64 + group
    });
    if near {
        Ok(())
    } else {
        Err(format!("{throttle:?} {ios:?}: QEMU {theirs:?}, parda {ours:?}"))
    }
}

fn keys(of: std::ops::Range<f64>) -> impl Strategy<Value = Keys> {
    let max = prop::option::of((1.0..50.0f64, prop_oneof![Just(1), 1..90u32]));
    (of, max).prop_map(|(avg, max)| {
        let avg = avg.round();
        Keys { avg, max: max.map(|(factor, length)| ((avg * factor).round(), length)) }
    })
}

fn three(of: std::ops::Range<f64>) -> impl Strategy<Value = [Option<Keys>; 3]> {
    let keys = move || keys(of.clone());
    // QEMU takes either one rate for both directions or one for each.
    prop_oneof![
        keys().prop_map(|total| [Some(total), None, None]),
        (keys(), keys()).prop_map(|(reads, writes)| [None, Some(reads), Some(writes)]),
    ]
}

const KIB: fn(IoKind, u64) -> Io = |kind, kib| Io { kind, bytes: Bytes::kib(kib) };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_client_does_as_many_ios_as_under_qemus_throttle(
        iops in prop::option::weighted(0.8, three(5.0..400.0)),
        bps in prop::option::weighted(0.4, three(1e5..2e7)),
        iops_size in prop::option::of(1000.0..70_000.0f64),
        reads in 1..128u64,
        writes in 1..128u64,
        which in 0..3usize,
    ) {
        let (iops, bps) = (iops.unwrap_or_default(), bps.unwrap_or_default());
        let both = [KIB(IoKind::Read, reads), KIB(IoKind::Write, writes)];
        let ios = [&both[..1], &both[1..], &both[..]][which];
        let bounds = |io: &Io| {
            let own = if io.kind == IoKind::Read { 1 } else { 2 };
            [iops, bps].iter().any(|rates| rates[0].or(rates[own]).is_some())
        };
        prop_assume!(ios.iter().all(bounds));
        prop_assert_eq!(race(&Throttle { iops, bps, iops_size }, ios), Ok(()));
    }
}

/// Cases as people have reported them.
#[test]
fn bursts_that_people_know_are_those_of_qemu() {
    let keys = |avg, max, length| Keys { avg, max: Some((max, length)) };
    let plain = |avg| Keys { avg, max: None };
    let read = KIB(IoKind::Read, 4);
    let none = Throttle { iops: [None; 3], bps: [None; 3], iops_size: None };
    let iops = |keys| Throttle { iops: [Some(keys), None, None], ..none };
    // A burst of a second may be used at once; one of 30 s from 1,000 to 1,200 IO/s lasts 180 s.
    let (at_once, long) = (iops(keys(100.0, 200.0, 1)), iops(keys(1000.0, 1200.0, 30)));
    assert_eq!(race(&at_once, &[read]), Ok(()));
    assert_eq!(race(&long, &[read]), Ok(()));
    assert!(parda(&long, &[read])[3] > 60 * 1190);
    // Each rate has its own burst: one of IOs beside a bandwidth without.
    let mut beside = iops(keys(40.0, 3000.0, 10));
    beside.bps[0] = Some(plain(125_829_120.0));
    assert_eq!(race(&beside, &[read]), Ok(()));
    assert!(parda(&beside, &[read])[1] > 5 * 2900);
    // An IO of 64 KiB is eight of 8 KiB.
    let sized = Throttle { iops_size: Some(8192.0), ..iops(plain(400.0)) };
    assert_eq!(race(&sized, &[KIB(IoKind::Write, 64)]), Ok(()));
    assert!(parda(&sized, &[KIB(IoKind::Write, 64)])[3] < 60 * 51);
}
