//! IO limits of a disk, as `block_set_io_throttle` sets them and `query-block` shows them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Limits that `block_set_io_throttle` must be given; 0 is unlimited.
const NEEDED: [&str; 6] = ["bps", "bps_rd", "bps_wr", "iops", "iops_rd", "iops_wr"];
/// Bursts above each of them, and how long these last, in seconds.
const BURSTS: [&str; 2] = ["_max", "_max_length"];
/// Bytes from which on an IO counts as several.
const SIZE: &str = "iops_size";
/// Least part of a rate for the direction in which a disk was idle. With it, IOs of that direction can begin.
const OTHER_WAY: f64 = 0.1;
/// IO/s that no disk does: with a limit of 0, a disk would leave its group.
const NO_LIMIT: u64 = 1_000_000_000;
/// Beginning of the name of a throttle group that parda has made.
const OURS: &str = "parda:";

/// Limits of one disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QemuLimits {
    /// Limits and bursts, without those that are 0.
    values: BTreeMap<String, u64>,
    /// Throttle group of the disk, whose limits its members have together. None where nothing is limited.
    group: Option<String>,
}

/// IOs of a disk in a period, as far as limits tell them apart.
#[derive(Clone, Copy, Debug)]
pub struct IoMix {
    /// Part of the IOs that are reads, 0 to 1.
    pub reads: f64,
    /// Mean size of an IO, in bytes.
    pub bytes: f64,
}

impl QemuLimits {
    /// Limits of a block device, from its `inserted` of `query-block`.
    #[must_use]
    pub fn parse(inserted: &Value) -> QemuLimits {
        let bursts = NEEDED.iter().flat_map(|key| BURSTS.map(|burst| format!("{key}{burst}")));
        let keys =
            NEEDED.iter().map(|key| (*key).to_owned()).chain(bursts).chain([SIZE.to_owned()]);
        let value = |key: String| {
            let value = inserted.get(&key)?.as_u64()?;
            Some((key, value)).filter(|(_, value)| *value > 0)
        };
        let group = inserted.get("group").and_then(Value::as_str).map(str::to_owned);
        QemuLimits { values: keys.filter_map(value).collect(), group }
    }

    /// Arguments of `block_set_io_throttle` that set these limits.
    #[must_use]
    pub fn arguments(&self) -> Map<String, Value> {
        let mut all: Map<_, _> = NEEDED.iter().map(|key| ((*key).to_owned(), 0.into())).collect();
        all.extend(self.values.iter().map(|(key, value)| (key.clone(), (*value).into())));
        all.extend(self.group.iter().map(|group| ("group".to_owned(), group.as_str().into())));
        all
    }

