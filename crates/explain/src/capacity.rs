//! Throughput of the array by its latency.

use serde::{Deserialize, Serialize};

/// How the array's throughput depends on its latency.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Capacity {
    /// A straight line of latency over outstanding IOs is assumed, which begins at the time of an IO by itself.
    Assumed {
        /// That time, in milliseconds.
        service_ms: f64,
    },
    /// Measured by a probe: latencies in milliseconds and IO/s, ascending.
    Probed {
        /// Points of the curve.
        curve: Vec<(f64, f64)>,
    },
}

/// The assumed time of an IO by itself may be off by this part of it.
const UNSURE: f64 = 0.5;

impl Capacity {
    /// Time of an IO by itself, in milliseconds.
    #[must_use]
    pub fn service_ms(&self) -> f64 {
        match self {
            Capacity::Assumed { service_ms } => *service_ms,
            Capacity::Probed { curve } => curve.first().map_or(0.0, |point| point.0),
        }
    }

    /// Throughput at one latency over that at another.
    #[must_use]
    pub fn ratio(&self, to_ms: f64, from_ms: f64) -> f64 {
        match self {
            Capacity::Assumed { service_ms } => straight(*service_ms, to_ms, from_ms),
            Capacity::Probed { curve } => at(curve, to_ms) / at(curve, from_ms),
        }
    }

    /// Least and largest ratio that is likely.
    #[must_use]
    pub fn range(&self, to_ms: f64, from_ms: f64) -> (f64, f64) {
        match self {
            Capacity::Assumed { service_ms } => {
                let of = |part: f64| straight(part * service_ms, to_ms, from_ms);
                let (a, b) = (of(1.0 - UNSURE), of(1.0 + UNSURE));
                (a.min(b), a.max(b))
            }
            Capacity::Probed { .. } => {
                let ratio = self.ratio(to_ms, from_ms);
                (ratio, ratio)
            }
        }
    }
}

/// With L = S + N / C the throughput N / L is C · (1 − S / L). Below S there is one outstanding IO at most.
fn straight(service_ms: f64, to_ms: f64, from_ms: f64) -> f64 {
    let part = |ms: f64| (1.0 - service_ms / ms).max(LEAST);
    part(to_ms) / part(from_ms)
}

/// Part of its throughput that an array keeps whatever the latency is to be.
const LEAST: f64 = 0.05;

/// A value of the curve, by straight lines between its points, and level beyond them.
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
    fn a_probe_is_read_between_its_points() {
        let array = Capacity::Probed { curve: vec![(5.0, 100.0), (10.0, 180.0), (30.0, 200.0)] };
        assert_eq!(array.ratio(20.0, 10.0), 190.0 / 180.0);
        assert_eq!(array.ratio(60.0, 30.0), 1.0);
        assert_eq!(array.ratio(2.5, 5.0), 0.5);
    }
}
