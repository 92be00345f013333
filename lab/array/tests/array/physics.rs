//! The model against arithmetic. The source documents' figures are held where they are reproduced.

use crate::closed_loop;

use closed_loop::{Access, Client, Seen, Window, run};
use parda_array::{
    Array, ArrayParams, Bytes, DriveParams, IoKind, LunId, Nanos, Placement, Preset, RaidLevel,
    Scheduling,
};

const MINUTES: Window =
    Window { warm: Nanos::from_millis(5_000), measure: Nanos::from_millis(300_000) };

fn measure(params: ArrayParams, clients: &[Client]) -> (Seen, Vec<Seen>) {
    run(&mut Array::new(params).expect("a possible array"), clients, MINUTES, 1)
}

#[track_caller]
fn within(what: &str, measured: f64, expected: f64, tolerance: f64) {
    let off = measured / expected - 1.0;
    assert!(off.abs() <= tolerance, "{what}: {measured:.2}, expected {expected} ({off:+.3})");
}

fn one_drive(outstanding: usize, change: impl FnOnce(&mut DriveParams)) -> Seen {
    let mut params = Preset::Drive7200.params();
    change(params.drive.disk_mut().expect("a disk"));
    measure(params, &[Client::random_reads(0, outstanding, Bytes::kib(4))]).0
}

#[test]
fn choosing_well_beats_serving_in_order() {
    let iops =
        |scheduling| one_drive(10, |drive: &mut DriveParams| drive.scheduling = scheduling).iops;
    let (fcfs, elevator, sptf) =
        (iops(Scheduling::Fcfs), iops(Scheduling::Elevator), iops(Scheduling::Sptf));
    assert!(fcfs < elevator && elevator < sptf, "{fcfs} {elevator} {sptf}");
    let deep_fcfs = one_drive(10, |drive| drive.queue_depth = 1);
    within("a queue of one is FCFS", deep_fcfs.iops, fcfs, 1e-9);
}

/// The rate of the zone, at the outer edge and at the inner, with two reads outstanding or one.
#[test]
fn one_drive_streams_at_the_rate_of_its_zone() {
    for (start, rate) in [(0, 81.2e6), (510, 81.2e6 * 0.62)] {
        for (outstanding, kind) in [(1, IoKind::Read), (2, IoKind::Read), (2, IoKind::Write)] {
            let mut params = Preset::Drive7200.params();
            params.layout.start = Bytes::gb(start);
            params.layout.luns = vec![Bytes::gib(3)];
            let client = Client {
                lun: LunId(0),
                outstanding,
                len: Bytes::kib(64),
                read_percent: if kind == IoKind::Read { 100 } else { 0 },
                access: Access::Sequential,
            };
            let window = Window { warm: Nanos::from_millis(100), ..MINUTES };
            let window = Window { measure: Nanos::from_millis(20_000), ..window };
            let (all, _) = run(&mut Array::new(params).unwrap(), &[client], window, 1);
            let what = format!("{outstanding} {kind:?} at {start} GB");
            within(&what, all.iops * 65_536.0, rate, 0.02);
        }
    }
}

/// PARDA §4: hosts two and three achieve more of four whose disks lie in order.
#[test]
fn arms_favour_the_luns_in_the_middle() {
    let clients: Vec<Client> =
        (0..4).map(|lun| Client::random_reads(lun, 32, Bytes::kib(16))).collect();
    let (_, hosts) = measure(Preset::Cx340Raid0Vms.params(), &clients);
    let worst_middle = hosts[1].iops.min(hosts[2].iops);
    assert!(worst_middle > 1.05 * hosts[0].iops.max(hosts[3].iops), "{hosts:?}");
}

#[test]
fn interleaved_luns_are_treated_alike() {
    let mut params = Preset::Cx340Raid0Vms.params();
    params.layout.placement = Placement::Interleaved { extent: Bytes::mib(256) };
    let clients: Vec<Client> =
        (0..4).map(|lun| Client::random_reads(lun, 32, Bytes::kib(16))).collect();
    let (all, hosts) = measure(params, &clients);
    for host in hosts {
        within("a host's IOPS", host.iops, all.iops / 4.0, 0.02);
    }
}

/// A small RAID-5 write is four drive requests, two after two, and the second pair waits for the
/// platter to come round: with one outstanding no less than a rotation and a read.
#[test]
fn a_small_raid5_write_waits_for_the_platter() {
    let latency = |read_percent| {
        let client = Client { read_percent, ..Client::random_reads(0, 1, Bytes::kib(4)) };
        let mut params = Preset::Cx340Raid5Vms.params();
        params.controller.write_cache = None;
        measure(params, &[client]).0.mean_ms
    };
    let (read, write) = (latency(100), latency(0));
    assert!(write > read + 60_000.0 / 7_200.0, "{read} {write}");
    assert!(write < read + 2.0 * 60_000.0 / 7_200.0 + 1.0, "{read} {write}");
}

/// Mirrors serve reads as striped drives of the same number do, and writes as half of them do.
#[test]
fn mirrors_share_reads_and_repeat_writes() {
    let iops = |level, drives, read_percent| {
        let mut params = Preset::Cx340Raid0.params();
        params.controller.write_cache = None;
        params.raid.level = level;
        params.raid.drives = drives;
        let data = if level == RaidLevel::Raid10 { drives / 2 } else { drives };
        params.layout.luns = vec![Bytes::gib(20 * u64::from(data))];
        let client = Client { read_percent, ..Client::random_reads(0, 64, Bytes::kib(8)) };
        measure(params, &[client]).0.iops
    };
    within("reads", iops(RaidLevel::Raid10, 4, 100), iops(RaidLevel::Raid0, 4, 100), 0.02);
    let (mirrored, striped) = (iops(RaidLevel::Raid10, 4, 0), iops(RaidLevel::Raid0, 2, 0));
    assert!(mirrored < striped && mirrored > 0.8 * striped, "{mirrored} {striped}");
}

/// The front end takes one IO after another, so no workload passes 1 / 35.6 µs.
#[test]
fn the_front_end_bounds_small_ios_and_the_link_large_ones() {
    let stream = |len| Client {
        lun: LunId(0),
        outstanding: 64,
        len,
        read_percent: 100,
        access: Access::Sequential,
    };
    let window = Window { warm: Nanos::from_millis(500), measure: Nanos::from_millis(5_000) };
    let mut params = Preset::Cx340Raid0.params();
    params.drive.disk_mut().expect("a disk").command_overhead = Nanos::ZERO;
    let small = run(&mut Array::new(params).unwrap(), &[stream(Bytes::kib(1))], window, 1).0;
    within("small IOs", small.iops, 1e9 / 35_600.0, 0.01);
    let mut array = Array::new(Preset::Cx340Raid0.params()).unwrap();
    let large = run(&mut array, &[stream(Bytes::kib(256))], window, 1).0;
    within("large IOs", large.iops * 262_144.0, 177e6, 0.01);
}
