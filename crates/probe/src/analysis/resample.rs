//! Confidence: what the numbers could as well have been.
//!
//! Slices of a run are drawn again, with repetition, as often as there are slices (the bootstrap);
//! whatever follows from them is calculated anew, and 95 % of what comes out is the interval.

use crate::findings::Estimate;
use crate::point::Point;
use crate::sample;

/// How often slices are drawn again.
pub(super) const TIMES: usize = 400;

/// The seed of it, always the same: the same points have the same confidence.
pub(super) fn random() -> fastrand::Rng {
    fastrand::Rng::with_seed(0x006b_6e65_6500)
}

/// IOs a second, and their mean latency in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rate {
    pub(super) iops: f64,
    pub(super) mean_ms: f64,
}

/// A run as it was.
pub(super) fn seen(point: &Point) -> Rate {
    Rate { iops: point.all.iops, mean_ms: point.all.mean_ms }
}

/// A run as it could as well have been.
pub(super) fn again(point: &Point, random: &mut fastrand::Rng) -> Rate {
    let was = seen(point);
    let slices = &point.slices;
    if slices.len() < 2 {
        return was;
    }
    let (mut seconds, mut ios, mut sum) = (0.0, 0.0, 0.0);
    for _ in slices {
        let slice = &slices[random.usize(0..slices.len())];
        seconds += slice.seconds;
        ios += slice.iops * slice.seconds;
        sum += slice.iops * slice.seconds * slice.mean_ms.unwrap_or(0.0);
    }
    if seconds <= 0.0 || ios <= 0.0 {
        return was;
    }
    // What is drawn strays less than what it is drawn from, by one degree of freedom. The middle is
    // the run's, not the slices': a run's ends may lie within a slice.
    let wider = (slices.len() as f64 / (slices.len() as f64 - 1.0)).sqrt();
    let whole = whole(point);
    Rate {
        iops: was.iops * (1.0 + (ios / seconds / whole.iops - 1.0) * wider).max(0.01),
        mean_ms: was.mean_ms * (1.0 + (sum / ios / whole.mean_ms - 1.0) * wider).max(0.01),
    }
}

/// All slices together.
fn whole(point: &Point) -> Rate {
    let (mut seconds, mut ios, mut sum) = (0.0, 0.0, 0.0);
    for slice in &point.slices {
        seconds += slice.seconds;
        ios += slice.iops * slice.seconds;
        sum += slice.iops * slice.seconds * slice.mean_ms.unwrap_or(0.0);
    }
    Rate { iops: ios / seconds, mean_ms: sum / ios }
}

/// The standard error of a run's throughput, relative to it: from its slices.
pub(super) fn error(point: &Point) -> f64 {
    let rates: Vec<f64> = point.slices.iter().map(|slice| slice.iops).collect();
    relative_error(&rates)
}

/// The standard error of a run's mean latency, relative to it: from its slices.
pub(super) fn latency_error(point: &Point) -> f64 {
    let means: Vec<f64> = point.slices.iter().filter_map(|slice| slice.mean_ms).collect();
    relative_error(&means)
}

fn relative_error(values: &[f64]) -> f64 {
    let (mean, error) = sample::mean(values);
    if values.len() < 2 || mean <= 0.0 { 0.0 } else { error / mean }
}

/// A factor that is 1 on average and strays by about `spread`.
pub(super) fn jitter(random: &mut fastrand::Rng, spread: f64) -> f64 {
    // Twelve uniform numbers: as normal as needed.
    let normal = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
    (spread * normal).exp()
}

/// A value, and where 95 % of `drawn` lie. It lies between them itself.
pub(super) fn estimate(value: f64, mut drawn: Vec<f64>) -> Estimate {
    drawn.retain(|value| value.is_finite());
    drawn.sort_by(f64::total_cmp);
    let at = |part: f64| {
        let place = (drawn.len().saturating_sub(1) as f64 * part).round() as usize;
        drawn.get(place).copied().unwrap_or(value)
    };
    Estimate { value, low: at(0.025).min(value), high: at(0.975).max(value) }
}
