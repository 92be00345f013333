//! The limit of a VM, as documents write it.

use std::fmt;
use std::time::Duration;

use bytesize::ByteSize;
use parda_control::{Burst, Limit, Rate, Rates, Span};
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

use crate::limit_key::{KEYS, Key, Of, Part, RATES, Unit};
use crate::quantity::{Quantity, exact_size};

/// The most IOs and bytes per second that a VM does. For all IOs, or for reads and writes apart, each with its
/// burst.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LimitSetting {
    /// By [`Of`]. In IOs or bytes per second.
    rates: [Written; RATES.len()],
    /// Factor on all rates in a burst that have none of their own, and how long it is.
    burst: Option<f64>,
    burst_for: Option<Duration>,
    /// Bytes from which on an IO counts as several.
    size: Option<ByteSize>,
}

/// A rate as it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Written {
    mean: Option<f64>,
    most: Option<f64>,
    length: Option<Duration>,
}

/// The largest rate of IOs, the least one of bytes, and the longest burst: a year.
const MOST_IOPS: f64 = 1e9;
const LEAST_BANDWIDTH: f64 = 1024.0;
const LONGEST: Duration = Duration::from_secs(365 * 86_400);

/// Length of a burst whose rate alone is given.
const SECOND: Duration = Duration::from_secs(1);

impl LimitSetting {
    /// Fault of the limit.
    #[must_use]
    pub fn fault(self) -> Option<String> {
        if self.rates.iter().all(|rate| *rate == Written::default()) {
            return Some(
                "needs `iops` or `bandwidth`, or one of these with `_reads` or `_writes`".into(),
            );
        }
        if let Some(fault) = Of::all().find_map(|of| self.rates[of.place()].fault(of)) {
            return Some(fault);
        }
        if let Some(size) = self.size {
            if size.as_u64() == 0 {
                return Some("has iops_size = 0, which must be 1 byte or more".into());
            }
            if Of::all().all(|of| of.unit == Unit::Bytes || self.mean(of).is_none()) {
                return Some("has iops_size without a rate of IOs: add `iops`".into());
            }
        }
        match (self.burst, self.burst_for) {
            (None, None) => None,
            (Some(burst), Some(time)) => {
                let good = (1.0..=1000.0).contains(&burst) && time <= LONGEST;
                let has = format!("has burst = {burst} and burst_for = {time:?}");
                (!good).then(|| format!("{has}, which must be from 1 to 1000, and up to 365days"))
            }
            _ => Some("must have `burst` and `burst_for` together".into()),
        }
    }

    fn mean(&self, of: Of) -> Option<f64> {
        self.rates[of.place()].mean
    }

    /// The rate of a kind with its burst: its own, or the burst of all rates.
    fn rate(&self, of: Of) -> Option<Rate> {
        let Written { mean, most, length } = self.rates[of.place()];
        let mean = mean?;
        let own = most.map(|most| (most, length.unwrap_or(SECOND)));
        let burst = own.or_else(|| Some((self.burst? * mean, self.burst_for?)));
        let burst = burst.map(|(most, length)| Burst { most, length: length.into() });
        Some(Rate { mean, burst: burst.filter(|burst| burst.length > Span::ZERO) })
    }

    /// Whether a rate of it allows bursts.
    fn bursts(&self) -> bool {
        Of::all().filter_map(|of| self.rate(of)).any(|rate| rate.burst.is_some())
    }

    /// The value of a key. `None`: not set.
    fn get(&self, key: &Key) -> Option<Value> {
        match *key {
            Key::Rate(of, part) => {
                let Written { mean, most, length } = self.rates[of.place()];
                let rate = |rate: f64| match of.unit {
                    Unit::Ios => Value::Number(rate),
                    Unit::Bytes | Unit::Mebibytes => Value::Size(ByteSize(rate as u64)),
                };
                match part {
                    Part::Mean => mean.map(rate),
                    Part::Most => most.map(rate),
                    Part::Length => length.map(Value::Time),
                }
            }
            Key::Burst => self.burst.map(Value::Number),
            Key::BurstFor => self.burst_for.map(Value::Time),
            Key::Size => self.size.map(Value::Size),
        }
    }

