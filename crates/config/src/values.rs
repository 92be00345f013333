//! Types of the law's settings that have names or tables as values.

use std::time::Duration;

use parda_control::latency::Signal;
use serde::de::{Deserializer, Error as _, IntoDeserializer as _};
use serde::{Deserialize, Serialize};

/// Quantity that shares divide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fairness {
    /// IO/s: every IO takes one slot of the window. The default.
    Iops,
    /// Bytes/s: an IO takes a slot for each `slot_size` of its bytes.
    Bytes,
}

/// What is done about load on the array that is not under control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutsiderSetting {
    /// The threshold holds: hosts under control make room. The default.
    Hold,
    /// The outsider counts as a host with `outsider_shares` shares.
    Share,
    /// Hosts under control keep the outstanding IOs that they had.
    Compete,
}

/// Scaling of latencies to one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "must be \"off\", \"learned\", or { per_kib = \"20us\", fixed = \"4ms\" }"
)]
pub enum SizeModelSetting {
    /// A model by its name: `"off"` or `"learned"`.
    Named(NamedSizeModel),
    /// A line measured beforehand.
    Line(LineSetting),
}

/// A size model by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NamedSizeModel {
    /// No scaling. The default.
    Off,
    /// A line fitted to completed IOs.
    Learned,
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
