//! Findings of a probe, from all its points together: reason codes and their numbers. `parda-probe-tools` has the
//! sentences.

use serde::{Deserialize, Serialize};

use crate::load::LoadMix;
use crate::reasons::{AdviceReason, OpenQuestion, Suspicion};

/// Findings of a probe, from all its points together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// Curves over outstanding IOs, one for each mix that was swept, in the order they were run. Advice rests on
    /// the first.
    pub curves: Vec<Curve>,
    /// The line of latency against size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_line: Option<SizeLine>,
    /// Cost of reads and writes in the array's time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<KindCost>,
    /// Latency of reads beside the latency of writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asymmetry: Option<Asymmetry>,
    /// Differences between runs of the same load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<Noise>,
    /// Caches and limits that may be between the probe and the medium, with their evidence.
    pub suspicions: Vec<Suspicion>,
    /// The threshold and the window to set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<Advice>,
    /// Questions that these points cannot answer.
    pub unknown: Vec<OpenQuestion>,
}

/// A number with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // The names say it.
pub struct IntervalEstimate {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// One mix, against outstanding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Mix of reads and writes of the curve.
    pub mix: LoadMix,
    /// Mean latency with one outstanding, in milliseconds: the service time. `None` if that was not
    /// run.
    pub service_ms: Option<IntervalEstimate>,
    /// The highest throughput, in IOPS.
    pub peak_iops: IntervalEstimate,
    /// The highest throughput, in bytes per second.
    pub peak_bytes_per_s: f64,
    /// The smallest number of outstanding IOs whose throughput is the peak within noise.
    pub peak_outstanding: u32,
    /// The knee. `None` if the sweep did not reach it.
    pub knee: Option<Knee>,
}

/// The knee: the load from which on more outstanding IOs buy hardly any throughput for their latency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Knee {
    /// Number of outstanding IOs at the knee.
    pub outstanding: IntervalEstimate,
    /// Mean latency at the knee, in milliseconds.
    pub latency_ms: IntervalEstimate,
    /// Throughput at the knee, in IOPS.
    pub iops: f64,
}

/// latency = `ms_per_kib` · size + `fixed_ms` (SPEED'08 §3.1: m and C), with one outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizeLine {
    /// Slope m, in milliseconds per KiB.
    pub ms_per_kib: IntervalEstimate,
    /// Constant C: latency of an IO without bytes, in milliseconds.
    pub fixed_ms: IntervalEstimate,
    /// Fraction of the variance that the line explains (R²), 0 to 1.
    pub r_squared: f64,
    /// The largest distance of a point from the line, relative to the line.
    pub worst_residual: f64,
}

/// Throughput of the target for random IOs of one kind alone: the `fairness` that divides its time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct KindCost {
    /// The most reads of 4 KiB, in IOPS.
    pub iops_reads: f64,
    /// Bytes per second of the bytes beyond 4 KiB of a read.
    pub bandwidth_reads: f64,
    /// The most writes of 4 KiB, in IOPS.
    pub iops_writes: f64,
    /// Bytes per second of the bytes beyond 4 KiB of a write.
    pub bandwidth_writes: f64,
}

/// Reads beside writes of the same size, randomness and depth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asymmetry {
    /// Number of outstanding IOs of both loads.
    pub outstanding: u32,
    /// Mean latency of writes over the mean latency of reads.
    pub latency_ratio: f64,
    /// Throughput of writes over the throughput of reads.
    pub iops_ratio: f64,
}

/// Differences between runs of the same load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// Number of pairs of runs.
    pub pairs: u32,
    /// The largest difference of throughput between two runs of one load, relative to their mean.
    pub iops: f64,
    /// The largest difference of mean latency between two runs of one load, relative to their mean.
    pub latency: f64,
}

/// The threshold and the window to set, computed from the first of [`Findings::curves`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// `latency_threshold`, in milliseconds: rounded up to something a person would write.
    pub latency_threshold_ms: f64,
    /// `window_max` of a host: no window needs to be larger.
    pub window_max: f64,
    /// Throughput at the threshold over the peak, 0 to 1.
    pub throughput_fraction: f64,
    /// Reasons, with their numbers.
    pub why: Vec<AdviceReason>,
    /// Effects of other thresholds, and of the advised one among them, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<ThresholdChoice>,
}

/// A threshold, with its cost and its gain.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThresholdChoice {
    /// The `latency_threshold` to choose, in milliseconds.
    pub latency_threshold_ms: f64,
    /// IOs outstanding at the array then, of all hosts.
    pub outstanding: f64,
    /// Throughput of all hosts over the peak, 0 to 1.
    pub throughput_fraction: f64,
    /// IOPS of a client that keeps one IO outstanding beside them.
    pub one_at_a_time_iops: f64,
}
