//! What was measured at one load.

use serde::{Deserialize, Serialize};

use crate::load::{Load, Purpose};

/// What was measured at one load, after warm-up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Load of the point.
    #[serde(flatten)]
    pub load: Load,
    /// Which question it answers.
    pub purpose: Purpose,
    /// How long it warmed up, in seconds: dropped.
    pub warmup_s: f64,
    /// How long it was measured after that, in seconds.
    pub measured_s: f64,
    /// Whether it was steady when it was measured. A run that never settles is kept, and said so.
    pub settled: bool,
    /// How many were outstanding on average: the latencies added up over the time measured.
    pub outstanding_measured: f64,
    /// X · L over the number asked for, less one: 0 where Little's law holds to the digit.
    pub little_error: f64,
    /// Reads and writes together.
    pub all: Measured,
    /// Reads, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<Measured>,
    /// Writes, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<Measured>,
    /// The time measured, cut into equal pieces, in order: what confidence is drawn from.
    pub slices: Vec<Slice>,
}

/// IOs of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// How many completed.
    pub ios: u64,
    /// A second.
    pub iops: f64,
    /// Bytes moved a second.
    pub bytes_per_s: f64,
    /// Mean latency, from issue to completion.
    pub mean_ms: f64,
    /// Its standard deviation.
    pub stddev_ms: f64,
    /// The median.
    pub p50_ms: f64,
    /// 90 % were no slower.
    pub p90_ms: f64,
    /// 99 % were no slower.
    pub p99_ms: f64,
    /// 99.9 % were no slower.
    pub p99_9_ms: f64,
    /// The slowest.
    pub max_ms: f64,
    /// How many had which latency, ascending; buckets without any are left out.
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

/// A piece of the time measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    /// How long it is, in seconds.
    pub seconds: f64,
    /// IOs completed a second.
    pub iops: f64,
    /// Their mean latency; not a number (`null`) if there were none.
    pub mean_ms: Option<f64>,
}
