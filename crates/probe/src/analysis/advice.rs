//! Advice: the threshold and the window to set, with reasons.

use crate::analysis::curve::{CurvePoint, Fit};
use crate::analysis::knee::Swept;
use crate::analysis::knee::WORTH;
use crate::findings::{Advice, Knee, ThresholdChoice};
use crate::reasons::AdviceReason;

/// Bounds of the fraction by which the threshold lies above the knee. Within them it is the uncertainty of the knee. A
/// threshold that is too low loses throughput, one that is too high costs everybody latency.
const MARGIN: (f64, f64) = (0.025, 0.04);

/// Largest relative step of rounding up a threshold.
const STEP: f64 = 0.02;

/// Other thresholds that are shown, as fractions of the advised one.
const PARTS: [f64; 7] = [0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 2.0];

/// Least threshold that is shown, over the latency of the least load. Below it, nothing would be left of the throughput.
const ABOVE_LEAST: f64 = 1.05;

/// `window_max` over the outstanding IOs at the threshold. The window of a host that is alone needs these and room above
/// them. Then the threshold bounds the host and not `window_max`.
const ROOM: f64 = 1.1;

/// Advice from the first mix that was swept.
pub(super) fn advice(swept: &[Swept]) -> Option<Advice> {
    let Swept { curve, fit } = swept.first()?;
    let knee = curve.knee?;
    let at = knee.latency_ms;
    let uncertain = ((at.high - at.low) / 2.0 / at.value).clamp(MARGIN.0, MARGIN.1);
    let nanos = plain(at.value * (1.0 + uncertain) * 1e6);
    let threshold = nanos as f64 / 1e6;
    let place = fit.at_latency(threshold);
    let peak = curve.peak_iops.value;
    let fraction = (place.iops / peak).min(1.0);
    let window = (place.outstanding.max(1.0) * ROOM).ceil();

    Some(Advice {
        latency_threshold_ms: threshold,
        window_max: window,
        throughput_fraction: fraction,
        why: why(&knee, swept, &Threshold { ms: threshold, window, place }),
        choices: choices(fit, threshold, peak),
    })
}

/// The advised threshold among others, as far as the sweep tells of them.
fn choices(fit: &Fit, advised: f64, peak: f64) -> Vec<ThresholdChoice> {
    let latency = |at: usize| fit.depths[at].outstanding / fit.iops[at] * 1e3;
    let (least, most) = (latency(0) * ABOVE_LEAST, latency(fit.depths.len() - 1));
    let mut choices: Vec<ThresholdChoice> = Vec::new();
    for part in PARTS {
        let ms = if part == 1.0 { advised } else { plain(advised * part * 1e6) as f64 / 1e6 };
        if part != 1.0 && !(least..=most).contains(&ms) {
            continue;
        }
        let place = fit.at_latency(ms);
        choices.push(ThresholdChoice {
            latency_threshold_ms: ms,
            outstanding: place.outstanding,
            throughput_fraction: (place.iops / peak).min(1.0),
            one_at_a_time_iops: 1e3 / ms,
        });
    }
    choices
}

/// The threshold that is advised.
struct Threshold {
    ms: f64,
    /// Window of a host that is alone.
    window: f64,
    /// Throughput and outstanding IOs there.
    place: CurvePoint,
}

fn why(knee: &Knee, swept: &[Swept], threshold: &Threshold) -> Vec<AdviceReason> {
    let Some((Swept { curve, fit }, others)) = swept.split_first() else { return Vec::new() };
    let (mix, at, place) = (curve.mix, knee.latency_ms, threshold.place);
    let mut why = vec![AdviceReason::Knee {
        mix,
        part: WORTH,
        peak_iops: curve.peak_iops.value,
        latency_ms: at,
        outstanding: knee.outstanding.value,
    }];
    let deepest = fit.depths.last().zip(fit.iops.last());
    why.extend(deepest.map(|(last, iops)| AdviceReason::LittleBeyond {
        outstanding: last.asked,
        gain: iops / place.iops - 1.0,
        latency_ratio: last.outstanding / last.iops * 1e3 / threshold.ms,
    }));
    why.extend(curve.service_ms.map(|service| AdviceReason::Waits {
        service_ms: service.value,
        waits_ms: (threshold.ms - service.value).max(0.0),
        threshold_ms: threshold.ms,
    }));
    why.push(AdviceReason::AboveKnee { by: threshold.ms / at.value - 1.0 });
    why.push(AdviceReason::Outstanding {
        outstanding: place.outstanding,
        window: threshold.window,
    });
    if !others.is_empty() {
        why.push(AdviceReason::FirstMix { mix });
    }
    why.extend(others.iter().filter_map(|other| {
        let knee = other.curve.knee?;
        let (latency_ms, outstanding) = (knee.latency_ms.value, knee.outstanding.value);
        Some(AdviceReason::OtherKnee { mix: other.curve.mix, latency_ms, outstanding })
    }));
    why
}

/// Rounded up to a number that a person would write: whole ones, twos or fives of a decimal place.
fn plain(nanos: f64) -> u64 {
    let finest = (nanos * STEP).max(1.0);
    let decade = 10_f64.powf(finest.log10().floor());
    let step =
        [5.0, 2.0, 1.0].into_iter().map(|n| n * decade).find(|step| *step <= finest * 1.000_001);
    let step = step.unwrap_or(decade).round().max(1.0);
    ((nanos / step - 1e-9).ceil() * step) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_numbers_that_a_person_would_write_and_never_lower() {
        for (nanos, written) in [
            (68_730_000.0, 69_000_000),
            (30_000_000.0, 30_000_000),
            (30_000_001.0, 30_500_000),
            (142_700.0, 144_000),
            (89_123.0, 90_000),
            (5_425_000.0, 5_500_000),
            (1_012_345.0, 1_020_000),
            (512.0, 520),
        ] {
            let plain = plain(nanos);
            assert_eq!(plain, written);
            assert!(plain as f64 >= nanos && plain as f64 <= nanos * 1.0201, "{nanos} {plain}");
        }
    }
}
