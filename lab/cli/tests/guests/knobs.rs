//! `parda steer set` on devices that only a kernel of our own has: LUNs, multipath, volumes, an array that
//! says that it is full.

use std::time::{Duration, Instant};

use crate::guest::{Bus, Guest, Job, Source};

use crate::{SOON, guest, turn};

/// How long an IO takes, at the least.
const LATENCY: Duration = Duration::from_millis(40);

/// The sector of the full array that it has no room for: past what a kernel reads by itself.
const FULL: u64 = 4096;

fn slow() -> Source {
    let latency = u64::try_from(LATENCY.as_nanos()).unwrap();
    Source::Null { size: 1 << 30, latency }
}

/// `sda`, for a disk's name.
fn name(guest: &Guest, disk: &str) -> String {
    guest.device(disk).unwrap().trim_start_matches("/dev/").to_owned()
}

fn read(guest: &Guest, file: &str) -> String {
    guest.ok(&format!("cat {file}"), SOON).unwrap()
}

fn depth(guest: &Guest, disk: &str) -> String {
    read(guest, &format!("/sys/block/{disk}/device/queue_depth"))
}

/// 32 reads at a time, until ended, of which this disk gets some.
fn load(guest: &Guest, device: &str, disk: &str) -> Job {
    let fio = "fio --name=load --rw=randread --bs=4k --direct=1 --ioengine=libaio --iodepth=32 \
               --thread --time_based --runtime=300 --output=/dev/null --filename";
    let job = guest.begin(&format!("exec {fio}={device}")).unwrap();
    until("the load", || reads(guest, disk, "0.1").0 > 0.0);
    job
}

/// How many reads it completes, and within how many seconds at the most, by the guest's own clock.
fn reads(guest: &Guest, disk: &str, seconds: &str) -> (f64, f64) {
    // One process, so that nothing comes between.
    let look = format!("awk '{{print $1}}' /proc/uptime /sys/block/{disk}/stat /proc/uptime");
    let text = guest.ok(&format!("{look}; sleep {seconds}; {look}"), SOON).unwrap();
    let numbers: Vec<f64> = text.lines().map(|line| line.parse().unwrap()).collect();
    (numbers[4] - numbers[1], numbers[5] - numbers[0])
}

/// The most that it has in flight, of some looks.
fn in_flight(guest: &Guest, disk: &str) -> u32 {
    let looks = format!("for i in $(seq 15); do cat /sys/block/{disk}/inflight; done");
    let text = guest.ok(&looks, SOON).unwrap();
    let sum = |line: &str| line.split_whitespace().map(|n| n.parse::<u32>().unwrap()).sum();
    text.lines().map(sum).max().unwrap()
}

/// No more IOs than a depth allows at their latency.
fn assert_slow(guest: &Guest, disk: &str, depth: u32) {
    let (reads, time) = reads(guest, disk, "0.7");
    let most = f64::from(depth) * (time / LATENCY.as_secs_f64() + 1.0);
    assert!(reads <= most, "{disk} at {depth}: {reads} of {most:.0} in {time} s");
}

/// No more in flight than a depth, and more than half of it.
fn assert_held(guest: &Guest, disk: &str, depth: u32) {
    let seen = in_flight(guest, disk);
    assert!(seen <= depth && seen > depth / 2, "{disk} at {depth}: {seen} in flight");
}

/// `parda steer set … --hold`, and what it says.
struct Hold<'a> {
    guest: &'a Guest,
    job: Job,
}

