//! Confidence intervals of means.

use parda_probe::Estimate;
use parda_probe::Point;
use parda_probe::sample;

/// Half the width of the 95 % confidence interval of the mean of independent values. `None` for fewer
/// than three values.
pub(crate) fn half_width(values: &[f64]) -> Option<f64> {
    if values.len() < 3 {
        return None;
    }
    Some(sample::student(values.len() - 1) * sample::mean(values).1)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_that_of_students_t() {
        // 1 to 5: standard deviation 1.5811, t of 4 is 2.776: 2.776 · 1.5811 / √5.
        let half = half_width(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert!((half - 1.963).abs() < 0.001, "{half}");
        assert_eq!(half_width(&[1.0, 2.0]), None);
        assert_eq!(half_width(&[2.0; 100]), Some(0.0));
    }
}
