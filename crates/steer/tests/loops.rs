//! Disks of this machine, held to a depth: what the kernel and the array behind it say of it.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod slow;

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use parda_steer::steering::{SteerError, Steering, SteeringEvent};
use parda_testkit::disk::until;
use slow::{InFlight, SlowDisk};

const LOOK: Duration = Duration::from_millis(600);

/// Time within which one look must be as expected.
const PATIENCE: Duration = Duration::from_secs(60);

/// Watches, in all of which no more than `depth` is in flight, until one is as expected: at times a busy machine leaves the load, or
/// the servers below the disk, without a processor.
fn watch_until(disk: &SlowDisk, depth: u32, what: &str, good: impl Fn(&InFlight) -> bool) {
    let begun = Instant::now();
    loop {
        let seen = disk.watch(LOOK);
        assert!(seen.most <= depth, "{what}: {seen:?} of {depth}");
        if good(&seen) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}, within {PATIENCE:?}: {seen:?} of {depth}");
    }
}

/// Waits until all 64 IOs of the load are in flight at times.
fn all_again(disk: &SlowDisk, what: &str) {
    watch_until(disk, u32::MAX, what, |seen| seen.most > 50);
}

fn take(disk: &SlowDisk) -> Steering {
    Steering::take(&disk.device(), None, &disk.journal()).unwrap()
}

#[test]
fn no_more_is_in_flight_than_the_depth_whatever_the_elevator_and_not_much_less() {
    let Some(disk) = SlowDisk::new() else { return };
    for elevator in ["none", "mq-deadline", "bfq"] {
        if !disk.read("queue/scheduler").contains(elevator) {
            println!("SKIPPED: this kernel has no {elevator}");
            continue;
        }
        disk.write("queue/scheduler", elevator);
        let before = disk.read("queue/nr_requests");
        let mut steering = take(&disk);
        let load = disk.load();
        for depth in [32, 4, 9] {
            assert_eq!(steering.set(depth).unwrap().depth, depth);
            let log = disk.log_size();
            // bfq waits now and then for one who may go on; half would be another depth.
            let least = 0.55 * f64::from(depth);
            let what = format!("{elevator}: not much less");
            watch_until(&disk, depth, &what, |seen| {
                let array = disk.most_at_nbdkit(log);
                assert!(array <= depth, "{elevator}, {depth}: {array}");
                seen.mean > least && array > depth.min(10) / 2
            });
        }
        assert_eq!(steering.check().unwrap().events, []);
        steering.release().unwrap();
        assert_eq!(disk.read("queue/nr_requests"), before, "{elevator}");
        all_again(&disk, elevator);
        drop(load);
    }
}

#[test]
fn from_a_smaller_depth_to_a_larger_nothing_between_is_above_it() {
    let Some(disk) = SlowDisk::new() else { return };
    let mut steering = take(&disk);
    steering.set(4).unwrap();
    let _load = disk.load();
    for (from, to) in [(4, 8), (8, 12), (12, 5)] {
        let (seen, set) = disk.watch_beside(|| {
            let set = steering.set(to).unwrap();
            std::thread::sleep(Duration::from_millis(200));
            set
        });
        assert_eq!(set.depth, to);
        assert!(seen.most <= from.max(to), "from {from} to {to}: {seen:?}");
    }
}

#[test]
fn an_elevator_that_is_changed_underneath_is_found_out_and_the_depth_holds() {
    let Some(disk) = SlowDisk::new() else { return };
    let mut steering = take(&disk);
    steering.set(6).unwrap();
    let load = disk.load();

    disk.write("queue/scheduler", "mq-deadline");
    assert_eq!(disk.read("queue/nr_requests"), "256", "the kernel forgets what was set");
    let found = steering.check().unwrap();
    let event = |was: &str, is: &str| SteeringEvent::Scheduler {
        path: disk.name(),
        was: was.to_owned(),
        is: is.to_owned(),
    };
    assert_eq!((found.in_force.depth, found.events), (6, vec![event("none", "mq-deadline")]));
    assert!(disk.watch(LOOK).most <= 6);

    // The driver still has the six tags that it was left with without an elevator.
    let (seen, _) = disk.watch_beside(|| steering.set(24).unwrap());
    assert!(seen.most <= 24, "{seen:?}");
    assert!(disk.read("queue/scheduler").contains("[mq-deadline]"));
    watch_until(&disk, 24, "nearly as many as there may be", |seen| seen.mean > 16.0);

    disk.write("queue/scheduler", "none");
    let found = steering.check().unwrap();
    assert_eq!((found.in_force.depth, found.events), (24, vec![event("mq-deadline", "none")]));
    assert!(disk.watch(LOOK).most <= 24);
    steering.set(5).unwrap();

    disk.write("queue/scheduler", "mq-deadline");
    steering.release().unwrap();
    assert!(disk.read("queue/scheduler").contains("[mq-deadline]"), "not ours to change");
    assert_eq!(disk.read("queue/nr_requests"), "256");
    all_again(&disk, "no tag stays behind");
    disk.write("queue/scheduler", "none");
    all_again(&disk, "nor without an elevator");
    drop(load);
}

