//! Rates and means of the last second, from the counters of two looks.

use std::collections::HashMap;

use parda_api::{DiskRates, Limit, Requests};

use super::quantity::short;
use crate::latency::Latency;
use crate::status::{DiskStatus, SteeredVmStatus, VolumeStatus};

/// Seconds between two looks above which they give no rates of one second.
const TOO_LONG: f64 = 1.5;

/// Rates of a volume in the last second.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recent {
    /// Reads and writes of all disks, or of the device.
    pub(crate) all: Option<Rates>,
    /// Rates and means of disks, by their keys.
    pub(crate) disks: HashMap<String, DiskRates>,
    /// Rates of a steered device's VMs, by their keys.
    pub(crate) vms: HashMap<String, Rates>,
}

/// IOs and bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    pub(crate) iops: f64,
    pub(crate) bytes: f64,
}

/// Counters at the last look.
#[derive(Debug, Default)]
pub(super) struct Before {
    disks: HashMap<String, DiskBefore>,
    vms: HashMap<String, (u64, u64)>,
    device: Option<(u64, u64)>,
    restarts: u64,
}

#[derive(Debug, Default)]
struct DiskBefore {
    reads: u64,
    writes: u64,
    others: u64,
    bytes: u64,
    held_s: f64,
    limited_s: f64,
    device_s: f64,
    /// `None` until it is needed first.
    device: Option<Latency>,
}

/// Names of disks or VMs, or `name@place` for those that have the name of another one.
pub(crate) fn keys<'a>(all: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> Vec<String> {
    let mut count = HashMap::new();
    all.clone().for_each(|(name, _)| *count.entry(name).or_insert(0_u32) += 1);
    all.map(|(name, place)| match count[name] {
        1 => name.to_owned(),
        _ => format!("{name}@{place}"),
    })
    .collect()
}

/// Keys of the disks of a volume, in their order: the name, or `name@listen` where two disks have one name.
#[must_use]
pub fn disk_keys(disks: &[DiskStatus]) -> Vec<String> {
    keys(disks.iter().map(|disk| (disk.name.as_str(), disk.listen.as_str())))
}

/// Keys of the VMs of a steered device, in their order.
#[must_use]
pub fn vm_keys(vms: &[SteeredVmStatus]) -> Vec<String> {
    keys(vms.iter().map(|vm| (vm.name.as_str(), vm.cgroup.as_str())))
}

impl Before {
    /// Rates of a volume since the last look, `seconds` ago. `keys`: those of its disks.
    pub(super) fn recent(&mut self, now: &VolumeStatus, keys: &[String], seconds: f64) -> Recent {
        let before = std::mem::take(self);
        self.restarts = now.restarts;
        // The counters of a volume that was started again begin at zero.
        let known = before.restarts == now.restarts && seconds > 0.0 && seconds < TOO_LONG;
        let mut recent = Recent::default();
        let mut old = before.disks;
        recent.disks.reserve(keys.len());
        self.disks.reserve(keys.len());
        for (key, disk) in keys.iter().zip(&now.disks) {
            let (key, earlier) = match old.remove_entry(key) {
                Some((key, earlier)) => (key, Some(earlier)),
                None => (key.clone(), None),
            };
            let (seen, did) = DiskBefore::look(disk, earlier, now.is_at_window_max(), seconds);
            if let Some(did) = did.filter(|_| known) {
                recent.disks.insert(key.clone(), did);
            }
            self.disks.insert(key, seen);
        }
        let rates = |now: (u64, u64), then: Option<(u64, u64)>| {
            let then = then.filter(|then| known && then.0 <= now.0 && then.1 <= now.1)?;
            let rate = |now: u64, then: u64| (now - then) as f64 / seconds;
            Some(Rates { iops: rate(now.0, then.0), bytes: rate(now.1, then.1) })
        };
        let Some(steer) = &now.steer else {
            let sum =
                |of: fn(&DiskRates) -> Option<f64>| recent.disks.values().filter_map(of).sum();
            recent.all = (known && now.fault.is_none())
                .then(|| Rates { iops: sum(|r| r.iops), bytes: sum(|r| r.bytes_per_s) });
            return recent;
        };
        let done = (steer.reads.ios + steer.writes.ios, steer.reads.bytes + steer.writes.bytes);
        recent.all = rates(done, before.device);
        self.device = Some(done);
        for (key, vm) in vm_keys(&steer.vms).into_iter().zip(&steer.vms) {
            let done = (vm.ios, vm.bytes);
            if let Some(rates) = rates(done, before.vms.get(&key).copied()) {
                recent.vms.insert(key.clone(), rates);
            }
            self.vms.insert(key, done);
        }
        recent
    }
}