    /// Sets a key. Returns whether it was set before.
    fn set<'de, A: MapAccess<'de>>(&mut self, key: &Key, map: &mut A) -> Result<bool, A::Error> {
        fn put<T: Copy>(to: &mut Option<T>, value: Option<T>) -> bool {
            value.is_some() && std::mem::replace(to, value).is_some()
        }
        let mut number = |factor: f64| {
            let number: Option<f64> = map.next_value()?;
            Ok(number.map(|number| number * factor))
        };
        Ok(match *key {
            Key::Rate(of, Part::Length) => {
                let Seconds(time) = map.next_value()?;
                put(&mut self.rates[of.place()].length, time)
            }
            Key::Rate(of, part) => {
                let value = match of.unit {
                    Unit::Ios => number(1.0)?,
                    Unit::Mebibytes => number(1024.0 * 1024.0)?.map(f64::floor),
                    Unit::Bytes => map.next_value::<Size>()?.0.map(|size| size.as_u64() as f64),
                };
                let rate = &mut self.rates[of.place()];
                put(if part == Part::Mean { &mut rate.mean } else { &mut rate.most }, value)
            }
            Key::Burst => put(&mut self.burst, number(1.0)?),
            Key::BurstFor => put(&mut self.burst_for, map.next_value::<Time>()?.0),
            Key::Size => put(&mut self.size, map.next_value::<Size>()?.0),
        })
    }
}

impl Written {
    fn fault(self, of: Of) -> Option<String> {
        let (key, Written { mean, most, length }) = (of.key(), self);
        let Some(mean) = mean else {
            let part = if most.is_some() { "_max" } else { "_max_length" };
            return (most.is_some() || length.is_some())
                .then(|| format!("has {key}{part} without {key}: a burst needs its rate"));
        };
        let (least, highest, bounds) = match of.unit {
            Unit::Ios => (1.0, MOST_IOPS, "from 1 to 1000000000"),
            Unit::Bytes | Unit::Mebibytes => (LEAST_BANDWIDTH, u64::MAX as f64, "1KiB or more"),
        };
        let said = |rate: f64| match of.unit {
            Unit::Ios => rate.to_string(),
            Unit::Bytes | Unit::Mebibytes => exact_size(rate as u64),
        };
        if !(least..=highest).contains(&mean) {
            return Some(format!("has {key} = {}, which must be {bounds}", said(mean)));
        }
        if let Some(most) = most.filter(|most| !(mean..=highest).contains(most)) {
            let (most, mean) = (said(most), said(mean));
            let fault = format!("has {key}_max = {most}, which must be {key} = {mean} or more");
            return Some(format!("{fault}, and {bounds}"));
        }
        let length = length?;
        if most.is_none() {
            return Some(format!("has {key}_max_length without {key}_max, the rate of the burst"));
        }
        let good = !length.is_zero() && length <= LONGEST;
        let fault = format!(
            "has {key}_max_length = {length:?}, which must be above zero, and up to 365days"
        );
        (!good).then_some(fault)
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
        let mut alone = LimitSetting::default();
        alone.rates[0].mean = self.rates[0].mean;
        (*self != alone).then(|| fault.to_owned())
    }

    /// The part of a limit that `io.max` cannot hold on a steered device, and what to write instead.
    #[must_use]
    pub fn fault_steered(&self) -> Option<String> {
        if self.bursts() {
            let fault = "has a burst, which the kernel's io.max does not know: leave out `burst` and `burst_for`, `_max` and `_max_length` on a steered device";
            return Some(fault.to_owned());
        }
        if self.size.is_some() {
            let fault = "has iops_size, which the kernel's io.max does not know: leave it out on a steered device, and set `bandwidth`";
            return Some(fault.to_owned());
        }
        Of::all().filter(|of| of.unit == Unit::Ios).find_map(|of| {
            let key = of.key();
            let least = if key == "iops" { 2.0 * LEAST_STEERED } else { LEAST_STEERED };
            let rate = self.mean(of).filter(|rate| *rate < least)?;
            Some(format!("has {key} = {rate}, which must be {least} or more on a steered device, as the kernel's io.max takes no less"))
        })
    }
}

