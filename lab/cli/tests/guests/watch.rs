//! `parda steer watch` on a kernel that is years older than others that its eBPF object is for.

use crate::guest::{Bus, Guest, Job, Source};
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

/// Watches for some seconds by both methods, and holds a second of each against what should be:
/// one will do, as a busy machine lets the guest do nothing for much of another.
fn watch(guest: &Guest, device: &str, check: impl Fn(&Value) -> Result<(), String>) {
    let jobs = ["ebpf", "little"].map(|method| {
        let options = format!("--seconds 5 --json - --method {method}");
        guest.begin(&format!("parda steer watch {device} {options}")).unwrap()
    });
    for job in jobs {
        let output = guest.look(&job, 2 * SOON).unwrap().unwrap();
        assert!(output.success(), "{}", output.errors());
        let text = output.text();
        let seconds: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(seconds.len(), 5);
        let wrong: Vec<String> = seconds.iter().filter_map(|s| check(s).err()).collect();
        assert!(wrong.len() < 5, "{}\n{text}", wrong.join("\n"));
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

/// `part`: how far it may be from that.
fn near(what: &str, got: f64, wanted: f64, part: f64) -> Result<(), String> {
    let near = (got / wanted - 1.0).abs() <= part;
    if near { Ok(()) } else { Err(format!("{what}: {got}, not {wanted} ± {}%", part * 100.0)) }
}

#[test]
#[ignore = "the same on this machine's kernel in crates/steer/tests/measure.rs: make nightly"]
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
    let ids = ["many", "few"].map(|cgroup| {
        let id = guest.ok(&format!("stat -c %i /sys/fs/cgroup/{cgroup}"), SOON).unwrap();
        id.parse::<u64>().unwrap()
    });
    watch(&guest, "/dev/nullb0", |seen| {
        let ebpf = seen["method"] == "ebpf";
        let error = if ebpf { 0.0 } else { 4.0 * number(&seen["error"]) };
        near("reads", number(&seen["reads"]["mean_ms"]), DELAY_MS, 0.06 + error.min(0.15))?;
        near("writes", number(&seen["writes"]["mean_ms"]), DELAY_MS, 0.06 + error.min(0.15))?;
        near("outstanding", number(&seen["outstanding"]), 8.0, 0.1)?;
        if !ebpf {
            return Ok(());
        }
        let sizes: Vec<(&Value, f64)> = seen["sizes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|size| (&size["direction"], number(&size["from_bytes"])))
            .collect();
        if sizes != [(&"read".into(), 4096.0), (&"write".into(), 16384.0)] {
            return Err(format!("sizes: {sizes:?}"));
        }
        for (id, pending) in ids.into_iter().zip([6.0, 2.0]) {
            let group = seen["cgroups"].as_array().unwrap().iter().find(|g| g["id"] == id);
            let group = group.ok_or(format!("no cgroup {id}"))?;
            near("pending of a cgroup", number(&group["pending"]), pending, 0.1)?;
        }
        Ok(())
    });
    loads.iter().for_each(|load| drop(guest.end(load).unwrap()));

    // Two paths that take two each: what waits for them waits at the multipath device.
    let load = load(&guest, "/dev/mapper/san", "many", 16, "--rw=randread --bs=4k");
    until_wait(&guest, 16);
    watch(&guest, "/dev/mapper/san", |seen| {
        let error = if seen["method"] == "ebpf" { 0.0 } else { 4.0 * number(&seen["error"]) };
        near("reads", number(&seen["reads"]["mean_ms"]), DELAY_MS, 0.08 + error.min(0.15))?;
        near("outstanding", number(&seen["outstanding"]), 4.0, 0.1)?;
        near("pending", number(&seen["pending"]), 16.0, 0.1)
    });
    guest.end(&load).unwrap();
}
