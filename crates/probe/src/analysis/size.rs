//! Latency against size: m and C.

use crate::analysis::resample::{self, TIMES};
use crate::findings::SizeLine;
use crate::load::Purpose;
use crate::point::Point;

/// Least relative error of a mean, so that weights stay finite and no single size determines the line.
const LEAST_ERROR: f64 = 0.002;

/// The line of latency against size, if three sizes were run with one outstanding.
///
/// Weighted least squares: a size counts the more, the smaller the error of its mean is.
pub(super) fn size_line(points: &[Point]) -> Option<SizeLine> {
    let wanted = |point: &&Point| {
        point.purpose == Purpose::Size && point.load.outstanding == 1 && point.all.ios > 0
    };
    let sizes: Vec<&Point> = points.iter().filter(wanted).collect();
    let mut distinct: Vec<u64> = sizes.iter().map(|point| point.load.mix.size).collect();
    distinct.sort_unstable();
    distinct.dedup();
    // Two points are always on a line.
    if distinct.len() < 3 {
        return None;
    }
    let weights: Vec<f64> = sizes
        .iter()
        .map(|point| (point.all.mean_ms * resample::latency_error(point).max(LEAST_ERROR)).powi(-2))
        .collect();
    let kib: Vec<f64> = sizes.iter().map(|point| point.load.mix.size as f64 / 1024.0).collect();
    let means: Vec<f64> = sizes.iter().map(|point| point.all.mean_ms).collect();
    let (m, c) = line(&kib, &means, &weights);

    let mut random = resample::random();
    let (mut ms, mut cs) = (Vec::new(), Vec::new());
    for _ in 0..TIMES {
        let again: Vec<f64> =
            sizes.iter().map(|point| resample::again(point, &mut random).mean_ms).collect();
        let (m, c) = line(&kib, &again, &weights);
        ms.push(m);
        cs.push(c);
    }

    let total: f64 = weights.iter().sum();
    let mean = weights.iter().zip(&means).map(|(w, y)| w * y).sum::<f64>() / total;
    let spread: f64 = weights.iter().zip(&means).map(|(w, y)| w * (y - mean).powi(2)).sum();
    let rest: f64 = (0..kib.len()).map(|i| weights[i] * (means[i] - m * kib[i] - c).powi(2)).sum();
    let residual = |i: usize| (means[i] / (m * kib[i] + c) - 1.0).abs();
    Some(SizeLine {
        ms_per_kib: resample::estimate(m, ms),
        fixed_ms: resample::estimate(c, cs),
        r_squared: if spread > 0.0 { (1.0 - rest / spread).clamp(0.0, 1.0) } else { 0.0 },
        worst_residual: (0..kib.len()).map(residual).fold(0.0, f64::max),
    })
}

/// Slope and intercept of the weighted least-squares line.
fn line(x: &[f64], y: &[f64], weights: &[f64]) -> (f64, f64) {
    let total: f64 = weights.iter().sum();
    let mean = |of: &[f64]| of.iter().zip(weights).map(|(v, w)| v * w).sum::<f64>() / total;
    let (x_mean, y_mean) = (mean(x), mean(y));
    let (mut both, mut square) = (0.0, 0.0);
    for ((x, y), weight) in x.iter().zip(y).zip(weights) {
        both += weight * (x - x_mean) * (y - y_mean);
        square += weight * (x - x_mean).powi(2);
    }
    let slope = both / square;
    (slope, y_mean - slope * x_mean)
}