impl From<&LimitSetting> for Limit {
    fn from(setting: &LimitSetting) -> Limit {
        let rates = |from: usize| {
            let [total, reads, writes] = [0, 1, 2].map(|way| setting.rate(Of::at(from + way)));
            Rates { total, reads, writes }
        };
        Limit {
            iops: rates(0),
            bandwidth: rates(3),
            io_size: setting.size.map(|size| size.as_u64() as f64),
        }
    }
}

/// A value of a key, as it is written.
enum Value {
    Number(f64),
    Size(ByteSize),
    Time(Duration),
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Number(number) => to.serialize_f64(*number),
            Value::Size(size) => size.write(to),
            Value::Time(time) => time.write(to),
        }
    }
}

#[derive(Deserialize)]
struct Size(#[serde(with = "crate::quantity")] Option<ByteSize>);

#[derive(Deserialize)]
struct Time(#[serde(with = "crate::quantity")] Option<Duration>);

/// A duration that may be a plain number: the words of QEMU are in whole seconds.
struct Seconds(Option<Duration>);

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Seconds, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "must be a duration such as \"10s\", or whole seconds")]
        enum Either {
            Whole(u32),
            Time(Time),
        }
        Ok(Seconds(match Either::deserialize(from)? {
            Either::Whole(seconds) => Some(Duration::from_secs(seconds.into())),
            Either::Time(Time(time)) => time,
        }))
    }
}

