//! Families of metrics, and how their samples are made from a status.

use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use crate::latency::Latency;

/// Upper bounds of the buckets of all histograms, in seconds: 1, 2 and 5 times each power of ten.
pub(super) const BOUNDS: [f64; 17] = [
    50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 0.1, 0.2, 0.5, 1.0, 2.0,
    5.0, 10.0,
];

/// Labels of a sample, in the order in which they are written.
pub(super) type Labels = Vec<(&'static str, String)>;

/// Value of a sample.
pub(super) enum Value {
    Gauge(f64),
    Counter(u64),
    /// A counter of seconds.
    Time(f64),
    /// Bounds, and numbers of values between them; the sum of all values.
    Histogram(Vec<(f64, u64)>, f64),
}

/// One family of metrics: samples that have a name in common.
pub(super) struct Family<T> {
    /// Name without `parda_`, without the unit and without `_total`.
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) unit: Option<Unit>,
    pub(super) kind: MetricType,
    /// Samples of one object: labels besides the object's own, and the value.
    pub(super) samples: fn(&T) -> Vec<(Labels, Value)>,
}

/// A gauge of which each object has one.
pub(super) const fn gauge<T>(
    name: &'static str,
    help: &'static str,
    samples: fn(&T) -> Vec<(Labels, Value)>,
) -> Family<T> {
    Family { name, help, unit: None, kind: MetricType::Gauge, samples }
}

/// The same in seconds.
pub(super) const fn seconds<T>(
    name: &'static str,
    help: &'static str,
    samples: fn(&T) -> Vec<(Labels, Value)>,
) -> Family<T> {
    Family { name, help, unit: Some(Unit::Seconds), kind: MetricType::Gauge, samples }
}

/// The same in bytes.
pub(super) const fn bytes<T>(
    name: &'static str,
    help: &'static str,
    samples: fn(&T) -> Vec<(Labels, Value)>,
) -> Family<T> {
    Family { name, help, unit: Some(Unit::Bytes), kind: MetricType::Gauge, samples }
}

/// A counter since the agent's start.
pub(super) const fn counter<T>(
    name: &'static str,
    help: &'static str,
    samples: fn(&T) -> Vec<(Labels, Value)>,
) -> Family<T> {
    Family { name, help, unit: None, kind: MetricType::Counter, samples }
}

/// A counter of seconds since the agent's start.
pub(super) const fn time<T>(
    name: &'static str,
    help: &'static str,
    samples: fn(&T) -> Vec<(Labels, Value)>,
) -> Family<T> {
    Family { name, help, unit: Some(Unit::Seconds), kind: MetricType::Counter, samples }
}

/// A histogram of times since the agent's start.
pub(super) const fn histogram<T>(
    name: &'static str,
    help: &'static str,
    samples: fn(&T) -> Vec<(Labels, Value)>,
) -> Family<T> {
    Family { name, help, unit: Some(Unit::Seconds), kind: MetricType::Histogram, samples }
}

/// One sample without labels of its own.
pub(super) fn one(value: impl Into<f64>) -> Vec<(Labels, Value)> {
    vec![(Vec::new(), Value::Gauge(value.into()))]
}

/// The same where the value may be unknown: there is no sample then.
pub(super) fn maybe(value: Option<f64>) -> Vec<(Labels, Value)> {
    value.map(one).unwrap_or_default()
}

/// Milliseconds of the status as seconds.
pub(super) fn ms(value: Option<f64>) -> Vec<(Labels, Value)> {
    maybe(value.map(|ms| ms / 1e3))
}

pub(super) fn count(value: u64) -> Vec<(Labels, Value)> {
    vec![(Vec::new(), Value::Counter(value))]
}

/// Counters that one label tells apart.
pub(super) fn counts<const N: usize>(
    label: &'static str,
    values: [(&'static str, u64); N],
) -> Vec<(Labels, Value)> {
    let sample =
        |(name, value): (&str, u64)| (vec![(label, name.to_owned())], Value::Counter(value));
    values.into_iter().map(sample).collect()
}

/// Counters of seconds that one label tells apart.
pub(super) fn times_by<const N: usize>(
    label: &'static str,
    values: [(&'static str, f64); N],
) -> Vec<(Labels, Value)> {
    let sample = |(name, value): (&str, f64)| (vec![(label, name.to_owned())], Value::Time(value));
    values.into_iter().map(sample).collect()
}

/// Gauges that one label tells apart.
pub(super) fn gauges<const N: usize>(
    label: &'static str,
    values: [(&'static str, f64); N],
) -> Vec<(Labels, Value)> {
    let sample = |(name, value): (&str, f64)| (vec![(label, name.to_owned())], Value::Gauge(value));
    values.into_iter().map(sample).collect()
}

/// A distribution in the buckets of [`BOUNDS`].
pub(super) fn times(latency: &Latency) -> Value {
    let sum = latency.buckets.iter().map(|&(ns, ios)| ns as f64 / 1e9 * ios as f64).sum();
    Value::Histogram(bounded(latency.buckets.iter().copied()), sum)
}

/// Numbers of IOs between [`BOUNDS`], from their times in nanoseconds.
pub(super) fn bounded(times: impl Iterator<Item = (u64, u64)>) -> Vec<(f64, u64)> {
    let mut buckets: Vec<(f64, u64)> =
        BOUNDS.iter().chain([&f64::MAX]).map(|bound| (*bound, 0)).collect();
    for (nanoseconds, ios) in times {
        let seconds = nanoseconds as f64 / 1e9;
        buckets[BOUNDS.partition_point(|bound| *bound < seconds)].1 += ios;
    }
    buckets
}