impl DiskBefore {
    /// Counters of a disk now, and its rates since the look before, `seconds` ago. `at_window_max`: whether its host is at its largest window.
    fn look(
        disk: &DiskStatus,
        before: Option<DiskBefore>,
        at_window_max: bool,
        seconds: f64,
    ) -> (DiskBefore, Option<DiskRates>) {
        let mut now = DiskBefore {
            reads: disk.reads.ios,
            writes: disk.writes.ios,
            others: disk.others,
            bytes: disk.reads.bytes + disk.writes.bytes,
            held_s: disk.time_held_s,
            limited_s: disk.time_held_by.limit_s,
            device_s: disk.time_at_device_s,
            device: None,
        };
        let whole = || disk.recorded.as_ref().map(|recorded| Latency::from(&*recorded.device));
        let Some(before) = before else {
            // The base of the next look's percentile.
            now.device = whole().filter(|_| now.reads + now.writes > 0);
            return (now, None);
        };
        let back = now.reads < before.reads || now.writes < before.writes;
        if back || now.device_s < before.device_s || now.held_s < before.held_s {
            // The disk was opened anew, and its counters began at zero.
            now.device = whole();
            return (now, None);
        }
        let (reads, writes) = (now.reads - before.reads, now.writes - before.writes);
        let ios = reads + writes;
        let others = now.others.saturating_sub(before.others);
        let mean = |now: f64, then: f64| (ios > 0).then(|| (now - then) * 1e3 / ios as f64);
        let device_ms = mean(now.device_s, before.device_s);
        let held_ms = mean(now.held_s, before.held_s);
        let mut p99_ms = None;
        if ios > 0 {
            let whole = whole();
            let earlier = match before.reads + before.writes {
                0 => Some(Latency::default()),
                _ => before.device,
            };
            let new = whole.as_ref().zip(earlier).map(|(whole, earlier)| whole.since(&earlier));
            p99_ms = new.map(|new| new.summary().p99);
            now.device = whole;
        } else {
            now.device = before.device;
        }
        let rate = |count: u64| count as f64 / seconds;
        let bytes = rate(now.bytes.saturating_sub(before.bytes));
        let did = Requests {
            ios: ios as f64,
            others: others as f64,
            held_ms: held_ms.unwrap_or(0.0),
            limited_ms: mean(now.limited_s, before.limited_s).unwrap_or(0.0),
            device_ms: device_ms.unwrap_or(0.0),
            held_now: disk.held_now > 0,
            limited_now: disk.is_limited_now(),
        };
        // Little's law, from the mean time that each IO spends in a stage.
        let at_a_time = |ms: Option<f64>| short(Some(rate(ios) * ms.unwrap_or(0.0) / 1e3));
        let recent = DiskRates {
            iops: short(Some(rate(ios))),
            bytes_per_s: short(Some(bytes)),
            reads_per_s: short(Some(rate(reads))),
            writes_per_s: short(Some(rate(writes))),
            device_ms: short(device_ms),
            held_ms: short(held_ms),
            device_p99_ms: short(p99_ms),
            outstanding: at_a_time(device_ms),
            waiting: at_a_time(held_ms),
            limited_by: Some(Limit::of(&did, at_window_max)),
            ..DiskRates::default()
        };
        (now, Some(recent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A volume whose only disk has done this many reads of 4 KiB. Each spent one millisecond at the array and two held.
    fn volume(reads: u64) -> VolumeStatus {
        let (held, device) = (reads as f64 * 2e-3, reads as f64 * 1e-3);
        serde_json::from_value(serde_json::json!({
            "name": "array", "mode": "parda", "latency_threshold_ms": 30.0,
            "cluster_latency_ms": null, "source": "local", "window": null, "beta": 0.0,
            "shares": 0, "active_shares": 0.0, "outstanding": 0.0, "held": 0, "connections": 0,
            "ticks": 0, "exchange": null, "disks": [{
                "name": "vm", "shares": 1000, "errors": 0, "others": 0,
                "reads": { "ios": reads, "bytes": reads * 4096 },
                "writes": { "ios": 0, "bytes": 0 }, "time_held_s": held, "time_at_device_s": device,
                "held": { "buckets": [] }, "device": { "buckets": [] }, "total": { "buckets": [] },
            }],
        }))
        .unwrap()
    }

    fn look(before: &mut Before, reads: u64, seconds: f64) -> Recent {
        before.recent(&volume(reads), &["vm".to_owned()], seconds)
    }

    #[test]
    fn two_looks_give_rates_and_means() {
        let mut before = Before::default();
        assert!(look(&mut before, 1000, 1.0).disks.is_empty(), "nothing to compare with");
        let recent = look(&mut before, 3000, 0.5);
        let disk = recent.disks["vm"];
        assert_eq!((disk.iops, disk.bytes_per_s), (Some(4000.0), Some(16_380_000.0)));
        assert_eq!(recent.all, Some(Rates { iops: 4000.0, bytes: 16_380_000.0 }));
        assert_eq!((disk.device_ms, disk.held_ms), (Some(1.0), Some(2.0)));
        assert_eq!((disk.outstanding, disk.limited_by), (Some(4.0), Some(Limit::Slice)));
    }

    #[test]
    fn an_idle_second_has_rates_and_no_means() {
        let mut before = Before::default();
        look(&mut before, 1000, 1.0);
        let disk = look(&mut before, 1000, 1.0).disks["vm"];
        let nothing = (Some(0.0), None, Some(Limit::Nothing));
        assert_eq!((disk.iops, disk.device_ms, disk.limited_by), nothing);
    }

    #[test]
    fn looks_too_far_apart_and_disks_opened_anew_tell_nothing() {
        let mut before = Before::default();
        look(&mut before, 1000, 1.0);
        assert!(look(&mut before, 2000, 3.0).all.is_none());
        assert!(look(&mut before, 500, 1.0).disks.is_empty());
        assert_eq!(look(&mut before, 600, 1.0).disks["vm"].reads_per_s, Some(100.0));
    }

    #[test]
    fn disks_of_one_name_are_told_apart_by_their_listeners() {
        let all = [("a", "unix:1"), ("b", "unix:1"), ("a", "unix:2")];
        assert_eq!(keys(all.into_iter()), ["a@unix:1", "b", "a@unix:2"]);
    }
}
