//! `parda steer watch` on a kernel that is years older than others that its eBPF object is for.

use std::time::Duration;

use parda_lab::guest::{Bus, Guest, Job, Source};
use serde_json::Value;

use crate::{SOON, guest, turn};

/// What each of the guest's devices takes for an IO. So long that what the emulation adds is little.
const DELAY_MS: f64 = 50.0;

/// fio in a cgroup of its own, with so many IOs at a time, each of a thread that waits for it.
fn load(guest: &Guest, device: &str, cgroup: &str, jobs: u32, options: &str) -> Job {
    let dir = format!("/sys/fs/cgroup/{cgroup}");
    guest
        .begin(&format!(
            "mkdir -p {dir} && echo $$ >{dir}/cgroup.procs && exec fio --name=load --thread \
             --ioengine=psync --direct=1 --filename={device} --numjobs={jobs} --time_based \
             --runtime=600 --output=/dev/null {options}"
        ))
        .unwrap()
}

/// Until so many threads wait for an IO: fio takes its time to begin.
fn until_wait(guest: &Guest, threads: u32) {
    let command = format!(
        "until [ $(cat /proc/[0-9]*/task/*/status 2>/dev/null | grep -c '^State:.*disk sleep') \
         -ge {threads} ]; do usleep 100000; done"
    );
    guest.ok(&command, 3 * SOON).unwrap();
}

/// The last of so many seconds, by each method at once.
fn watch<const N: usize>(guest: &Guest, device: &str, seconds: u64, by: [&str; N]) -> [Value; N] {
    let jobs = by.map(|method| {
        let options = format!("--seconds {seconds} --json - --method {method}");
        guest.begin(&format!("parda steer watch {device} {options}")).unwrap()
    });
    jobs.map(|job| {
        let output = guest.look(&job, SOON + Duration::from_secs(seconds)).unwrap().unwrap();
        assert!(output.success(), "{}", output.errors());
        serde_json::from_str(output.text().lines().last().unwrap()).unwrap()
    })
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Not less than it should be but for a hundredth, and more only as far as a busy machine makes it.
fn near(what: &str, got: &Value, wanted: f64) {
    let ratio = number(got) / wanted;
    assert!((0.99..1.15).contains(&ratio), "{what}: {got}, not {wanted}");
}

#[test]
fn an_older_kernel_tells_latency_sizes_cgroups_and_what_waits_above_a_multipath_device() {
    let Some(_turn) = turn() else { return };
    let slow = Source::Null { size: 1 << 30, latency: (DELAY_MS * 1e6) as u64 };
    let config = guest("watched").disk("a", Bus::Scsi(0), slow.clone());
    let guest = Guest::boot(config.disk("b", Bus::Scsi(1), slow)).unwrap();
    let prepare = format!(
        "echo +io >/sys/fs/cgroup/cgroup.subtree_control
         modprobe null_blk nr_devices=1 irqmode=2 completion_nsec={}
         modprobe -a dm_multipath dm_round_robin
         for disk in a b; do
           echo 2 >/sys/block/$(basename $(readlink -f /dev/lab/$disk))/device/queue_depth
         done
         dmsetup create san --table \"0 2097152 multipath 0 0 1 1 round-robin 0 2 1 \
           $(readlink -f /dev/lab/a) 1 $(readlink -f /dev/lab/b) 1\"
         dmsetup mknodes",
        (DELAY_MS * 1e6) as u64
    );
    guest.ok(&prepare, SOON).unwrap();

    // Two cgroups on one disk.
    let loads = [
        load(&guest, "/dev/nullb0", "many", 6, "--rw=randread --bs=4k"),
        load(&guest, "/dev/nullb0", "few", 2, "--rw=randwrite --bs=16k"),
    ];
    until_wait(&guest, 8);
    let [seen, little] = watch(&guest, "/dev/nullb0", 1, ["ebpf", "little"]);
    near("reads", &seen["reads"]["mean_ms"], DELAY_MS);
    near("writes", &seen["writes"]["mean_ms"], DELAY_MS);
    let sizes: Vec<(&str, f64)> = seen["sizes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|size| (size["direction"].as_str().unwrap(), number(&size["from_bytes"])))
        .collect();
    assert_eq!(sizes, [("read", 4096.0), ("write", 16384.0)], "{seen}");
    for (cgroup, pending) in [("many", 6.0), ("few", 2.0)] {
        let id = guest.ok(&format!("stat -c %i /sys/fs/cgroup/{cgroup}"), SOON).unwrap();
        let id: u64 = id.parse().unwrap();
        let groups = seen["cgroups"].as_array().unwrap();
        let group = groups.iter().find(|g| g["id"] == id);
        let got = number(&group.unwrap_or_else(|| panic!("{cgroup} is {id}: {seen}"))["pending"]);
        assert!((0.8 * pending..1.02 * pending).contains(&got), "{cgroup}: {got}, {seen}");
    }
    near("reads", &little["reads"]["mean_ms"], DELAY_MS);
    near("writes", &little["writes"]["mean_ms"], DELAY_MS);
    loads.iter().for_each(|load| drop(guest.end(load).unwrap()));

    // Two paths that take two each: what waits for them waits at the multipath device.
    let load = load(&guest, "/dev/mapper/san", "many", 16, "--rw=randread --bs=4k");
    until_wait(&guest, 16);
    let [seen, little] = watch(&guest, "/dev/mapper/san", 2, ["ebpf", "little"]);
    guest.end(&load).unwrap();
    near("reads of the paths", &seen["reads"]["mean_ms"], DELAY_MS);
    let both = number(&little["reads"]["mean_ms"]) / number(&seen["reads"]["mean_ms"]);
    assert!((both - 1.0).abs() < 0.1, "{little}, {seen}");
    let (outstanding, pending) = (number(&seen["outstanding"]), number(&seen["pending"]));
    assert!((3.5..4.02).contains(&outstanding), "{seen}");
    assert!((14.0..16.1).contains(&pending), "{seen}");
}
