//! Types of the law's settings that have names or tables as values.

use std::time::Duration;

use bytesize::ByteSize;
use parda_control::latency::Signal;
use parda_control::{Charge, Costs};
use serde::de::{Deserializer, Error as _, IntoDeserializer as _};
use serde::{Deserialize, Serialize};

/// Quantity that shares divide.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    rename_all = "lowercase",
    expecting = "must be \"outstanding\", \"iops\", \"bytes\", or a cost: { iops_reads = 1800, bandwidth_reads = \"400MiB\", \
                 iops_writes = 450, bandwidth_writes = \"200MiB\" }"
)]
pub enum Fairness {
    /// Outstanding IOs. The default.
    Outstanding,
    /// IO/s, of any size.
    Iops,
    /// Bytes/s of reads and writes.
    Bytes,
    /// The array's time, by what an IO costs.
    #[serde(untagged)]
    Cost(CostSetting),
}

/// Throughput of the array for one kind of random IO alone, which gives the time that an IO takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostSetting {
    /// Reads of 4 KiB per second.
    pub iops_reads: f64,
    /// Bandwidth of large reads, per second.
    #[serde(with = "crate::quantity")]
    pub bandwidth_reads: ByteSize,
    /// Writes of 4 KiB per second.
    pub iops_writes: f64,
    /// Bandwidth of large writes, per second.
    #[serde(with = "crate::quantity")]
    pub bandwidth_writes: ByteSize,
}

/// Size of the IOs that `iops_reads` and `iops_writes` count, in bytes.
const SMALL: f64 = 4096.0;
const MIB: f64 = 1048576.0;

impl Fairness {
    /// Costs of IOs; `None` where shares divide outstanding IOs.
    #[must_use]
    pub fn costs(&self) -> Option<Costs> {
        match self {
            Fairness::Outstanding => None,
            Fairness::Iops => Some(Costs::IOPS),
            Fairness::Bytes => Some(Costs::BYTES),
            Fairness::Cost(cost) => {
                // Nanoseconds, which leave three digits to an array of a million IO/s.
                let charge = |iops: f64, bandwidth: ByteSize| {
                    let byte = 1e9 / bandwidth.as_u64() as f64;
                    Charge { io: (1e9 / iops - SMALL * byte) as u32, mib: (MIB * byte) as u32 }
                };
                let reads = charge(cost.iops_reads, cost.bandwidth_reads);
                let writes = charge(cost.iops_writes, cost.bandwidth_writes);
                Some(Costs { reads, writes })
            }
        }
    }

    /// The first number that is out of range for an array: its key, its bounds and its value.
    pub(crate) fn fault(&self) -> Option<(&'static str, &'static str, f64)> {
        let Fairness::Cost(cost) = self else { return None };
        let wrong = |iops_key, iops: f64, bandwidth_key, bandwidth: ByteSize| {
            let bytes = bandwidth.as_u64() as f64;
            if !(1.0..=1e8).contains(&iops) {
                return Some((iops_key, "from 1 to 100000000", iops));
            }
            let good = (MIB..=MIB * MIB).contains(&bytes) && bytes >= SMALL * iops;
            let must_be = "from 1MiB to 1TiB, and what these IO/s of 4 KiB move at least";
            (!good).then_some((bandwidth_key, must_be, bytes))
        };
        let CostSetting { iops_reads, bandwidth_reads, iops_writes, bandwidth_writes } = *cost;
        let of_reads = "fairness.bandwidth_reads";
        let of_writes = "fairness.bandwidth_writes";
        wrong("fairness.iops_reads", iops_reads, of_reads, bandwidth_reads)
            .or_else(|| wrong("fairness.iops_writes", iops_writes, of_writes, bandwidth_writes))
    }
}

/// Response to load on the array that is not under control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutsiderSetting {
    /// Hosts under control keep their part of the array, above the threshold. The default.
    Compete,
    /// The threshold holds: hosts under control make room.
    Hold,
}

/// Scaling of latencies to one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    rename_all = "lowercase",
    expecting = "must be \"off\", \"learned\", or { per_kib = \"20us\", fixed = \"4ms\" }"
)]
pub enum SizeModelSetting {
    /// No scaling. The default.
    Off,
    /// A line fitted to completed IOs.
    Learned,
    /// A line measured beforehand.
    #[serde(untagged)]
    Line(LineSetting),
}

/// The line latency = `per_kib` · size + `fixed`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LineSetting {
    /// Slope m, in time for each KiB.
    #[serde(with = "crate::quantity")]
    pub per_kib: Duration,
    /// Constant C: latency of an IO without bytes.
    #[serde(with = "crate::quantity")]
    pub fixed: Duration,
}

/// Reads `signal`. A value of earlier versions is refused by the name of its replacement.
pub(crate) fn signal<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Signal>, D::Error> {
    match Option::<String>::deserialize(from)? {
        Some(text) if text == "slowest" => Err(D::Error::custom(
            "`slowest` is gone, the law holds the mean over all IOs: leave `signal` out, and give the disks that must not \
             wait a `latency_target`",
        )),
        Some(text) => Signal::deserialize(text.into_deserializer()).map(Some),
        None => Ok(None),
    }
}
