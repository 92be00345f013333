//! Measurement of one load after its warm-up.

use serde::{Deserialize, Serialize};

use crate::load::{ProbeLoad, Purpose};

/// Measurement of one load after its warm-up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Load of the point.
    #[serde(flatten)]
    pub load: ProbeLoad,
    /// The question that the load answers.
    pub purpose: Purpose,
    /// Length of the warm-up, which is dropped, in seconds.
    pub warmup_s: f64,
    /// Length of the measurement after the warm-up, in seconds.
    pub measured_s: f64,
    /// Whether the load was steady during the measurement. A run that never becomes steady is kept and marked so.
    pub settled: bool,
    /// Mean number of outstanding IOs: the sum of all latencies over the time measured.
    pub outstanding_measured: f64,
    /// Throughput times latency over the number of outstanding IOs asked for, less one: 0 where Little's law holds exactly.
    pub little_error: f64,
    /// Reads and writes together.
    pub all: KindMeasured,
    /// Reads, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<KindMeasured>,
    /// Writes, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<KindMeasured>,
    /// Slices of equal length of the time measured, in order. Confidence intervals are computed from them.
    pub slices: Vec<TimeSlice>,
}

/// IOs of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KindMeasured {
    /// Number of completed IOs.
    pub ios: u64,
    /// Completed IOs per second.
    pub iops: f64,
    /// Bytes read and written per second.
    pub bytes_per_s: f64,
    /// Mean latency, from submission to completion, in milliseconds.
    pub mean_ms: f64,
    /// Standard deviation of the latency, in milliseconds.
    pub stddev_ms: f64,
    /// Median latency, in milliseconds.
    pub p50_ms: f64,
    /// 90th percentile of the latency, in milliseconds.
    pub p90_ms: f64,
    /// 99th percentile of the latency, in milliseconds.
    pub p99_ms: f64,
    /// 99.9th percentile of the latency, in milliseconds.
    pub p99_9_ms: f64,
    /// Largest latency, in milliseconds.
    pub max_ms: f64,
    /// Histogram of latencies, ascending. Empty buckets are left out.
    pub histogram: Vec<Bucket>,
}

/// Latencies of about one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// Largest latency of the bucket, in milliseconds.
    pub up_to_ms: f64,
    /// Number of IOs whose latencies are in the bucket.
    pub ios: u64,
}

/// A slice of the time measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimeSlice {
    /// Length of the slice, in seconds.
    pub seconds: f64,
    /// Completed IOs per second.
    pub iops: f64,
    /// Mean latency of these IOs, in milliseconds. `None` (`null`) if there were none.
    pub mean_ms: Option<f64>,
}
