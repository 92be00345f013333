//! What callers may rely on, whatever the array is made of and whatever is asked of it.

use parda_array::{
    Array, ArrayIo, ArrayParams, Bytes, ControllerParams, DriveModel, FaultError, IoKind, IoTag,
    LunId, Nanos, Placement, PrefetchParams, Preset, RaidLevel, Scheduling, SubmitError,
    WriteCacheParams,
};
use proptest::prelude::*;

/// An IO and how long after the one before it is submitted.
type Script = Vec<(Nanos, ArrayIo)>;

type Completions = Vec<(Nanos, IoTag)>;

const LUN: u64 = 1 << 30;

fn devices() -> impl Strategy<Value = DriveModel> {
    let schedulings =
        prop_oneof![Just(Scheduling::Sptf), Just(Scheduling::Fcfs), Just(Scheduling::Elevator)];
    let disk = (1_u32..12, schedulings, 0_u64..3).prop_map(|(depth, scheduling, cache)| {
        let mut device = Preset::Cx340Raid0.params().drive;
        let disk = device.disk_mut().expect("the preset's drives are disks");
        disk.queue_depth = depth;
        disk.scheduling = scheduling;
        disk.write_cache = Bytes::kib(256 * cache);
        device
    });
    let flash = (1_u32..12).prop_map(|depth| {
        let mut device = Preset::FlashSata.params().drive;
        *device.queue_depth_mut() = depth;
        device
    });
    prop_oneof![3 => disk, 1 => flash]
}

fn controllers() -> impl Strategy<Value = ControllerParams> {
    (any::<bool>(), 0_u64..4, 0_u32..3).prop_map(|(front_end, cache_mib, after)| {
        let preset = Preset::Cx340Raid0.params().controller;
        let caches = (preset.write_cache.expect("has one"), preset.prefetch.expect("has one"));
        let write_cache = WriteCacheParams { capacity: Bytes::mib(cache_mib), ..caches.0 };
        let prefetch = PrefetchParams { after, ..caches.1 };
        ControllerParams {
            io_cost: if front_end { preset.io_cost } else { Nanos::ZERO },
            write_cache: (cache_mib > 0).then_some(write_cache),
            prefetch: (after > 0).then_some(prefetch),
            ..preset
        }
    })
}

fn arrays() -> impl Strategy<Value = ArrayParams> {
    let levels =
        prop_oneof![Just(RaidLevel::Raid0), Just(RaidLevel::Raid5), Just(RaidLevel::Raid10)];
    let placements = prop_oneof![
        (0_u64..1 << 30).prop_map(|gap| Placement::Contiguous { gap: Bytes(gap) }),
        (1_u64..64).prop_map(|m| Placement::Interleaved { extent: Bytes::mib(m) }),
    ];
    (levels, 2_u32..5, devices(), controllers(), placements).prop_map(
        |(level, pairs, drive, controller, placement)| {
            let mut params = Preset::Cx340Raid0.params();
            params.raid.level = level;
            params.raid.drives = 2 * pairs;
            params.drive = drive;
            params.controller = controller;
            params.layout.placement = placement;
            params.layout.luns = vec![Bytes(LUN); 3];
            params
        },
    )
}

fn scripts() -> impl Strategy<Value = Script> {
    // Some places are met again, so that caches have something to say.
    let offsets = prop_oneof![0..LUN - (1 << 20), (0_u64..8).prop_map(|place| place << 19)];
    let ios = (0_u32..3, any::<bool>(), offsets, prop_oneof![1_u64..1 << 20, Just(1 << 19)])
        .prop_map(|(lun, read, offset, len)| ArrayIo {
            lun: LunId(lun),
            kind: if read { IoKind::Read } else { IoKind::Write },
            offset: Bytes(offset),
            len: Bytes(len),
        });
    prop::collection::vec(((0_u64..20_000_000).prop_map(Nanos), ios), 1..60)
}

fn fetch(array: &mut Array, into: &mut Completions) {
    into.extend(std::iter::from_fn(|| array.pop_completion()));
}

/// Plays a script to a caller who comes on time.
fn on_time(params: &ArrayParams, script: &Script) -> Completions {
    let mut array = Array::new(params.clone()).expect("a possible array");
    let (mut now, mut completions) = (Nanos::ZERO, Vec::new());
    for (i, (pause, io)) in script.iter().enumerate() {
        now = now + *pause;
        while let Some(next) = array.next_event().filter(|next| *next <= now) {
            array.advance(next);
            fetch(&mut array, &mut completions);
        }
        array.submit(now, IoTag(i as u64), *io).expect("the IO lies on its LUN");
    }
    while let Some(next) = array.next_event() {
        array.advance(next);
        fetch(&mut array, &mut completions);
    }
    assert_eq!(array.outstanding(), 0);
    completions
}

