//! Confidence intervals by the bootstrap.
//!
//! The slices of a run are resampled: as many as there are, with repetition. Every result is computed again from each resample, and
//! the middle 95 % of the results are the interval.

use crate::findings::IntervalEstimate;
use crate::point::{Point, TimeSlice};
use crate::sample;

/// Number of resamples of a bootstrap.
pub(super) const TIMES: usize = 400;

/// The generator of resamples. Its seed is constant, so that the same points have the same confidence.
pub(super) fn random() -> fastrand::Rng {
    fastrand::Rng::with_seed(0x006b_6e65_6500)
}

/// Throughput in IOs per second, and mean latency in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rate {
    pub(super) iops: f64,
    pub(super) mean_ms: f64,
}

/// The rate of a run as measured.
pub(super) fn seen(point: &Point) -> Rate {
    Rate { iops: point.all.iops, mean_ms: point.all.mean_ms }
}

/// The rate of one resample of a run.
pub(super) fn again(point: &Point, random: &mut fastrand::Rng) -> Rate {
    let was = seen(point);
    let slices = &point.slices;
    if slices.len() < 2 {
        return was;
    }
    let drawn = together(slices.iter().map(|_| &slices[random.usize(0..slices.len())]));
    if !(drawn.iops > 0.0 && drawn.iops.is_finite()) {
        return was;
    }
    // A resample varies less than the population, by one degree of freedom. The mean is the run's and not the slices', as a run may
    // begin and end within a slice.
    let wider = (slices.len() as f64 / (slices.len() as f64 - 1.0)).sqrt();
    let whole = together(slices.iter());
    Rate {
        iops: was.iops * (1.0 + (drawn.iops / whole.iops - 1.0) * wider).max(0.01),
        mean_ms: was.mean_ms * (1.0 + (drawn.mean_ms / whole.mean_ms - 1.0) * wider).max(0.01),
    }
}

/// The rate of slices together.
fn together<'a>(slices: impl Iterator<Item = &'a TimeSlice>) -> Rate {
    let (mut seconds, mut ios, mut sum) = (0.0, 0.0, 0.0);
    for slice in slices {
        seconds += slice.seconds;
        ios += slice.iops * slice.seconds;
        sum += slice.iops * slice.seconds * slice.mean_ms.unwrap_or(0.0);
    }
    Rate { iops: ios / seconds, mean_ms: sum / ios }
}

/// Relative standard error of a run's throughput, from its slices.
pub(super) fn error(point: &Point) -> f64 {
    let rates: Vec<f64> = point.slices.iter().map(|slice| slice.iops).collect();
    relative_error(&rates)
}

/// Relative standard error of a run's mean latency, from its slices.
pub(super) fn latency_error(point: &Point) -> f64 {
    let means: Vec<f64> = point.slices.iter().filter_map(|slice| slice.mean_ms).collect();
    relative_error(&means)
}

fn relative_error(values: &[f64]) -> f64 {
    let (mean, error) = sample::mean(values);
    if values.len() < 2 || mean <= 0.0 { 0.0 } else { error / mean }
}

/// A random factor with a median of 1 and a relative standard deviation of about `spread`.
pub(super) fn jitter(random: &mut fastrand::Rng, spread: f64) -> f64 {
    // The sum of twelve uniform numbers is nearly normal, with a standard deviation of 1.
    let normal = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
    (spread * normal).exp()
}

/// A value with the interval of the middle 95 % of `drawn`, widened if need be to contain the value.
pub(super) fn estimate(value: f64, mut drawn: Vec<f64>) -> IntervalEstimate {
    drawn.retain(|value| value.is_finite());
    drawn.sort_by(f64::total_cmp);
    let at = |part: f64| {
        let place = (drawn.len().saturating_sub(1) as f64 * part).round() as usize;
        drawn.get(place).copied().unwrap_or(value)
    };
    IntervalEstimate { value, low: at(0.025).min(value), high: at(0.975).max(value) }
}