impl Serialize for LimitSetting {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let set = KEYS.iter().filter_map(|name| Some((name, self.get(&Key::named(name)?)?)));
        let set: Vec<_> = set.collect();
        let mut map = to.serialize_map(Some(set.len()))?;
        for (name, value) in set {
            map.serialize_entry(name, &value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for LimitSetting {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<LimitSetting, D::Error> {
        from.deserialize_map(Table)
    }
}

struct Table;

impl<'de> Visitor<'de> for Table {
    type Value = LimitSetting;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table such as { iops = 500 }")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LimitSetting, A::Error> {
        let mut limit = LimitSetting::default();
        while let Some(name) = map.next_key::<String>()? {
            let key = Key::named(&name)
                .ok_or_else(|| <A::Error as de::Error>::unknown_field(&name, &KEYS))?;
            if limit.set(&key, &mut map)? {
                let fault =
                    format!("`{name}` sets what another key of the limit has set: leave one out");
                return Err(de::Error::custom(fault));
            }
        }
        Ok(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> LimitSetting {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_limit_says_what_is_wrong_with_it() {
        let fault = |text: &str| of(text).fault();
        assert_eq!(fault("iops = 500\nbandwidth = \"20MiB\""), None);
        assert_eq!(fault("iops_writes = 500\nburst = 3\nburst_for = \"10s\""), None);
        for (text, part) in [
            ("", "needs `iops`"),
            ("burst = 2\nburst_for = \"1s\"", "needs `iops`"),
            ("iops_size = 4096", "needs `iops`"),
            ("iops = 0", "iops = 0, which must be from 1"),
            ("iops = nan", "from 1 to"),
            ("iops_reads = -5", "from 1 to"),
            ("bandwidth = 100", "bandwidth = 100B"),
            ("iops = 5\nburst = 2", "together"),
            ("iops = 5\nburst = 0.5\nburst_for = \"1s\"", "must be from 1 to 1000"),
            ("iops = 5\nburst = 2\nburst_for = \"2years\"", "up to 365days"),
            ("iops = 5\niops_max = 4", "iops_max = 4, which must be iops = 5 or more"),
            ("iops = 5\niops_max = inf", "or more, and from 1 to 1000000000"),
            ("mbps = inf", "1KiB or more"),
            ("iops = 5\niops_max_length = 4", "iops_max_length without iops_max"),
            ("iops = 5\niops_rd_max = 4", "iops_reads_max without iops_reads"),
            ("iops = 5\nbps_max_length = 4", "bandwidth_max_length without bandwidth"),
            ("iops = 5\niops_max = 9\niops_max_length = 0", "must be above zero"),
            ("bps = 5000\niops_size = 4096", "iops_size without a rate of IOs"),
            ("iops = 5\niops_size = 0", "1 byte or more"),
        ] {
            let fault = fault(text).unwrap_or_default();
            assert!(fault.contains(part), "{text}: {fault}");
        }
    }

    #[test]
    fn each_rate_has_its_own_burst_and_else_that_of_all() {
        let limit = Limit::from(&of("iops = 40\niops_max = 3000\niops_max_length = \"10s\"\n\
             bandwidth_reads = \"120MiB\"\nbandwidth_writes = \"1MiB\"\nbandwidth_writes_max = \"2MiB\"\n\
             burst = 4\nburst_for = \"30s\""));
        let burst = |rate: Option<Rate>| rate?.burst.map(|it| (it.most, it.length.secs()));
        assert_eq!(burst(limit.iops.total), Some((3000.0, 10.0)));
        assert_eq!(burst(limit.bandwidth.reads), Some((4.0 * 120.0 * 1048576.0, 30.0)));
        assert_eq!(burst(limit.bandwidth.writes), Some((2.0 * 1048576.0, 1.0)));
        assert_eq!(burst(Limit::from(&of("iops = 40")).iops.total), None);
    }

    #[test]
    fn the_words_of_qemu_libvirt_and_proxmox_are_read_and_ours_written() {
        let ours = "iops_reads = 400.0\niops_reads_max = 800.0\niops_reads_max_length = \"10s\"\n\
                    bandwidth = \"1536KiB\"\nbandwidth_max = \"3MiB\"\niops_size = \"8KiB\"\n";
        for words in [
            ours,
            "iops_rd = 400\niops_rd_max = 800\niops_rd_max_length = 10\nbps = 1572864\nbps_max = 3145728\niops_size = 8192",
            "iops-read = 400\niops-read-max = 800\niops-read-max-length = 10\nbps-total = 1572864\nbps-total-max = 3145728\niops-size = 8192",
            "iops_rd = 400\niops_rd_max = 800\niops_rd_length = 10\nmbps = 1.5\nmbps_max = 3\nsize_iops_sec = 8192",
            "read_iops_sec = 400\nread_iops_sec_max = 800\nread_iops_sec_max_length = 10\n\
             total_bytes_sec = 1572864\ntotal_bytes_sec_max = 3145728\nsize_iops_sec = 8192",
        ] {
            assert_eq!(toml::to_string(&of(words)).unwrap(), ours, "{words}");
        }
    }

    #[test]
    fn a_limit_of_other_words_is_refused_by_name() {
        let wrong = |text: &str| toml::from_str::<LimitSetting>(text).unwrap_err().to_string();
        assert!(wrong("iopz = 5").contains("unknown field `iopz`, expected one of `iops`"));
        for unknown in
            ["iops_max_max = 5", "total_iops = 5", "iops_sec = 5", "iops_size_max = 5", "_rd = 5"]
        {
            assert!(wrong(unknown).contains("unknown field"), "{unknown}");
        }
        assert!(
            wrong("iops_rd = 5\niops_reads = 6").contains("`iops_reads` sets what another key")
        );
        assert!(
            wrong("iops = 5\niops_max = 9\niops_max_length = \"10\"").contains("whole seconds")
        );
        assert!(wrong("iops = 5\nburst = 9\nburst_for = 10").contains("a duration such as"));
    }
}
