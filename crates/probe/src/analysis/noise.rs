//! Agreement of runs of the same load.

use crate::analysis::resample;
use crate::findings::Noise;
use crate::point::Point;

/// The largest differences between two runs of the same load.
pub(super) fn noise(points: &[Point]) -> Option<Noise> {
    let mut noise = Noise { pairs: 0, iops: 0.0, latency: 0.0 };
    for (a, b) in pairs(points) {
        noise.pairs += 1;
        noise.iops = noise.iops.max(difference(a.all.iops, b.all.iops));
        noise.latency = noise.latency.max(difference(a.all.mean_ms, b.all.mean_ms));
    }
    (noise.pairs > 0).then_some(noise)
}

/// Excess of the difference between runs of one load over what their slices explain, as a relative standard
/// deviation. Its cause is something that changes slowly, or from run to run. 0 if no load was run twice.
#[must_use]
pub fn between(points: &[Point]) -> f64 {
    let (mut seen, mut told, mut pairs_seen) = (0.0, 0.0, 0.0_f64);
    for (a, b) in pairs(points) {
        // The difference of two has twice the variance of one.
        seen += difference(a.all.iops, b.all.iops).powi(2) / 2.0;
        told += (resample::error(a).powi(2) + resample::error(b).powi(2)) / 2.0;
        pairs_seen += 1.0;
    }
    ((seen - told).max(0.0) / pairs_seen.max(1.0)).sqrt()
}

fn pairs(points: &[Point]) -> Vec<(&Point, &Point)> {
    let mut pairs = Vec::new();
    for (at, later) in points.iter().enumerate() {
        let same = |point: &&Point| point.load == later.load;
        // With the last one before it: three runs are two pairs.
        pairs.extend(points[..at].iter().rev().find(same).map(|earlier| (earlier, later)));
    }
    pairs.retain(|(a, b)| a.all.ios > 0 && b.all.ios > 0);
    pairs
}

fn difference(a: f64, b: f64) -> f64 {
    2.0 * (a - b).abs() / (a + b)
}
