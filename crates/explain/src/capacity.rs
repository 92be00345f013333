//! The curve of an array's throughput over its latency, assumed or measured.

use serde::{Deserialize, Serialize};

/// The curve of an array's throughput over its latency.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Capacity {
    /// Assumed: latency is a straight line over outstanding IOs that begins at the service time.
    Assumed {
        /// Service time, in milliseconds: the latency of an IO that is alone at the array.
        service_ms: f64,
    },
    /// Measured by a probe.
    Probed {
        /// Points (latency in milliseconds, IO/s), in ascending order of latency.
        curve: Vec<(f64, f64)>,
    },
}

/// Uncertainty of an assumed service time, as a fraction of it.
const UNCERTAINTY: f64 = 0.5;

impl Capacity {
    /// Service time, in milliseconds.
    #[must_use]
    pub fn service_ms(&self) -> f64 {
        match self {
            Capacity::Assumed { service_ms } => *service_ms,
            Capacity::Probed { curve } => curve.first().map_or(0.0, |point| point.0),
        }
    }

    /// The curve of an array whose IOs take `latency_ms` beside `outstanding` others. The array does at least one IO at a time. So an IO
    /// waits for at most one service time of each other IO. The service time is at least `latency_ms / (1 + outstanding)`.
    #[must_use]
    pub(crate) fn beside(&self, outstanding: f64, latency_ms: f64) -> Capacity {
        match self {
            Capacity::Assumed { service_ms } => {
                Capacity::Assumed { service_ms: service_ms.max(latency_ms / (1.0 + outstanding)) }
            }
            Capacity::Probed { .. } => self.clone(),
        }
    }

    /// Throughput at the latency `to_ms` over throughput at `from_ms`.
    #[must_use]
    pub fn ratio(&self, to_ms: f64, from_ms: f64) -> f64 {
        match self {
            Capacity::Assumed { service_ms } => straight(*service_ms, to_ms, from_ms),
            Capacity::Probed { curve } => at(curve, to_ms) / at(curve, from_ms),
        }
    }

    /// Whether the curve applies to a step from one latency to another: neither is near or below the service time. An assumed service time
    /// must also be below the present latency by its uncertainty.
    #[must_use]
    pub(crate) fn reaches(&self, to_ms: f64, from_ms: f64) -> bool {
        match self {
            Capacity::Assumed { service_ms } => {
                (1.0 + UNCERTAINTY) * service_ms < from_ms && *service_ms < (1.0 - LEAST) * to_ms
            }
            Capacity::Probed { .. } => self.service_ms() < to_ms.min(from_ms),
        }
    }

    /// Smallest and largest likely [`Capacity::ratio`], which lies between them. Both are that ratio if the curve was measured.
    #[must_use]
    pub fn range(&self, to_ms: f64, from_ms: f64) -> (f64, f64) {
        match self {
            Capacity::Assumed { service_ms } => {
                let of = |part: f64| straight(part * service_ms, to_ms, from_ms);
                let (a, b, ratio) = (of(1.0 - UNCERTAINTY), of(1.0 + UNCERTAINTY), of(1.0));
                (a.min(b).min(ratio), a.max(b).max(ratio))
            }
            Capacity::Probed { .. } => {
                let ratio = self.ratio(to_ms, from_ms);
                (ratio, ratio)
            }
        }
    }
}

/// Throughput at `to_ms` over throughput at `from_ms`, if latency is a straight line over outstanding IOs.
///
/// From L = S + N / C follows N / L = C · (1 − S / L). [`LEAST`] stands for latencies below S, which are impossible.
fn straight(service_ms: f64, to_ms: f64, from_ms: f64) -> f64 {
    let part = |ms: f64| (1.0 - service_ms / ms).max(LEAST);
    part(to_ms) / part(from_ms)
}

/// Least throughput, as a fraction of C: a latency near or below the service time still lets one IO through.
const LEAST: f64 = 0.05;

/// IO/s at a latency: interpolated between points, constant above the last, in proportion to latency below the first.
fn at(curve: &[(f64, f64)], ms: f64) -> f64 {
    let after = curve.iter().position(|point| point.0 >= ms);
    match after {
        None => curve.last().map_or(1.0, |point| point.1),
        Some(0) => curve.first().map_or(1.0, |point| point.1 * (ms / point.0).min(1.0)),
        Some(i) => {
            let ((x0, y0), (x1, y1)) = (curve[i - 1], curve[i]);
            y0 + (y1 - y0) * (ms - x0) / (x1 - x0).max(f64::MIN_POSITIVE)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_latency_costs_more_throughput_the_nearer_it_is_to_the_service_time() {
        let array = Capacity::Assumed { service_ms: 7.1 };
        let ratio = array.ratio(15.0, 30.0);
        assert!((ratio - 0.69).abs() < 0.01, "{ratio}");
        let (low, high) = array.range(15.0, 30.0);
        assert!(low < ratio && ratio < high && high < 1.0, "{low} {high}");
        assert!(array.ratio(60.0, 30.0) > 1.0);
        assert_eq!(array.ratio(3.0, 3.0), 1.0);
    }

    #[test]
    fn a_ratio_lies_within_its_range_however_near_the_service_time_is() {
        for service_ms in (1..30).map(f64::from) {
            let array = Capacity::Assumed { service_ms };
            for (to, from) in [(15.0, 30.0), (16.0, 16.5), (60.0, 30.0)] {
                let (ratio, (low, high)) = (array.ratio(to, from), array.range(to, from));
                assert!(low <= ratio && ratio <= high, "{service_ms}: {low} {ratio} {high}");
            }
        }
    }

    #[test]
    fn a_probe_is_read_between_its_points() {
        let array = Capacity::Probed { curve: vec![(5.0, 100.0), (10.0, 180.0), (30.0, 200.0)] };
        assert_eq!(array.ratio(20.0, 10.0), 190.0 / 180.0);
        assert_eq!(array.ratio(60.0, 30.0), 1.0);
        assert_eq!(array.ratio(2.5, 5.0), 0.5);
    }
}