impl Hold<'_> {
    fn of<'a>(guest: &'a Guest, what: &str) -> Hold<'a> {
        let job = guest
            .begin(&format!("rm -f /run/held; exec parda steer set {what} --hold >/run/held 2>&1"));
        let hold = Hold { guest, job: job.unwrap() };
        hold.says("in flight");
        hold
    }

    fn says(&self, words: &str) {
        let now = || self.guest.run("cat /run/held", SOON).unwrap().text();
        until(&format!("{words:?}, but {}", now()), || now().contains(words));
    }

    fn stop(self) {
        self.guest.signal(&self.job, "TERM").unwrap();
        let status = self.guest.look(&self.job, SOON).unwrap().unwrap().status;
        assert_eq!(status, 0, "{}", self.guest.ok("cat /run/held", SOON).unwrap());
    }
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    // Two guests at a time have the machine, and the kernel tries a full array again by its own clock.
    let end = Instant::now() + 3 * SOON;
    while !is() {
        assert!(Instant::now() < end, "waited for {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
#[ignore = "the same on loop devices and on a model of sysfs in crates/steer/tests, loops.rs and steering.rs: make nightly"]
fn the_queues_of_a_kernel_are_held_to_a_depth_and_put_back_whatever_happens() {
    let Some(_turn) = turn() else { return };
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(64 << 20).unwrap();
    let full = Source::Full { size: 1 << 30, latency: 1_000_000, sector: FULL };
    let mut config = guest("knobs")
        .disk("a", Bus::Scsi(0), slow())
        .disk("b", Bus::Scsi(1), slow())
        .disk("other", Bus::Scsi(0), slow())
        .disk("store", Bus::Scsi(0), Source::File(file.path().to_owned()))
        .disk("full", Bus::Scsi(0), full)
        .disk("virtio", Bus::Virtio, slow());
    config.cpus = 2;
    let guest = Guest::boot(config).unwrap();
    a_lun_is_held_alone(&guest);
    a_volume_leads_to_its_lun(&guest);
    a_failed_path_leaves_its_part_to_the_others(&guest);
    what_a_killed_one_left_is_put_back(&guest);
    no_tag_stays_behind(&guest);
    what_the_kernel_does_not_take_is_told(&guest);
    a_lun_that_is_taken_away_is_gone(&guest);
    a_full_array_is_heard(&guest);
}

fn a_lun_is_held_alone(guest: &Guest) {
    let (a, other) = (name(guest, "a"), name(guest, "other"));
    guest.ok("parda steer set /dev/lab/a 3", SOON).unwrap();
    let loads = [load(guest, "/dev/lab/a", &a), load(guest, "/dev/lab/other", &other)];
    assert_held(guest, &a, 3);
    assert_slow(guest, &a, 3);
    assert!(in_flight(guest, &other) > 10, "another LUN of the adapter has its own depth");
    guest.ok("parda steer restore", SOON).unwrap();
    assert_eq!(depth(guest, &a), "128");
    assert!(in_flight(guest, &a) > 10);
    loads.iter().for_each(|load| drop(guest.end(load).unwrap()));
}

fn a_volume_leads_to_its_lun(guest: &Guest) {
    let store = name(guest, "store");
    let make = format!(
        "set -e\n\
         modprobe -a dm_mod dm_multipath dm_round_robin\n\
         printf 'n\\np\\n1\\n\\n\\nw\\n' | fdisk /dev/{store} >/dev/null\n\
         lvm() {{ /tools/bin/lvm \"$@\" --config 'activation {{ udev_sync=0 udev_rules=0 }}'; }}\n\
         lvm pvcreate -q /dev/{store}1\nlvm vgcreate -q vg /dev/{store}1\n\
         lvm lvcreate -q -l 4 -n data vg\ndmsetup mknodes"
    );
    guest.ok(&make, SOON).unwrap();
    let shown = guest.ok("parda steer show /dev/mapper/vg-data", SOON).unwrap();
    assert!(shown.starts_with(&format!("vg-data on {store}1 on {store}\n")), "{shown}");
    guest.ok("parda steer set /dev/mapper/vg-data 5", SOON).unwrap();
    assert_eq!(depth(guest, &store), "5");
    guest.ok(&format!("parda steer restore /dev/{store}1"), SOON).unwrap();
    assert_eq!(depth(guest, &store), "128");
}

fn a_failed_path_leaves_its_part_to_the_others(guest: &Guest) {
    let (a, b) = (name(guest, "a"), name(guest, "b"));
    let number = |disk: &str| read(guest, &format!("/sys/block/{disk}/dev"));
    let size = read(guest, &format!("/sys/block/{a}/size"));
    let (first, second) = (number(&a), number(&b));
    let table = format!("0 {size} multipath 0 0 1 1 round-robin 0 2 1 {first} 1 {second} 1");
    let make = format!("dmsetup create san --uuid mpath-1 --table '{table}'; dmsetup mknodes");
    guest.ok(&make, SOON).unwrap();
    // What a path cannot take counts as done in its own `stat`, so it is counted here.
    let minor = guest.ok("dmsetup info -c --noheadings -o minor san", SOON).unwrap();
    let front = format!("dm-{minor}");
    let depths = || (depth(guest, &a), depth(guest, &b));
    let are = |one: &str, two: &str| (one.to_owned(), two.to_owned());

    let hold = Hold::of(guest, "/dev/mapper/san 9");
    assert_eq!(depths(), are("5", "4"));
    let fio = load(guest, "/dev/mapper/san", &front);
    assert_held(guest, &a, 5);
    assert_held(guest, &b, 4);
    assert_slow(guest, &front, 9);
    guest.ok(&format!("dmsetup message san 0 fail_path {second}"), SOON).unwrap();
    hold.says(&format!("{b}: is failed now"));
    assert_eq!(depths(), are("9", "1"));
    assert_held(guest, &a, 9);
    assert_slow(guest, &front, 9);
    guest.ok(&format!("dmsetup message san 0 reinstate_path {second}"), SOON).unwrap();
    hold.says(&format!("{b}: is active now"));
    assert_eq!(depths(), are("5", "4"));
    hold.stop();
    assert_eq!(depths(), are("128", "128"));
    guest.end(&fio).unwrap();
    guest.ok("dmsetup remove san", SOON).unwrap();
}

fn what_a_killed_one_left_is_put_back(guest: &Guest) {
    let a = name(guest, "a");
    let hold = Hold::of(guest, "/dev/lab/a 3");
    let twice = guest.run("parda steer set /dev/lab/a 4", SOON).unwrap();
    assert!(twice.errors().contains("is being steered by process"), "{twice:?}");
    for (command, status) in [("parda steer restore", 0), ("parda steer restore /dev/lab/a", 1)] {
        let left_alone = guest.run(command, SOON).unwrap();
        assert!(left_alone.errors().contains("is being steered by process"), "{left_alone:?}");
        assert_eq!((left_alone.status, depth(guest, &a).as_str()), (status, "3"), "{command}");
    }
    guest.end(&hold.job).unwrap();
    assert_eq!(depth(guest, &a), "3");
    let shown = guest.ok("parda steer show /dev/lab/a", SOON).unwrap();
    assert!(shown.contains("nobody holds it"), "{shown}");
    let hold = Hold::of(guest, "/dev/lab/a 2");
    assert_eq!(depth(guest, &a), "2");
    hold.stop();
    assert_eq!(depth(guest, &a), "128", "the first one's original");
}

fn no_tag_stays_behind(guest: &Guest) {
    let disk = name(guest, "virtio");
    let queue = |file: &str| format!("/sys/block/{disk}/queue/{file}");
    let tags = || {
        let all = format!("grep -h ^depth= /sys/kernel/debug/block/{disk}/hctx*/tags");
        guest.ok(&all, SOON).unwrap().replace('\n', " ")
    };
    assert_eq!(tags(), "depth=256 depth=256");
    let hold = Hold::of(guest, "/dev/lab/virtio 9");
    assert_eq!(tags(), "depth=4 depth=4", "of two queues");
    let fio = load(guest, &format!("/dev/{disk}"), &disk);
    // A load on one processor has one queue alone.
    let held = |most| assert!(most <= 8 && most > 2, "{most}");
    held(in_flight(guest, &disk));
    guest.ok(&format!("echo mq-deadline >{}", queue("scheduler")), SOON).unwrap();
    hold.says("somebody changed its elevator from none to mq-deadline");
    until("the depth", || read(guest, &queue("nr_requests")) == "4");
    held(in_flight(guest, &disk));
    hold.stop();
    assert_eq!(tags(), "depth=256 depth=256");
    assert_eq!(read(guest, &queue("nr_requests")), "256");
    assert!(read(guest, &queue("scheduler")).contains("[mq-deadline]"));
    guest.end(&fio).unwrap();
}

fn what_the_kernel_does_not_take_is_told(guest: &Guest) {
    for (command, status, words) in [
        ("parda steer set /dev/lab/a 0", 2, "a depth of 0 cannot be set: 1 to 128 can"),
        ("parda steer set /dev/lab/a 129", 2, "a depth of 129 cannot be set: 1 to 128 can"),
        ("parda steer set /dev/lab/virtio 7", 2, "a depth of 7 cannot be set: 8 to"),
        ("parda steer set /dev/lab/a 9 --method nr_requests", 2, "tags of the whole adapter"),
        ("modprobe null_blk queue_mode=0; parda steer show /dev/nullb0", 2, "no queue of its own"),
        ("mount -o remount,ro /sys; parda steer set /dev/lab/a 9", 1, "Read-only file system"),
    ] {
        let output = guest.run(command, SOON).unwrap();
        assert_eq!(output.status, status, "{command}: {output:?}");
        assert!(output.errors().contains(words), "{command}: {output:?}");
    }
    guest.ok("mount -o remount,rw /sys; [ -z \"$(ls /run/parda/steer/*.json)\" ]", SOON).unwrap();
    assert_eq!(depth(guest, &name(guest, "a")), "128");
}

fn a_full_array_is_heard(guest: &Guest) {
    let disk = name(guest, "full");
    let hold = Hold::of(guest, "/dev/lab/full 8");
    let read =
        format!("exec dd if=/dev/{disk} of=/dev/null bs=512 count=1 skip={FULL} iflag=direct");
    // Not to be ended: the kernel tries again and again for minutes.
    let _reading = guest.begin(&read).unwrap();
    hold.says("the kernel lowered its depth from 8 to 7: the array was full");
    hold.stop();
}

fn a_lun_that_is_taken_away_is_gone(guest: &Guest) {
    let other = name(guest, "other");
    let hold = Hold::of(guest, &format!("/dev/{other} 6"));
    guest.ok(&format!("echo 1 >/sys/block/{other}/device/delete"), SOON).unwrap();
    hold.says(&format!("parda: {other} is gone"));
    assert_eq!(guest.look(&hold.job, SOON).unwrap().unwrap().status, 1);
    assert!(!guest.run("ls /run/parda/steer/*.json", SOON).unwrap().success());
}
