//! A distribution of latencies that travels: the occupied buckets of a histogram.
//!
//! IOPS without latency, or a mean without its distribution, misleads (Elling 2012). The agent therefore reports each latency as its whole
//! distribution.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Latencies since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// `[nanoseconds, IOs]` for each occupied bucket, ascending; a bucket is named by its middle.
    pub buckets: Vec<(u64, u64)>,
}

/// Summary of a distribution, in milliseconds. All zero if there were no IOs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Mean latency, in milliseconds.
    pub mean: f64,
    /// Standard deviation of the latency, in milliseconds.
    pub stddev: f64,
    /// Median latency, in milliseconds.
    pub p50: f64,
    /// 99th percentile of the latency, in milliseconds.
    pub p99: f64,
    /// Largest latency, in milliseconds.
    pub max: f64,
}

impl From<&Histogram<u64>> for Latency {
    fn from(histogram: &Histogram<u64>) -> Latency {
        Latency { buckets: occupied(histogram).collect() }
    }
}

/// Occupied buckets of a histogram as [`Latency`] has them.
pub(crate) fn occupied(histogram: &Histogram<u64>) -> impl Iterator<Item = (u64, u64)> {
    // An empty one would be looked through from end to end.
    let some = (!histogram.is_empty()).then(|| histogram.iter_recorded());
    some.into_iter()
        .flatten()
        .map(|v| (histogram.median_equivalent(v.value_iterated_to()), v.count_at_value()))
}

impl Latency {
    /// Number of IOs in all buckets.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|b| b.1).sum()
    }

    /// IOs since `earlier`, a snapshot of the same histogram. If `earlier` has more IOs than this (the agent was restarted), this histogram
    /// counts from its own start.
    #[must_use]
    pub fn since(&self, earlier: &Latency) -> Latency {
        let mut before = earlier.buckets.iter().peekable();
        let mut buckets = Vec::with_capacity(self.buckets.len());
        for &(value, count) in &self.buckets {
            match before.next_if(|b| b.0 <= value) {
                Some(&(same, had)) if same == value && had <= count => {
                    if count > had {
                        buckets.push((value, count - had));
                    }
                }
                None => buckets.push((value, count)),
                Some(_) => return self.clone(),
            }
        }
        if before.next().is_some() { self.clone() } else { Latency { buckets } }
    }

    /// Latencies of both sets of IOs.
    #[must_use]
    pub fn plus(&self, other: &Latency) -> Latency {
        let mut all = std::collections::BTreeMap::new();
        for &(value, count) in self.buckets.iter().chain(&other.buckets) {
            *all.entry(value).or_insert(0) += count;
        }
        Latency { buckets: all.into_iter().collect() }
    }

    /// Summary of the distribution.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let count = self.count();
        if count == 0 {
            return Summary::default();
        }
        let ms = |ns: u64| ns as f64 / 1e6;
        let over = |f: &dyn Fn(f64) -> f64| {
            self.buckets.iter().map(|&(v, n)| f(ms(v)) * n as f64).sum::<f64>() / count as f64
        };
        let mean = over(&|v| v);
        let quantile = |q: f64| {
            let rank = (q * count as f64).ceil().max(1.0) as u64;
            let mut seen = 0;
            self.buckets
                .iter()
                .find(|b| {
                    seen += b.1;
                    seen >= rank
                })
                .map_or(0.0, |b| ms(b.0))
        };
        Summary {
            mean,
            stddev: over(&|v| (v - mean) * (v - mean)).sqrt(),
            p50: quantile(0.5),
            p99: quantile(0.99),
            max: self.buckets.last().map_or(0.0, |b| ms(b.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ms: &[u64]) -> Latency {
        let mut h = Histogram::<u64>::new(3).unwrap();
        ms.iter().for_each(|ms| h.record(ms * 1_000_000).unwrap());
        Latency::from(&h)
    }

    #[test]
    fn a_summary_is_that_of_the_values() {
        let summary = of(&(1..=100).collect::<Vec<_>>()).summary();
        let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 0.001, "{a} {b}");
        near(summary.mean, 50.5);
        near(summary.stddev, 28.866);
        near(summary.p50, 50.0);
        near(summary.p99, 99.0);
        near(summary.max, 100.0);
    }

    #[test]
    fn snapshots_subtract() {
        assert_eq!(of(&[1, 1, 2, 3, 9]).since(&of(&[1, 3])), of(&[1, 2, 9]));
        assert_eq!(of(&[5]).since(&Latency::default()), of(&[5]));
        assert_eq!(of(&[5]).since(&of(&[5])), Latency::default());
    }

    #[test]
    fn a_restart_begins_from_nothing() {
        assert_eq!(of(&[1]).since(&of(&[1, 1])), of(&[1]));
        assert_eq!(of(&[7]).since(&of(&[2, 7])), of(&[7]));
        assert_eq!(of(&[2]).since(&of(&[2, 7])), of(&[2]));
    }

    #[test]
    fn adding_merges_buckets() {
        assert_eq!(of(&[1, 2]).plus(&of(&[2, 3])), of(&[1, 2, 2, 3]));
    }

    #[test]
    fn nothing_is_all_zeros() {
        assert_eq!(Latency::default().summary(), Summary::default());
    }
}
