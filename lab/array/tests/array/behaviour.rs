//! What caches, faults and kinds of drives do to throughput and latency.

use crate::closed_loop;

use closed_loop::{Access, Client, Seen, Window, run};
use parda_array::{
    Array, ArrayIo, ArrayParams, Bytes, ControllerParams, IoKind, IoTag, LunId, Nanos, Preset,
    RaidLevel, Rate, ReadCacheParams,
};

fn seconds(warm: u64, measure: u64) -> Window {
    let [warm, measure] = [warm, measure].map(|s| Nanos::from_millis(1_000 * s));
    Window { warm, measure }
}

fn client(outstanding: usize, kib: u64, read_percent: u32, access: Access) -> Client {
    Client { lun: LunId(0), outstanding, len: Bytes::kib(kib), read_percent, access }
}

fn measure(params: ArrayParams, client: Client, window: Window) -> Seen {
    run(&mut Array::new(params).expect("a possible array"), &[client], window, 1).0
}

#[track_caller]
fn within(what: &str, measured: f64, expected: f64, tolerance: f64) {
    let off = measured / expected - 1.0;
    assert!(off.abs() <= tolerance, "{what}: {measured:.2}, expected {expected} ({off:+.3})");
}

/// While there is room a write costs the front end, the link and the mirror; then it waits for the
/// drives.
#[test]
fn a_full_cache_makes_writes_wait() {
    let writes = client(1, 16, 0, Access::Random);
    let first = measure(Preset::Cx340Raid0.params(), writes, seconds(0, 5));
    within("one write, in ms", first.mean_ms, 0.0356 + 16.384 / 177.0 + 0.3, 0.01);
    let many = client(64, 16, 0, Access::Random);
    let (early, late) = (seconds(1, 5), seconds(60, 20));
    let early = measure(Preset::Cx340Raid0.params(), many, early);
    let late = measure(Preset::Cx340Raid0.params(), many, late);
    assert!(late.mean_ms > 4.0 * early.mean_ms, "{early:?} {late:?}");
}

/// What has been written and is nowhere but in a cache: all of it at first, in the end no more.
#[test]
fn what_only_the_caches_hold_is_known() {
    // An idle array keeps what is below the low water mark, but for the last stripes that left; a
    // drive alone keeps nothing.
    let low_water = 1.495e9..=1.5e9;
    for (preset, kept, seconds_of) in
        [(Preset::Cx340Raid0, low_water, 60), (Preset::Drive7200, 0.0..=0.0, 10)]
    {
        let mut array = Array::new(preset.params()).unwrap();
        assert_eq!(array.unwritten(), Bytes(0));
        let io = ArrayIo {
            lun: LunId(0),
            kind: IoKind::Write,
            offset: Bytes::mib(3),
            len: Bytes::kib(8),
        };
        array.submit(Nanos::ZERO, IoTag(0), io).unwrap();
        let done = array.advance_to_completion(Nanos::NEVER).unwrap();
        assert_eq!(array.unwritten(), Bytes::kib(8), "{preset}: done after {done}, and not there");
        let mut array = Array::new(preset.params()).unwrap();
        run(&mut array, &[client(64, 64, 0, Access::Random)], seconds(0, seconds_of), 1);
        let held = array.unwritten().0 as f64;
        assert!(kept.contains(&held), "{preset}: {held}");
    }
}

/// Written in order, even small writes leave as whole stripes, which need no reading: faster than
/// one drive writes, and five times as fast as where each write needs two reads and two writes.
#[test]
fn writes_in_order_leave_as_whole_stripes() {
    let rate = |access| {
        let writes = client(32, 16, 0, access);
        let seen = measure(Preset::Cx340Raid5Vms.params(), writes, seconds(120, 20));
        seen.iops * 0.016_384
    };
    let (in_order, anywhere) = (rate(Access::Sequential), rate(Access::Random));
    assert!(in_order > 81.2 && in_order > 5.0 * anywhere, "{in_order} {anywhere} MB/s");
}

#[test]
fn what_the_write_cache_holds_is_read_from_it() {
    let mut params = Preset::Cx340Raid0.params();
    params.layout.luns = vec![Bytes::mib(100)];
    let seen = measure(params, client(1, 16, 50, Access::Random), seconds(120, 20));
    assert!(seen.mean_ms < 0.5, "{seen:?}");
}

#[test]
fn a_stream_is_read_before_it_is_asked_for_and_a_broken_one_is_not() {
    let stream = client(1, 16, 100, Access::Sequential);
    let seen = measure(Preset::Cx340Raid0.params(), stream, seconds(1, 10));
    within("a read in order, in ms", seen.mean_ms, 0.0356 + 16.384 / 177.0, 0.3);
    let broken = client(1, 16, 75, Access::Sequential);
    let seen = measure(Preset::Cx340Raid0.params(), broken, seconds(1, 10));
    assert!(seen.mean_ms > 0.4, "{seen:?}");
}

#[test]
fn without_its_cache_the_array_writes_at_the_speed_of_the_drives() {
    let mut array = Array::new(Preset::Cx340Raid5Vms.params()).unwrap();
    array.set_write_cache(Nanos::ZERO, false).unwrap();
    let writes = client(1, 16, 0, Access::Random);
    let seen = run(&mut array, &[writes], seconds(1, 20), 1).0;
    assert!(seen.mean_ms > 10.0, "{seen:?}");
}

