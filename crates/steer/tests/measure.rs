//! What is measured of real devices, against what is known of them.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod stage;

use std::path::Path;
use std::process::Child;
use std::time::Duration;

use parda_control::latency::Direction;
use parda_steer::measure::{self, Choice, Measure, Method, Reading, Watched};
use serde_json::Value;
use stage::Disk;

const MS: Duration = Duration::from_millis(1);

fn watched(disk: &Disk) -> Watched {
    Watched::find(Path::new("/"), &disk.device).unwrap()
}

/// What is read of the next `time` of a load that has begun.
fn over(meter: &mut dyn Measure, time: Duration) -> Reading {
    meter.read().unwrap();
    std::thread::sleep(time);
    meter.read().unwrap()
}

/// IOs, bytes each, mean latency in ms.
fn of(reading: &Reading, direction: Direction) -> (u64, u64, f64) {
    let classes = || reading.classes.iter().filter(|c| c.direction == direction);
    let ios: u64 = classes().map(|c| c.ios).sum();
    let bytes: u64 = classes().map(|c| c.bytes).sum();
    let seconds: f64 = classes().map(|c| c.latency.secs()).sum();
    assert!(ios > 0, "no {direction:?} in {reading:?}");
    (ios, bytes / ios, 1e3 * seconds / ios as f64)
}

fn near(what: &str, got: f64, wanted: f64, part: f64) {
    assert!((got / wanted - 1.0).abs() < part, "{what}: {got}, not {wanted} ± {}%", part * 100.0);
}

/// What fio says of its own IOs: how many, bytes, mean latency in ms.
fn told(fio: Child, direction: &str) -> (u64, u64, f64) {
    let answer: Value = serde_json::from_slice(&fio.wait_with_output().unwrap().stdout).unwrap();
    let of = &answer["jobs"][0][direction];
    let number = |v: &Value| v.as_u64().unwrap();
    (
        number(&of["total_ios"]),
        number(&of["io_bytes"]),
        of["clat_ns"]["mean"].as_f64().unwrap() / 1e6,
    )
}

#[test]
fn a_known_delay_is_measured_by_direction_and_size_with_ebpf_and_by_littles_law() {
    let Some(disk) = Disk::slow(60 * MS, 40 * MS) else { return };
    let mut meters =
        [Choice::Ebpf, Choice::Little].map(|c| measure::open(&watched(&disk), c).unwrap());
    let reads = disk.fio(&["--rw=randread", "--bs=4k", "--iodepth=4", "--io_size=800k"]);
    let writes = disk.fio(&["--rw=randwrite", "--bs=64k", "--iodepth=2", "--io_size=9600k"]);
    let told = [told(reads, "read"), told(writes, "write")];
    let [ebpf, little] = [0, 1].map(|i| meters[i].read().unwrap());

    let Method::Little { error } = little.method else { panic!("{:?}", little.method) };
    assert!((0.001..0.03).contains(&error), "the error that is stated: {error}");
    for (reading, error) in [(&ebpf, 0.0), (&little, 2.0 * error)] {
        let ways = [Direction::Read, Direction::Write].into_iter().zip([60.0, 40.0]).zip(told);
        for ((direction, delay), (ios, bytes, clat)) in ways {
            let (seen, size, latency) = of(reading, direction);
            println!("{:?} {direction:?} {latency} ms, fio {clat} ms", reading.method);
            assert_eq!((seen, size), (ios, bytes / ios), "{direction:?}");
            // Nothing waits before the device, so fio sees the same latency, and the time that it
            // takes to wake up. On a busy machine the delay itself takes longer, for both.
            near("latency", latency, clat, 0.05 + error);
            let least = delay * (0.99 - error);
            assert!(latency > least, "{direction:?} {latency} ms: shorter than the delay");
        }
    }
    assert_eq!(ebpf.method, Method::Ebpf);
    assert_eq!(ebpf.classes.iter().map(|c| c.bytes_log2).collect::<Vec<_>>(), [12, 16]);
    for (spread, (ios, _, clat)) in [&ebpf.reads, &ebpf.writes].into_iter().zip(told) {
        assert_eq!(spread.ios(), ios);
        near("median", spread.quantile(0.5).unwrap().secs() * 1e3, clat, 0.15);
    }
}

#[test]
fn what_waits_for_a_place_in_the_queue_is_pending_and_takes_the_device_no_longer() {
    let Some(mut disk) = Disk::slow(40 * MS, 40 * MS) else { return };
    disk.set("nr_requests", "4");
    let mut meter = measure::open(&watched(&disk), Choice::Ebpf).unwrap();
    // io_uring first asks for what would not wait, and gets it back: nothing of that stays pending.
    let asking = ["--ioengine=io_uring", "--rw=randread", "--iodepth=16", "--runtime=60"];
    let mut fio = disk.fio(&[&asking[..], &["--bs=4k", "--time_based"]].concat());
    std::thread::sleep(1000 * MS);
    stage::end(&mut fio);
    let waiting = ["--ioengine=psync", "--rw=randread", "--numjobs=16", "--runtime=60"];
    let mut fio = disk.fio(&[&waiting[..], &["--bs=8k", "--time_based"]].concat());
    std::thread::sleep(700 * MS);
    let reading = over(&mut *meter, 1500 * MS);
    stage::end(&mut fio);
    near("outstanding", reading.outstanding, 4.0, 0.05);
    near("pending", reading.pending, 16.0, 0.05);
    // The device's own, a quarter of what a reader waits. (Longer on a busy machine.)
    let latency = of(&reading, Direction::Read).2;
    assert!((39.5..60.0).contains(&latency), "{latency} ms");
    let groups: f64 = reading.groups.iter().map(|g| g.pending).sum();
    near("pending of all cgroups", groups, reading.pending, 0.01);
    std::thread::sleep(300 * MS);
    let idle = over(&mut *meter, 200 * MS);
    assert!(idle.classes.is_empty() && idle.outstanding == 0.0, "{idle:?}");
    assert!(idle.pending < 1e-9, "nothing is left behind: {}", idle.pending);
}

#[test]
fn a_device_that_was_busy_before_anybody_looked_is_seen_as_it_is() {
    let Some(disk) = Disk::slow(40 * MS, 40 * MS) else { return };
    let mut fio =
        disk.fio(&["--rw=randread", "--bs=4k", "--iodepth=8", "--runtime=60", "--time_based"]);
    std::thread::sleep(700 * MS);
    let mut meter = measure::open(&watched(&disk), Choice::Auto).unwrap();
    let reading = over(&mut *meter, 1000 * MS);
    stage::end(&mut fio);
    near("outstanding", reading.outstanding, 8.0, 0.05);
    near("pending", reading.pending, 8.0, 0.05);
}