/// Plays a script to a caller who only ever comes to submit, and then long after the end.
fn late(params: &ArrayParams, script: &Script) -> Completions {
    let mut array = Array::new(params.clone()).expect("a possible array");
    let (mut now, mut completions) = (Nanos::ZERO, Vec::new());
    for (i, (pause, io)) in script.iter().enumerate() {
        now = now + *pause;
        array.submit(now, IoTag(i as u64), *io).expect("the IO lies on its LUN");
    }
    array.advance(now + Nanos::from_millis(3_600_000));
    fetch(&mut array, &mut completions);
    completions
}

/// No IO is faster than the front end and the link: what is cached waits for no drive.
fn least(params: &ArrayParams, io: &ArrayIo) -> Nanos {
    let link = io.len.0 as f64 / params.controller.link.0 as f64;
    params.controller.io_cost + Nanos((link * 1e9) as u64)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn every_io_completes_once_in_order_and_not_too_soon(
        params in arrays(), script in scripts(),
    ) {
        let completions = on_time(&params, &script);
        prop_assert!(completions.windows(2).all(|w| w[0].0 <= w[1].0));
        let mut ids: Vec<u64> = completions.iter().map(|(_, id)| id.0).collect();
        ids.sort_unstable();
        prop_assert_eq!(ids, (0..script.len() as u64).collect::<Vec<_>>());
        let mut submitted = Vec::new();
        let mut now = Nanos::ZERO;
        for (pause, _) in &script {
            now = now + *pause;
            submitted.push(now);
        }
        for (at, id) in completions {
            let i = id.0 as usize;
            prop_assert!(at >= submitted[i] + least(&params, &script[i].1));
        }
    }

    #[test]
    fn lateness_changes_nothing(params in arrays(), script in scripts()) {
        prop_assert_eq!(late(&params, &script), on_time(&params, &script));
    }

    #[test]
    fn the_same_calls_give_the_same_answers(params in arrays(), script in scripts()) {
        prop_assert_eq!(on_time(&params, &script), on_time(&params, &script));
    }
}

/// What happens to an array beside IO.
#[derive(Clone, Copy, Debug)]
enum Event {
    Fail(u32),
    Rebuild,
    WriteCache(bool),
    Slow(f64),
}

