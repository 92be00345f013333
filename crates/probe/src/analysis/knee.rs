//! One mix against outstanding: service time, peak and knee.

use crate::analysis::curve::{Depth, Fit};
use crate::analysis::resample::{self, Rate, TIMES};
use crate::findings::{Curve, IntervalEstimate, Knee};
use crate::load::LoadMix;
use crate::point::Point;

/// The part of the peak's throughput that makes a knee.
pub const WORTH: f64 = 0.95;

/// Relative distance from the peak up to which a throughput counts as the peak.
const PEAK: f64 = 0.01;

/// Ratio of two neighbouring depths below which the sweep needs none between them.
const NEAR: f64 = 1.13;

/// A mix that was swept: its findings, and the fit on which they rest.
pub(super) struct Swept {
    pub(super) curve: Curve,
    pub(super) fit: Fit,
}

/// Finds peak and knee of a mix. `between`: excess of the differences between runs of one load over those that their
/// slices explain. A relative standard deviation.
pub(super) fn swept(points: &[Point], mix: LoadMix, between: f64) -> Swept {
    let runs = runs(points, mix);
    let fit = Fit::new(depths(&runs, resample::seen));
    let mut random = resample::random();
    let (mut peaks, mut depths_at, mut latencies) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TIMES {
        let drawn = Fit::new(depths(&runs, |point| {
            let rate = resample::again(point, &mut random);
            let faster = resample::jitter(&mut random, between);
            Rate { iops: rate.iops * faster, mean_ms: rate.mean_ms / faster }
        }));
        let place = drawn.place(WORTH * drawn.peak());
        peaks.push(drawn.peak());
        depths_at.push(place.outstanding);
        latencies.push(place.latency_ms());
    }
    let peak = fit.peak();
    let place = fit.place(WORTH * peak);
    let knee = Knee {
        outstanding: resample::estimate(place.outstanding, depths_at),
        latency_ms: resample::estimate(place.latency_ms(), latencies),
        iops: place.iops,
    };
    let peak_iops = resample::estimate(peak, peaks);
    let noise = ((peak_iops.high - peak_iops.low) / 2.0 / peak).max(PEAK);
    let first = fit.iops.iter().position(|iops| *iops >= peak * (1.0 - noise)).unwrap_or(fit.top);
    let curve = Curve {
        mix,
        service_ms: service(&runs, between),
        peak_iops,
        peak_bytes_per_s: peak * mix.size as f64,
        peak_outstanding: fit.depths[first].asked as u32,
        knee: reached(&fit).then_some(knee),
    };
    Swept { curve, fit }
}

/// Whether the sweep went beyond the knee: to twice as many, or to where throughput falls.
fn reached(fit: &Fit) -> bool {
    let deepest = fit.depths.last().map_or(0.0, |depth| depth.asked);
    let (_, after, _) = fit.reaches(WORTH * fit.peak());
    let knee = fit.place(WORTH * fit.peak()).outstanding;
    let falls = fit.iops.last().is_some_and(|last| *last < fit.peak());
    after + 1 < fit.depths.len() && (2.0 * knee <= deepest * 1.05 || falls)
}

/// The depth at which one more point of the mix would make its knee more precise. `None` once the knee lies
/// between two depths that are near enough, or if the sweep has to go deeper.
#[must_use]
pub fn sharper(points: &[Point], mix: LoadMix) -> Option<u32> {
    let runs = runs(points, mix);
    if runs.is_empty() {
        return None;
    }
    let fit = Fit::new(depths(&runs, resample::seen));
    if !reached(&fit) {
        return None;
    }
    let (before, after, _) = fit.reaches(WORTH * fit.peak());
    let (low, high) = (fit.depths[before].asked, fit.depths[after].asked);
    let middle = (low * high).sqrt().round().clamp(low, high);
    (high > low * NEAR && middle > low && middle < high).then_some(middle as u32)
}

/// The runs of a mix, grouped by depth.
fn runs(points: &[Point], mix: LoadMix) -> Vec<Vec<&Point>> {
    let mut runs: Vec<&Point> = points
        .iter()
        .filter(|point| point.load.mix == mix && point.all.ios > 0)
        .filter(|point| point.all.iops > 0.0 && point.all.mean_ms > 0.0)
        .collect();
    // Loads for the size model and the grid of mixes may be among them: they fit the curve as well.
    runs.sort_by_key(|point| point.load.outstanding);
    runs.chunk_by(|a, b| a.load.outstanding == b.load.outstanding).map(<[&Point]>::to_vec).collect()
}

/// One [`Depth`] for each group, from all runs of the group.
fn depths(runs: &[Vec<&Point>], mut rate: impl FnMut(&Point) -> Rate) -> Vec<Depth> {
    runs.iter()
        .map(|runs| {
            let (mut seconds, mut ios, mut sum, mut squares) = (0.0, 0.0, 0.0, 0.0);
            for point in runs {
                let rate = rate(point);
                let took = point.measured_s.max(f64::MIN_POSITIVE);
                seconds += took;
                ios += rate.iops * took;
                sum += rate.iops * took * rate.mean_ms;
                squares += (resample::error(point) * rate.iops * took).powi(2);
            }
            Depth {
                asked: f64::from(runs[0].load.outstanding),
                outstanding: sum / seconds / 1e3,
                iops: ios / seconds,
                error: squares.sqrt() / ios,
            }
        })
        .collect()
}

/// Mean latency with one outstanding.
fn service(runs: &[Vec<&Point>], between: f64) -> Option<IntervalEstimate> {
    let alone: &Vec<&Point> = runs.iter().find(|runs| runs[0].load.outstanding == 1)?;
    let mean = |depth: &Depth| depth.outstanding / depth.iops * 1e3;
    let only = std::slice::from_ref(alone);
    let value = mean(depths(only, resample::seen).first()?);
    let mut random = resample::random();
    let mut drawn = Vec::new();
    for _ in 0..TIMES {
        let again = depths(only, |point| resample::again(point, &mut random));
        drawn.extend(again.first().map(mean));
    }
    let jittered = drawn.into_iter().map(|ms| ms * resample::jitter(&mut random, between));
    Some(resample::estimate(value, jittered.collect()))
}
