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

/// Samples of one object: labels besides the object's own, and the value.
pub(super) type Samples<T> = fn(&T) -> Vec<(Labels, Value)>;

/// One family of metrics: samples that have a name in common.
pub(super) struct Family<T> {
    /// Name without `parda_`, without the unit and without `_total`.
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) unit: Option<Unit>,
    pub(super) kind: MetricType,
    pub(super) samples: Samples<T>,
}

/// A name or a help text.
type Text = &'static str;

const fn family<T>(
    name: Text,
    help: Text,
    unit: Option<Unit>,
    kind: MetricType,
    samples: Samples<T>,
) -> Family<T> {
    Family { name, help, unit, kind, samples }
}

/// A gauge of which each object has one.
pub(super) const fn gauge<T>(name: Text, help: Text, samples: Samples<T>) -> Family<T> {
    family(name, help, None, MetricType::Gauge, samples)
}

/// The same in seconds.
pub(super) const fn seconds<T>(name: Text, help: Text, samples: Samples<T>) -> Family<T> {
    family(name, help, Some(Unit::Seconds), MetricType::Gauge, samples)
}

/// The same in bytes.
pub(super) const fn bytes<T>(name: Text, help: Text, samples: Samples<T>) -> Family<T> {
    family(name, help, Some(Unit::Bytes), MetricType::Gauge, samples)
}

/// A counter since the agent's start.
pub(super) const fn counter<T>(name: Text, help: Text, samples: Samples<T>) -> Family<T> {
    family(name, help, None, MetricType::Counter, samples)
}

/// A counter of seconds since the agent's start.
pub(super) const fn time<T>(name: Text, help: Text, samples: Samples<T>) -> Family<T> {
    family(name, help, Some(Unit::Seconds), MetricType::Counter, samples)
}

/// A histogram of times since the agent's start.
pub(super) const fn histogram<T>(name: Text, help: Text, samples: Samples<T>) -> Family<T> {
    family(name, help, Some(Unit::Seconds), MetricType::Histogram, samples)
}

/// One sample without labels of its own: a number, or 1 where something is so, and else 0.
pub(super) fn one(value: impl Into<f64>) -> Vec<(Labels, Value)> {
    vec![(Vec::new(), Value::Gauge(value.into()))]
}

/// The same where the value may be unknown: there is no sample then.
pub(super) fn maybe(value: Option<impl Into<f64>>) -> Vec<(Labels, Value)> {
    value.map(one).unwrap_or_default()
}

/// Milliseconds of the status as seconds.
pub(super) fn ms(value: Option<f64>) -> Vec<(Labels, Value)> {
    maybe(value.map(|ms| ms / 1e3))
}

pub(super) fn count(value: u64) -> Vec<(Labels, Value)> {
    vec![(Vec::new(), Value::Counter(value))]
}

/// Values that one label distinguishes.
pub(super) fn by<S: ToString, T>(
    label: &'static str,
    value: fn(T) -> Value,
    of: impl IntoIterator<Item = (S, T)>,
) -> Vec<(Labels, Value)> {
    of.into_iter().map(|(name, of)| (vec![(label, name.to_string())], value(of))).collect()
}

/// IOs or bytes of reads and writes.
pub(super) fn counts<S: ToString>(
    label: &'static str,
    of: impl IntoIterator<Item = (S, u64)>,
) -> Vec<(Labels, Value)> {
    by(label, Value::Counter, of)
}

/// 1 for the name that is the case, 0 for the others.
pub(super) fn one_of<T: PartialEq>(
    label: &'static str,
    is: &T,
    all: &[(&str, T)],
) -> Vec<(Labels, Value)> {
    by(label, Value::Gauge, all.iter().map(|(name, of)| (name, f64::from(of == is))))
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
