//! Steadiness: the end of a load's warm-up, whether the rest is steady, and the precision of its mean.
//!
//! The end of the warm-up is found by MSER (White 1997). MSER drops as many slices from the front as minimise the standard error
//! of the rest's mean. The rest is steady if it has no trend: the means of its two halves agree within chance.

use crate::point::TimeSlice;
use crate::sample::{self, spread};

/// Least number of slices after the warm-up: fewer allow no judgement.
const LEAST: usize = 6;

/// Ratio that the squared standard error must fall below for further slices to be dropped. Chance alone makes it
/// a little smaller now and then.
const WORTH: f64 = 0.95;

/// Relative difference of the two halves that is always accepted: it matters to nobody who sets a threshold.
const ALIKE: f64 = 0.02;

/// Difference of the two halves that is accepted, in standard errors of the difference.
const CHANCE: f64 = 3.0;

/// Precision above which a load does not count as steady.
const UNKNOWN: f64 = 0.25;

/// Least length of the rest, in mean latencies.
const ROUNDS: f64 = 5.0;

/// Steadiness of a load: the end of its warm-up, and the quality of the rest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steadiness {
    /// Number of slices that are warm-up.
    pub warmup: usize,
    /// Whether the rest is steady.
    pub steady: bool,
    /// Half the width of the 95 % confidence interval of throughput or of mean latency, relative to it: the larger.
    pub precision: f64,
}

/// Judges a load by its slices, of which at least `least_warmup` always count as warm-up.
#[must_use]
pub(crate) fn judge(slices: &[TimeSlice], least_warmup: usize) -> Steadiness {
    let iops: Vec<f64> = slices.iter().map(|slice| slice.iops).collect();
    // A slice without an IO has no latency; the latency of the slice before is used.
    let mut last = slices.iter().find_map(|slice| slice.mean_ms).unwrap_or(0.0);
    let latency = slices.iter().map(|slice| {
        last = slice.mean_ms.unwrap_or(last);
        last
    });
    let latency: Vec<f64> = latency.collect();
    let half = slices.len() / 2;
    let from = least_warmup.min(slices.len());
    if slices.len() < from + LEAST {
        return Steadiness { warmup: from, steady: false, precision: f64::INFINITY };
    }
    let warmup = cut(&iops, from, half).max(cut(&latency, from, half));
    let rest = slices.len() - warmup;
    if rest < LEAST {
        return Steadiness { warmup, steady: false, precision: f64::INFINITY };
    }
    let level = |values: &[f64]| level(&values[warmup..]);
    let precision = half_width(&iops[warmup..]).max(half_width(&latency[warmup..]));
    // IOs that were submitted together complete together, so the rest must contain several such rounds.
    let seconds: f64 = slices[warmup..].iter().map(|slice| slice.seconds).sum();
    let mean_ms = latency[warmup..].iter().sum::<f64>() / rest as f64;
    let steady =
        seconds * 1e3 >= ROUNDS * mean_ms && level(&iops) && level(&latency) && precision < UNKNOWN;
    Steadiness { warmup, steady, precision }
}

/// The index, from `from` to `half`, at which the mean of the rest has the smallest standard error.
fn cut(values: &[f64], from: usize, half: usize) -> usize {
    let (mut best, mut at) = (f64::INFINITY, from);
    for start in from..=half {
        let rest = &values[start..];
        // The square of the standard error.
        let error = spread(rest).1 / rest.len() as f64;
        // A slice is dropped only for a clearly smaller error.
        if error < best * WORTH {
            (best, at) = (error, start);
        }
    }
    at
}

/// Whether the means of the two halves agree within chance.
fn level(values: &[f64]) -> bool {
    let (early, late) = values.split_at(values.len() / 2);
    let ((a, va), (b, vb)) = (spread(early), spread(late));
    let error = (va / early.len() as f64 + vb / late.len() as f64).sqrt();
    (a - b).abs() <= (ALIKE * (a + b) / 2.0).max(CHANCE * error)
}

/// Half the width of the mean's 95 % confidence interval, relative to the mean.
fn half_width(values: &[f64]) -> f64 {
    let (mean, _) = spread(values);
    sample::half_width(values).filter(|_| mean > 0.0).map_or(f64::INFINITY, |half| half / mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slices of a second of a closed loop of 8.
    fn closed(iops: impl IntoIterator<Item = f64>) -> Vec<TimeSlice> {
        let slice = |iops: f64| {
            let iops = iops.floor();
            TimeSlice { seconds: 1.0, iops, mean_ms: (iops > 0.0).then(|| 8000.0 / iops) }
        };
        iops.into_iter().map(slice).collect()
    }

    fn noise(seed: u64) -> impl Iterator<Item = f64> {
        let mut random = fastrand::Rng::with_seed(seed);
        // Roughly normal, with a standard deviation of 1.
        std::iter::repeat_with(move || (0..12).map(|_| random.f64()).sum::<f64>() - 6.0)
    }

    #[test]
    fn noise_alone_is_steady_and_its_confidence_known() {
        let steady = (0..200).filter(|seed| {
            let verdict = judge(&closed(noise(*seed).take(20).map(|n| 1000.0 + 50.0 * n)), 0);
            if verdict.steady {
                assert!((0.008..0.06).contains(&verdict.precision), "{verdict:?}");
            }
            verdict.steady
        });
        assert!(steady.count() >= 190);
    }

    #[test]
    fn a_cold_start_is_cut_off_and_no_more_than_that() {
        for seed in 0..20 {
            let cold = [200.0, 350.0, 600.0, 850.0].into_iter();
            let all = cold.chain(noise(seed).take(16).map(|n| 1000.0 + 10.0 * n));
            let verdict = judge(&closed(all), 0);
            assert!((4..=10).contains(&verdict.warmup) && verdict.steady, "{verdict:?}");
        }
    }

    #[test]
    fn a_drift_is_never_steady() {
        for seed in 0..20 {
            let drift = noise(seed).zip(0..20).map(|(n, i)| 1000.0 + 20.0 * f64::from(i) + 5.0 * n);
            assert!(!judge(&closed(drift), 0).steady);
            let slows = noise(seed).zip(0..).map(|(n, i)| 1000.0 / f64::from(i + 4) + n);
            assert!(!judge(&closed(slows.take(24)), 0).steady);
        }
    }

    #[test]
    fn a_cliff_in_the_midst_is_not_measured_over() {
        let cliff = |at| (0..20).map(move |i| if i < at { 5000.0 } else { 500.0 });
        let early = judge(&closed(cliff(4)), 0);
        assert_eq!((early.warmup, early.steady), (4, true));
        assert!(!judge(&closed(cliff(14)), 0).steady);
    }

    #[test]
    fn what_jumps_up_and_down_is_not_known() {
        let jumps = (0..12).map(|i| if i % 4 == 0 { 5000.0 } else { 50.0 });
        assert!(!judge(&closed(jumps), 0).steady);
    }

    #[test]
    fn too_few_slices_say_nothing() {
        assert!(!judge(&closed([1000.0; 5]), 0).steady);
        assert!(!judge(&closed([1000.0; 12]), 8).steady);
        assert!(judge(&closed([1000.0; 12]), 6).steady);
        assert!(!judge(&closed([0.0; 12]), 0).steady, "nothing came back");
        assert!(!judge(&[], 0).steady);
    }
}