    /// Whether nothing is limited.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.values.is_empty()
    }

    /// Whether parda has set them.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.group.as_deref().is_some_and(|group| group.starts_with(OURS))
    }

    /// These limits, in a throttle group of parda. QEMU drains a disk that leaves its group. So a disk that is not held for a
    /// while stays in it.
    #[must_use]
    pub fn lifted(&self, name: &str) -> QemuLimits {
        let mut values = self.values.clone();
        if values.is_empty() {
            values.insert("iops".to_owned(), NO_LIMIT);
        }
        QemuLimits { values, group: Some(format!("{OURS}{name}")) }
    }

    /// These limits, as if they were set where `before` was in force: in its throttle group.
    #[must_use]
    pub fn beside(&self, before: &QemuLimits) -> QemuLimits {
        QemuLimits { values: self.values.clone(), group: before.group.clone() }
    }

    fn get(&self, key: &str) -> Option<f64> {
        self.values.get(key).map(|value| *value as f64)
    }

    /// IO/s that a disk does at most under these limits; infinite without any. Bursts are not counted on.
    #[must_use]
    pub fn most(&self, mix: IoMix) -> f64 {
        let (reads, writes) = (mix.reads, 1.0 - mix.reads);
        let per_io = mix.bytes.max(1.0);
        let parts = [
            ("iops", self.cost(mix)),
            ("iops_rd", reads * self.cost(mix)),
            ("iops_wr", writes * self.cost(mix)),
            ("bps", per_io),
            ("bps_rd", reads * per_io),
            ("bps_wr", writes * per_io),
        ];
        let rates = parts.iter().filter_map(|(key, per_io)| Some(self.get(key)? / per_io));
        rates.fold(f64::INFINITY, f64::min)
    }

    /// Cost of an IO in counted IOs, where large ones count as several.
    fn cost(&self, mix: IoMix) -> f64 {
        self.get(SIZE).map_or(1.0, |size| (mix.bytes / size).max(1.0))
    }

    /// Limits that hold a disk to so many IO/s, and to these limits as well. `name`: the disk's name, for a throttle group
    /// that it does not share.
    #[must_use]
    pub fn and_rate(&self, rate: f64, mix: IoMix, name: &str) -> QemuLimits {
        let rate = rate * self.cost(mix);
        let mut held =
            QemuLimits { values: self.values.clone(), group: Some(format!("{OURS}{name}")) };
        // A burst would go past the rate.
        held.values.retain(|key, _| !(key.starts_with("iops") && key.contains("_max")));
        let apart = ["iops_rd", "iops_wr"].iter().any(|key| self.values.contains_key(*key));
        // QEMU takes no limit of all beside one of reads or writes.
        let parts: &[(&str, f64)] = match apart {
            true => &[("iops_rd", mix.reads), ("iops_wr", 1.0 - mix.reads)],
            false => &[("iops", 1.0)],
        };
        for (key, part) in parts {
            let own = self.get(key).unwrap_or(f64::INFINITY);
            // 0 would be no limit at all.
            let rate = (rate * part.max(OTHER_WAY)).min(own).round().max(1.0);
            held.values.insert((*key).to_owned(), rate as u64);
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const READS: IoMix = IoMix { reads: 1.0, bytes: 16384.0 };

    fn limits(value: &Value) -> QemuLimits {
        QemuLimits::parse(value)
    }

    #[test]
    fn limits_are_read_and_set_alike() {
        let none = limits(&json!({ "iops": 0, "bps": 0, "file": "x" }));
        assert!(none.is_none() && !none.is_ours());
        assert_eq!(Value::from(none.arguments())["iops"], 0);
        let own = json!({
            "bps": 0, "bps_rd": 0, "bps_wr": 0, "iops": 500, "iops_rd": 0, "iops_wr": 0, "iops_max": 900,
            "iops_max_length": 3, "iops_size": 4096, "group": "drive-a"
        });
        assert_eq!(Value::from(limits(&own).arguments()), own);
        assert!(limits(&json!({ "iops": -5, "bps": "many" })).is_none(), "no number is no limit");
    }

    #[test]
    fn a_rate_is_held_beside_the_limits_that_were_there() {
        let at = |own: Value, rate| limits(&own).and_rate(rate, READS, "a");
        let held = at(json!({ "iops": 0 }), 120.4);
        assert!(held.is_ours());
        assert_eq!(held.values, BTreeMap::from([("iops".to_owned(), 120)]));
        let held = at(json!({ "iops": 100, "iops_max": 900, "bps": 1000 }), 120.0);
        assert_eq!(Value::from(held.arguments())["iops"], 100, "the lower one");
        assert_eq!(held.get("iops_max"), None, "a burst would go past the rate");
        assert_eq!(held.get("bps"), Some(1000.0));
        let lifted = |own: Value| limits(&own).lifted("a");
        assert_eq!(
            lifted(json!({ "iops_wr": 7 })).values,
            BTreeMap::from([("iops_wr".to_owned(), 7)])
        );
        assert!(lifted(json!({})).is_ours() && lifted(json!({})).most(READS) > 1e8);
        let held = at(json!({ "iops_wr": 50 }), 100.0);
        assert_eq!((held.get("iops_rd"), held.get("iops_wr")), (Some(100.0), Some(10.0)));
        assert_eq!(held.get("iops"), None, "QEMU would refuse it");
        assert_eq!(at(json!({}), 0.01).get("iops"), Some(1.0), "0 would be no limit");
        assert_eq!(at(json!({ "iops_size": 4096 }), 10.0).get("iops"), Some(40.0));
    }

    #[test]
    fn the_most_that_limits_allow_is_in_ios() {
        let most = |own: Value| limits(&own).most(READS);
        assert_eq!(most(json!({})), f64::INFINITY);
        assert_eq!(most(json!({ "iops": 100, "bps": 163_840 })), 10.0);
        assert_eq!(most(json!({ "iops_wr": 7 })), f64::INFINITY, "it reads");
        assert_eq!(most(json!({ "iops": 100, "iops_size": 4096 })), 25.0);
    }
}