fn events() -> impl Strategy<Value = Vec<(usize, Event)>> {
    let event = prop_oneof![
        (0_u32..4).prop_map(Event::Fail),
        Just(Event::Rebuild),
        any::<bool>().prop_map(Event::WriteCache),
        (0.01..100.0).prop_map(Event::Slow),
    ];
    prop::collection::vec((0_usize..60, event), 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Drives that fail and are rebuilt, a cache that goes off and on: no IO is lost or done twice.
    #[test]
    fn no_fault_loses_an_io(params in arrays(), script in scripts(), events in events()) {
        let mut params = params;
        params.layout.luns = vec![Bytes(LUN / 8); 3];
        let mut array = Array::new(params).unwrap();
        let (mut now, mut completions) = (Nanos::ZERO, Vec::new());
        for (i, (pause, io)) in script.iter().enumerate() {
            now = now + *pause;
            let io = ArrayIo { offset: Bytes(io.offset.0 % (LUN / 16)), ..*io };
            array.submit(now, IoTag(i as u64), io).unwrap();
            for (_, event) in events.iter().filter(|(at, _)| *at == i) {
                let _refused = match event {
                    Event::Fail(drive) => array.fail_drive(now, *drive),
                    Event::Rebuild => array.start_rebuild(now),
                    Event::WriteCache(on) => array.set_write_cache(now, *on),
                    Event::Slow(slow) => array.set_slow(now, *slow),
                };
            }
        }
        let _refused = array.start_rebuild(now);
        while let Some(next) = array.next_event() {
            array.advance(next);
            fetch(&mut array, &mut completions);
        }
        prop_assert_eq!((array.outstanding(), array.rebuilt_fraction()), (0, None));
        let mut ids: Vec<u64> = completions.iter().map(|(_, id)| id.0).collect();
        ids.sort_unstable();
        prop_assert_eq!(ids, (0..script.len() as u64).collect::<Vec<_>>());
    }
}

#[test]
fn impossible_faults_are_refused() {
    let mut array = Array::new(Preset::Cx340Raid0.params()).unwrap();
    let now = Nanos::from_millis(5);
    assert_eq!(array.fail_drive(now, 3), Err(FaultError::NoRedundancy { drive: 3 }));
    assert_eq!(array.start_rebuild(now), Err(FaultError::NothingToRebuild));
    let mut array = Array::new(Preset::Cx340Raid5Vms.params()).unwrap();
    assert_eq!(array.fail_drive(now, 5), Err(FaultError::UnknownDrive { drive: 5, drives: 5 }));
    assert_eq!(array.fail_drive(now, 1), Ok(()));
    let again = array.fail_drive(now, 2);
    assert_eq!(again, Err(FaultError::AlreadyDegraded { drive: 2, missing: 1 }));
    let back = array.start_rebuild(Nanos::ZERO);
    assert_eq!(back, Err(FaultError::TimeRanBack { now: Nanos::ZERO, clock: now }));
    assert_eq!(array.rebuilt_fraction(), Some(0.0));
    assert_eq!(array.start_rebuild(now), Ok(()));
    assert_eq!(array.start_rebuild(now), Err(FaultError::AlreadyRebuilding { drive: 1 }));
    let mut array = Array::new(Preset::Drive7200.params()).unwrap();
    assert_eq!(array.set_write_cache(now, false), Err(FaultError::NoWriteCache));
    for slow in [0.0, -1.0, 101.0, f64::NAN] {
        assert!(matches!(array.set_slow(now, slow), Err(FaultError::Slow { .. })), "{slow}");
    }
}

/// What `count` reads with `depth` outstanding take on average, from `now` on.
#[expect(clippy::unwrap_used, reason = "clippy knows tests by #[test]")]
fn closed_loop(array: &mut Array, mut now: Nanos, depth: u64, count: u64) -> (f64, Nanos) {
    let io = |i: u64| read(Bytes::kib(4 * (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 100_000_000)));
    let mut begun: Vec<Nanos> = Vec::new();
    let mut latency = 0.0;
    for i in 0..depth {
        array.submit(now, IoTag(i), io(i)).unwrap();
        begun.push(now);
    }
    for i in depth..depth + count {
        let (at, IoTag(done)) = loop {
            if let Some(done) = array.pop_completion() {
                break done;
            }
            array.advance(array.next_event().unwrap());
        };
        now = at;
        latency += now.secs() - begun[done as usize].secs();
        if i < count {
            array.submit(now, IoTag(i), io(i)).unwrap();
            begun.push(now);
        }
    }
    (latency / count as f64, now)
}

#[test]
fn slow_drives_take_so_much_longer_at_any_load_and_recover() {
    for depth in [1, 16] {
        let mut array = Array::new(Preset::Drive7200.params()).unwrap();
        let (made, end) = closed_loop(&mut array, Nanos::ZERO, depth, 500);
        array.set_slow(end, 2.0).unwrap();
        let (slow, end) = closed_loop(&mut array, end, depth, 500);
        array.set_slow(end, 1.0).unwrap();
        let (again, _) = closed_loop(&mut array, end, depth, 500);
        assert!((slow / made - 2.0).abs() < 0.1, "depth {depth}: {made} {slow}");
        assert!((again / made - 1.0).abs() < 0.05, "depth {depth}: {made} {again}");
    }
}

fn read(offset: Bytes) -> ArrayIo {
    ArrayIo { lun: LunId(0), kind: IoKind::Read, offset, len: Bytes::kib(4) }
}

#[test]
fn a_refused_io_leaves_no_trace() {
    let mut array = Array::new(Preset::Drive7200.params()).unwrap();
    array.submit(Nanos(500), IoTag(1), read(Bytes(0))).unwrap();
    let next = array.next_event();
    let back = array.submit(Nanos(499), IoTag(2), read(Bytes(0)));
    assert_eq!(back, Err(SubmitError::TimeRanBack { now: Nanos(499), clock: Nanos(500) }));
    let outside = array.submit(Nanos::from_millis(900), IoTag(3), read(Bytes::gib(478)));
    assert!(matches!(outside, Err(SubmitError::OutOfRange { .. })));
    assert_eq!((array.next_event(), array.outstanding()), (next, 1));
    array.submit(Nanos(501), IoTag(4), read(Bytes(0))).unwrap();
}

#[test]
fn an_unfetched_completion_is_due_at_its_own_time() {
    let mut array = Array::new(Preset::Drive7200.params()).unwrap();
    assert_eq!(array.next_event(), None);
    array.submit(Nanos::ZERO, IoTag(1), read(Bytes::gib(100))).unwrap();
    array.advance(Nanos::from_millis(1_000));
    array.advance(Nanos::from_millis(10));
    let due = array.next_event();
    assert!(due.is_some_and(|due| due < Nanos::from_millis(40)));
    assert_eq!(array.pop_completion(), due.map(|due| (due, IoTag(1))));
    assert_eq!((array.pop_completion(), array.next_event()), (None, None));
}

#[test]
fn what_would_end_after_the_end_of_time_never_does() {
    let mut params = Preset::Cx340Raid5Vms.params();
    params.controller.write_cache = None;
    let mut array = Array::new(params).unwrap();
    let write = ArrayIo { kind: IoKind::Write, ..read(Bytes(0)) };
    let last = Nanos(Nanos::NEVER.0 - 1_000_000);
    for id in 0..200 {
        array.submit(last, IoTag(id), write).unwrap();
    }
    array.advance(Nanos::NEVER);
    assert_eq!((array.pop_completion(), array.next_event()), (None, None));
    assert_eq!(array.outstanding(), 200);
}
