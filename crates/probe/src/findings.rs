//! What the points of a probe say together: reason codes and their numbers. `parda-probe-report` has the
//! sentences.

use serde::{Deserialize, Serialize};

use crate::load::Mix;
use crate::reasons::{Suspicion, Unknown, Why};

/// What the points of a probe say together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// One for each mix that was swept over outstanding, in the order they were run: the first is
    /// the one that advice is drawn from.
    pub curves: Vec<Curve>,
    /// Latency against size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_line: Option<SizeLine>,
    /// Reads beside writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asymmetry: Option<Asymmetry>,
    /// How well runs of the same load agree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<Noise>,
    /// Caches and limits that may be between the probe and the medium, with their evidence.
    pub suspicions: Vec<Suspicion>,
    /// What to set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<Advice>,
    /// What these points cannot tell.
    pub unknown: Vec<Unknown>,
}

/// A number, and where it lies with 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // The names say it.
pub struct Estimate {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// One mix, against outstanding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// The mix.
    pub mix: Mix,
    /// Mean latency with one outstanding, in milliseconds: the service time. `None` if that was not
    /// run.
    pub service_ms: Option<Estimate>,
    /// The highest throughput, in IOPS.
    pub peak_iops: Estimate,
    /// The same in bytes a second.
    pub peak_bytes_per_s: f64,
    /// The fewest outstanding whose throughput is the peak, but for noise.
    pub peak_outstanding: u32,
    /// Where more outstanding no longer buys throughput; `None` if the sweep did not get there.
    pub knee: Option<Knee>,
}

/// Where more outstanding no longer buys throughput worth its latency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Knee {
    /// So many are outstanding.
    pub outstanding: Estimate,
    /// The mean latency there, in milliseconds.
    pub latency_ms: Estimate,
    /// The throughput there, in IOPS.
    pub iops: f64,
}

/// latency = `ms_per_kib` · size + `fixed_ms` (SPEED'08 §3.1: m and C), with one outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizeLine {
    /// m, per KiB.
    pub ms_per_kib: Estimate,
    /// C.
    pub fixed_ms: Estimate,
    /// How much of the variance the line explains, 0 to 1.
    pub r_squared: f64,
    /// The largest distance of a point from the line, relative to the line.
    pub worst_residual: f64,
}

/// Reads beside writes of the same size, randomness and depth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asymmetry {
    /// With so many outstanding.
    pub outstanding: u32,
    /// Mean latency of writes over that of reads.
    pub latency_ratio: f64,
    /// Throughput of writes over that of reads.
    pub iops_ratio: f64,
}

/// How well runs of the same load agree.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// How many pairs of runs.
    pub pairs: u32,
    /// The largest difference of throughput between two runs of one load, relative to their mean.
    pub iops: f64,
    /// The same of mean latency.
    pub latency: f64,
}

/// What to set, drawn from the first of [`Findings::curves`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// `latency_threshold`, in milliseconds: rounded up to something a person would write.
    pub latency_threshold_ms: f64,
    /// `window_max` of a host: no window needs to be larger.
    pub window_max: f64,
    /// Throughput at the threshold over the peak, 0 to 1.
    pub throughput_fraction: f64,
    /// Reasons, with their numbers.
    pub why: Vec<Why>,
}