#[test]
fn what_somebody_else_writes_is_found_and_set_again() {
    let Some(disk) = SlowDisk::new() else { return };
    let mut steering = take(&disk);
    steering.set(8).unwrap();
    disk.write("queue/nr_requests", "100");
    let found = steering.check().unwrap();
    assert_eq!(found.events, [SteeringEvent::Changed { path: disk.name(), set: 8, found: 100 }]);
    assert_eq!(disk.read("queue/nr_requests"), "8");
    assert_eq!(steering.check().unwrap().events, []);
}

#[test]
fn a_disk_that_is_taken_away_underneath_is_gone_and_what_was_set_on_it_undone() {
    let Some(mut disk) = SlowDisk::new() else { return };
    let mut steering = take(&disk);
    steering.set(8).unwrap();
    steering.check().unwrap();
    disk.detach();
    until("the end of the disk", || matches!(steering.check(), Err(SteerError::Gone(_))));
    steering.release().unwrap();
    assert_eq!(disk.read("queue/nr_requests"), "128");
    assert_eq!(disk.journal().names().unwrap(), [""; 0]);
}

/// Not a test: the process that the next one kills.
#[test]
#[ignore = "run by the test that kills it"]
fn holder() {
    let var = |name| std::env::var(name).unwrap();
    let device = parda_steer::Device::resolve("/".as_ref(), var("DISK").as_ref()).unwrap();
    let journal = parda_steer::Journal::at(var("STATE"));
    let mut steering = Steering::take(&device, None, &journal).unwrap();
    steering.set(7).unwrap();
    println!("held");
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn what_a_killed_process_left_is_put_back_at_the_next_start_or_by_restore() {
    let Some(disk) = SlowDisk::new() else { return };
    for with_elevator in [None, Some("bfq")] {
        let mut holder = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "holder"])
            .env("DISK", disk.node())
            .env("STATE", disk.dir.path().join("state"))
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        until("the depth", || disk.read("queue/nr_requests") == "7");
        let journal = disk.journal();
        assert_eq!(journal.holder(&disk.name()), Some(holder.id().to_string()));
        assert!(matches!(
            Steering::take(&disk.device(), None, &journal),
            Err(SteerError::Journal(_))
        ));
        holder.kill().unwrap();
        holder.wait().unwrap();
        assert_eq!(disk.read("queue/nr_requests"), "7", "nobody could put it back");
        match with_elevator {
            None => {
                let again = take(&disk);
                assert_eq!(disk.read("queue/nr_requests"), "128");
                again.release().unwrap();
            }
            Some(elevator) => {
                disk.write("queue/scheduler", elevator);
                let restored = journal.restore_all().unwrap();
                assert!(restored.len() == 1 && restored[0].is_ok(), "{restored:?}");
                assert_eq!(disk.read("queue/nr_requests"), "256");
            }
        }
        let load = disk.load();
        all_again(&disk, "no tag stays behind");
        drop(load);
        disk.write("queue/scheduler", "none");
    }
}

#[test]
#[ignore = "a measurement, which docs/steering.md quotes: cargo test -p parda-steer --test loops cost_of_a_change -- --ignored --nocapture"]
fn cost_of_a_change() {
    let Some(disk) = SlowDisk::new() else { return };
    let mut steering = take(&disk);
    steering.set(8).unwrap();
    let _load = disk.load();
    for pause in [1000, 250, 50] {
        let (mut longest, mut all) = (Duration::ZERO, Duration::ZERO);
        let before: u64 = disk.read("stat").split_whitespace().next().unwrap().parse().unwrap();
        let start = Instant::now();
        let changes = 3000 / pause;
        for n in 0..changes {
            let began = Instant::now();
            steering.set(8 + n % 2).unwrap();
            longest = longest.max(began.elapsed());
            all += began.elapsed();
            std::thread::sleep(Duration::from_millis(u64::from(pause)));
        }
        let after: u64 = disk.read("stat").split_whitespace().next().unwrap().parse().unwrap();
        println!(
            "a change every {pause} ms: mean {:?}, longest {longest:?}, {:.0} IOPS",
            all / changes,
            (after - before) as f64 / start.elapsed().as_secs_f64()
        );
    }
}
