//! The difference between two statuses of an agent: counters and distributions of the interval between them.

use std::collections::HashMap;

use parda_agent::latency::Latency;
use parda_agent::status::{DiskStatus, Status, SteerStatus, VolumeStatus};
use parda_terminal::quantity::mib;

use crate::agent::by_key;

/// Mean of values; `None` of no values.
pub(crate) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, n) = values.fold((0.0, 0.0), |(sum, n), value| (sum + value, n + 1.0));
    (n > 0.0).then(|| sum / n)
}

/// A status whose counters and distributions are those of an interval.
pub(crate) struct Recent {
    /// The status at the end of the interval, with disks named by their keys. IOs, bytes and latencies of disks and steered devices are of the interval alone.
    pub(crate) status: Status,
    /// Length of the interval, in seconds.
    pub(crate) seconds: f64,
    /// Whether the interval began with the agent.
    pub(crate) since_start: bool,
}

impl Recent {
    /// Means since the agent started.
    pub(crate) fn since_start(status: Status) -> Recent {
        Recent { seconds: status.uptime_s, status: by_key(status), since_start: true }
    }

    /// The interval between two statuses. If the agent was restarted in it, the interval begins with that start.
    pub(crate) fn between(earlier: &Status, later: Status) -> Recent {
        let seconds = later.uptime_s - earlier.uptime_s;
        if later.pid != earlier.pid || seconds <= 0.0 {
            return Recent::since_start(later);
        }
        let mut status = later;
        for volume in &mut status.volumes {
            if let Some(before) = earlier.volumes.iter().find(|before| before.name == volume.name) {
                subtract_volume(volume, before);
            }
        }
        Recent { status: by_key(status), seconds, since_start: false }
    }

    /// Events of the interval as a rate, per second.
    pub(crate) fn rate(&self, events: u64) -> f64 {
        if self.seconds > 0.0 { events as f64 / self.seconds } else { 0.0 }
    }

    /// Bytes of the interval as a rate, in MiB/s.
    pub(crate) fn mib(&self, bytes: u64) -> f64 {
        mib(self.rate(bytes))
    }

    /// Mean number of IOs in a stage, by Little's law from the distribution of their time there.
    pub(crate) fn at_a_time(&self, spent: &Latency) -> f64 {
        self.rate(spent.count()) * spent.summary().mean / 1e3
    }
}

fn subtract_volume(now: &mut VolumeStatus, before: &VolumeStatus) {
    // A volume that was started again counts from zero.
    if now.restarts != before.restarts {
        return;
    }
    let key = |disk: &DiskStatus| (disk.name.clone(), disk.listen.clone());
    let earlier: HashMap<_, _> = before.disks.iter().map(|disk| (key(disk), disk)).collect();
    for disk in &mut now.disks {
        if let Some(before) = earlier.get(&key(disk)) {
            subtract_disk(disk, before);
        }
    }
    if let (Some(now), Some(before)) = (&mut now.steer, &before.steer) {
        subtract_steer(now, before);
    }
}

fn subtract_disk(now: &mut DiskStatus, before: &DiskStatus) {
    // A disk that was opened anew counts from zero.
    if now.reads.ios < before.reads.ios || now.writes.ios < before.writes.ios {
        return;
    }
    now.reads = now.reads.since(before.reads);
    now.writes = now.writes.since(before.writes);
    now.others = now.others.saturating_sub(before.others);
    now.time_held_by = now.time_held_by.since(&before.time_held_by);
    now.device = now.device.since(&before.device);
    now.held = now.held.since(&before.held);
    now.total = now.total.since(&before.total);
}

fn subtract_steer(now: &mut SteerStatus, before: &SteerStatus) {
    now.reads = now.reads.since(before.reads);
    now.writes = now.writes.since(before.writes);
    now.read_latency = now.read_latency.since(&before.read_latency);
    now.write_latency = now.write_latency.since(&before.write_latency);
    for vm in &mut now.vms {
        let before = before.vms.iter().find(|b| b.name == vm.name && b.cgroup == vm.cgroup);
        if let Some(before) = before.filter(|before| before.ios <= vm.ios) {
            vm.ios -= before.ios;
            vm.bytes = vm.bytes.saturating_sub(before.bytes);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Status of an agent after `seconds`, whose only disk has done reads of 4 KiB of a millisecond each.
    pub(in crate::status) fn after(pid: u32, seconds: f64, reads: u64) -> Status {
        let buckets = if reads == 0 { Vec::new() } else { vec![(1_000_000, reads)] };
        let latency = serde_json::json!({ "buckets": buckets });
        serde_json::from_value(serde_json::json!({
            "host": "h", "version": "1", "pid": pid, "uptime_s": seconds, "volumes": [{
                "name": "array", "mode": "parda", "latency_threshold_ms": 30.0,
                "cluster_latency_ms": null, "source": "local", "window": null, "beta": 0.0,
                "shares": 0, "active_shares": 0.0, "outstanding": 0.0, "held": 0, "connections": 0,
                "ticks": 0, "exchange": null, "disks": [{
                    "name": "vm", "shares": 1000, "errors": 0, "others": 0,
                    "reads": { "ios": reads, "bytes": reads * 4096 },
                    "writes": { "ios": 0, "bytes": 0 },
                    "held": { "buckets": [] }, "device": latency, "total": latency,
                }],
            }],
        }))
        .unwrap()
    }

    #[test]
    fn two_looks_give_what_happened_between_them() {
        let recent = Recent::between(&after(1, 10.0, 1000), after(1, 12.0, 5000));
        let disk = &recent.status.volumes[0].disks[0];
        assert_eq!((recent.seconds, disk.reads.ios, disk.device.count()), (2.0, 4000, 4000));
        assert_eq!((recent.rate(disk.reads.ios), recent.mib(disk.reads.bytes)), (2000.0, 7.8125));
        assert!((recent.at_a_time(&disk.device) - 2.0).abs() < 0.01, "2,000 IO/s of 1 ms are two");
    }

    #[test]
    fn an_agent_or_a_disk_that_began_between_the_looks_counts_from_its_start() {
        let restarted = Recent::between(&after(1, 10.0, 1000), after(2, 4.0, 800));
        assert!(restarted.since_start);
        assert_eq!(restarted.rate(restarted.status.volumes[0].disks[0].reads.ios), 200.0);
        let reopened = Recent::between(&after(1, 10.0, 1000), after(1, 12.0, 800));
        assert_eq!(reopened.status.volumes[0].disks[0].reads.ios, 800);
    }
}