/// A read of lost data costs a read of each other drive, and a rebuild competes with both.
#[test]
fn a_lost_drive_costs_throughput_and_its_rebuild_costs_more() {
    for (level, drives) in [(RaidLevel::Raid5, 5), (RaidLevel::Raid10, 4)] {
        let iops = |lost: bool, rebuild: bool| {
            let mut params = Preset::Cx340Raid5Vms.params();
            (params.raid.level, params.raid.drives) = (level, drives);
            let mut array = Array::new(params).unwrap();
            if lost {
                array.fail_drive(Nanos::ZERO, 1).unwrap();
            }
            if rebuild {
                array.start_rebuild(Nanos::ZERO).unwrap();
            }
            let reads = client(32, 16, 100, Access::Random);
            let seen = run(&mut array, &[reads], seconds(1, 20), 1).0.iops;
            assert_eq!(array.rebuilt_fraction().is_some(), lost && !rebuild, "it ends");
            seen
        };
        let (whole, degraded, rebuilding) =
            (iops(false, false), iops(true, false), iops(true, true));
        assert!(degraded < 0.9 * whole && degraded > 0.5 * whole, "{degraded} {whole}");
        assert!(rebuilding < degraded, "{rebuilding} {degraded}");
    }
}

/// Ultrastar 15K450: 3.3 ms mean seek, 2 ms mean rotational delay.
#[test]
fn a_15k_drive_has_its_mean_seek() {
    let seen =
        measure(Preset::Drive15k.params(), client(1, 4, 100, Access::Random), seconds(1, 300));
    within("one read, in ms", seen.mean_ms, 3.3 + 2.0 + 0.1, 0.03);
}

/// One drive of a preset, without an array in front of it.
fn one_flash(preset: Preset, outstanding: usize, read_percent: u32, window: Window) -> Seen {
    let mut params = preset.params();
    (params.raid.level, params.raid.drives) = (RaidLevel::Raid0, 1);
    let link = Rate::mb_per_s(100_000);
    params.controller = ControllerParams { io_cost: Nanos::ZERO, link, ..params.controller };
    params.layout.luns = vec![Bytes::gib(256)];
    measure(params, client(outstanding, 4, read_percent, Access::Random), window)
}

#[test]
fn flash_drives_keep_to_their_specifications() {
    let window = Window { warm: Nanos::from_millis(500), measure: Nanos::from_millis(500) };
    let (sata, nvme) = (Preset::FlashSata, Preset::FlashNvme);
    within("SATA reads", one_flash(sata, 32, 100, window).iops, 67_000.0, 0.05);
    within("SATA writes", one_flash(sata, 32, 0, seconds(2, 5)).iops, 14_500.0, 0.05);
    within("NVMe reads, 1", one_flash(nvme, 1, 100, window).iops, 12_800.0, 0.05);
    within("NVMe reads, 16", one_flash(nvme, 16, 100, window).iops, 167_200.0, 0.10);
    within("NVMe reads, 128", one_flash(nvme, 128, 100, window).iops, 450_000.0, 0.05);
    within("NVMe writes", one_flash(nvme, 128, 0, seconds(2, 1)).iops, 90_000.0, 0.05);
}

#[test]
fn garbage_collection_stalls_reads() {
    let window = seconds(1, 1);
    let alone = one_flash(Preset::FlashNvme, 8, 100, window);
    let mixed = one_flash(Preset::FlashNvme, 8, 70, window);
    assert!(alone.max_ms < 1.0 && mixed.max_ms > 2.5, "{alone:?} {mixed:?}");
}

/// What many hosts read again and again, and each of them writes a part of, as they do an exchange: once it
/// was read, no drive moves for it, whether all of it was ever written or not.
#[test]
fn what_is_read_again_and_again_costs_the_drives_nothing() {
    let mut params = Preset::Cx340Raid0.params();
    let cache = ReadCacheParams { capacity: Bytes::mib(256), page: Bytes::kib(8) };
    params.controller.read_cache = Some(cache);
    let mut array = Array::new(params).unwrap();
    let read =
        ArrayIo { lun: LunId(0), kind: IoKind::Read, offset: Bytes(0), len: Bytes::kib(168) };
    let mut now = Nanos::ZERO;
    let mut took = Vec::new();
    for round in 0..100_u64 {
        // One slot was never written.
        let offset = Bytes::kib(4 * (round % 40));
        let write = ArrayIo { kind: IoKind::Write, offset, len: Bytes::kib(4), ..read };
        for io in [write, read] {
            let begun = now;
            array.submit(now, IoTag(round), io).unwrap();
            while array.outstanding() > 0 {
                now = array.next_event().unwrap();
                array.advance(now);
            }
            (now, _) = array.pop_completion().unwrap();
            took.push((io.kind, now.0 - begun.0));
            now = Nanos(now.0 + 10_000_000);
        }
    }
    let reads: Vec<u64> =
        took.iter().filter(|(kind, _)| *kind == IoKind::Read).map(|t| t.1).collect();
    let (first, later) = (reads[0], reads[1..].iter().max().copied().unwrap());
    // The front end and the link: 168 KiB at 177 MB/s.
    assert!(first > 5_000_000 && later < 1_100_000, "{first} ns, then {later} ns");
}
