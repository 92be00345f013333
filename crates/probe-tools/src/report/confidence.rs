//! Confidence intervals of means.

use parda_probe::sample::half_width;
use parda_probe::{Estimate, Point};

/// A point's throughput in IOPS, with a confidence interval from its slices.
pub(crate) fn iops(point: &Point) -> Option<Estimate> {
    let slices: Vec<f64> = point.slices.iter().map(|s| s.iops).collect();
    around(point.all.iops, half_width(&slices)?)
}

/// A point's mean latency in milliseconds, with a confidence interval from its slices.
pub(crate) fn latency(point: &Point) -> Option<Estimate> {
    let slices: Vec<f64> = point.slices.iter().filter_map(|s| s.mean_ms).collect();
    around(point.all.mean_ms, half_width(&slices)?)
}

fn around(value: f64, half: f64) -> Option<Estimate> {
    let of = Estimate { value, low: (value - half).max(0.0), high: value + half };
    (value.is_finite() && half.is_finite()).then_some(of)
}
