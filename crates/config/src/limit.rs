//! The limit of a VM, as documents write it.

use std::time::Duration;

use bytesize::ByteSize;
use parda_control::{Limit, Rates, Span};
use serde::{Deserialize, Serialize};

/// The most IOs and bytes per second that a VM does: of all IOs, or of reads and writes apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitSetting {
    /// Largest rate of all IOs, per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<f64>,
    /// Largest rate of reads, per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops_reads: Option<f64>,
    /// Largest rate of writes, per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops_writes: Option<f64>,
    /// Largest bandwidth of reads and writes together, per second.
    #[serde(with = "crate::quantity", skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<ByteSize>,
    /// Largest bandwidth of reads, per second.
    #[serde(with = "crate::quantity", skip_serializing_if = "Option::is_none")]
    pub bandwidth_reads: Option<ByteSize>,
    /// Largest bandwidth of writes, per second.
    #[serde(with = "crate::quantity", skip_serializing_if = "Option::is_none")]
    pub bandwidth_writes: Option<ByteSize>,
    /// Factor on all of these in a burst.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<f64>,
    /// Longest burst of a VM that did nothing before.
    #[serde(with = "crate::quantity", skip_serializing_if = "Option::is_none")]
    pub burst_for: Option<Duration>,
}

/// The largest rate of IOs, and the longest burst.
const MOST_IOPS: f64 = 1e9;
const LONGEST: Duration = Duration::from_secs(3600);

impl LimitSetting {
    /// Rates of IOs, by key.
    fn rates(&self) -> [(&'static str, Option<f64>); 3] {
        [("iops", self.iops), ("iops_reads", self.iops_reads), ("iops_writes", self.iops_writes)]
    }

    /// What is wrong with the limit.
    #[must_use]
    pub fn fault(self) -> Option<String> {
        let limit = Limit::from(&self);
        if limit.is_none() {
            return Some(
                "needs `iops` or `bandwidth`, or one of these with `_reads` or `_writes`".into(),
            );
        }
        for (key, rate) in self.rates() {
            if let Some(rate) = rate.filter(|rate| !(1.0..=MOST_IOPS).contains(rate)) {
                return Some(format!("has {key} = {rate}, which must be from 1 to 1000000000"));
            }
        }
        for (key, size) in [
            ("bandwidth", self.bandwidth),
            ("bandwidth_reads", self.bandwidth_reads),
            ("bandwidth_writes", self.bandwidth_writes),
        ] {
            if let Some(ByteSize(bytes)) = size.filter(|size| *size < ByteSize::kib(1)) {
                return Some(format!("has {key} = {bytes} bytes, which must be 1KiB or more"));
            }
        }
        match (self.burst, self.burst_for) {
            (None, None) => None,
            (Some(burst), Some(time)) => {
                let good = (1.0..=1000.0).contains(&burst) && time <= LONGEST;
                let has = format!("has burst = {burst} and burst_for = {time:?}");
                (!good).then(|| format!("{has}, which must be from 1 to 1000, and up to 1h"))
            }
            _ => Some("must have `burst` and `burst_for` together".into()),
        }
    }
}

/// The least rate that the kernel's `io.max` takes, a second.
const LEAST_STEERED: f64 = 2.0;

impl LimitSetting {
    /// The part of a tenant's limit that QEMU's throttles are not given, and what to write instead.
    #[must_use]
    pub fn fault_throttled(&self) -> Option<String> {
        let fault =
            "must have `iops` alone for VMs whose disks QEMU opens: set other limits in QEMU";
        (*self != LimitSetting { iops: self.iops, ..LimitSetting::default() })
            .then(|| fault.to_owned())
    }

    /// The part of a limit that `io.max` cannot hold on a steered device, and what to write instead.
    #[must_use]
    pub fn fault_steered(&self) -> Option<String> {
        if self.burst.is_some() {
            let fault = "has a burst, which the kernel's io.max does not know: leave out `burst` and `burst_for` on a steered device";
            return Some(fault.to_owned());
        }
        self.rates().into_iter().find_map(|(key, rate)| {
            let least = if key == "iops" { 2.0 * LEAST_STEERED } else { LEAST_STEERED };
            let rate = rate.filter(|rate| *rate < least)?;
            Some(format!("has {key} = {rate}, which must be {least} or more on a steered device, as the kernel's io.max takes no less"))
        })
    }
}

impl From<&LimitSetting> for Limit {
    fn from(setting: &LimitSetting) -> Limit {
        let bytes = |size: Option<ByteSize>| size.map(|size| size.as_u64() as f64);
        Limit {
            iops: Rates {
                total: setting.iops,
                reads: setting.iops_reads,
                writes: setting.iops_writes,
            },
            bandwidth: Rates {
                total: bytes(setting.bandwidth),
                reads: bytes(setting.bandwidth_reads),
                writes: bytes(setting.bandwidth_writes),
            },
            burst: setting.burst.unwrap_or(1.0),
            burst_for: setting.burst_for.map_or(Span::ZERO, Into::into),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_says_what_is_wrong_with_it() {
        let fault = |text: &str| toml::from_str::<LimitSetting>(text).unwrap().fault();
        assert_eq!(fault("iops = 500\nbandwidth = \"20MiB\""), None);
        assert_eq!(fault("iops_writes = 500\nburst = 3\nburst_for = \"10s\""), None);
        for (text, part) in [
            ("", "needs `iops`"),
            ("burst = 2\nburst_for = \"1s\"", "needs `iops`"),
            ("iops = 0", "iops = 0, which must be from 1"),
            ("iops = nan", "from 1 to"),
            ("iops_reads = -5", "from 1 to"),
            ("bandwidth = 100", "bandwidth = 100 bytes"),
            ("iops = 5\nburst = 2", "together"),
            ("iops = 5\nburst = 0.5\nburst_for = \"1s\"", "must be from 1 to 1000"),
            ("iops = 5\nburst = 2\nburst_for = \"2h\"", "up to 1h"),
        ] {
            let fault = fault(text).unwrap_or_default();
            assert!(fault.contains(part), "{text}: {fault}");
        }
    }
}
