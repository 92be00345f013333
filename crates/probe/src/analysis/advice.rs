//! What to set, and why.

use crate::analysis::WORTH;
use crate::analysis::knee::Swept;
use crate::findings::Advice;

/// The threshold lies above the knee by as much as the knee is uncertain, but by no less and no more
/// than this: one that is too low loses throughput, one that is too high costs everybody latency.
const MARGIN: (f64, f64) = (0.025, 0.04);

/// It is rounded up to steps of no more than this.
const STEP: f64 = 0.02;

/// A window needs to be as large as what is outstanding at the threshold, if its host is alone; and
/// so much larger that it is the threshold that holds and not the bound.
const ROOM: f64 = 1.1;

/// What to set, from the first mix that was swept.
pub(super) fn advice(swept: &[Swept]) -> Option<Advice> {
    let (first, others) = swept.split_first()?;
    let Swept { curve, fit } = first;
    let knee = curve.knee?;
    let at = knee.latency_ms;
    let uncertain = ((at.high - at.low) / 2.0 / at.value).clamp(MARGIN.0, MARGIN.1);
    let nanos = plain(at.value * (1.0 + uncertain) * 1e6);
    let threshold = nanos as f64 / 1e6;
    let place = fit.at_latency(threshold);
    let peak = curve.peak_iops.value;
    let fraction = (place.iops / peak).min(1.0);
    let window = (place.outstanding.max(1.0) * ROOM).ceil();

    let mut why = vec![format!(
        "With {} throughput is {:.0} % of its peak of {} IOPS at a latency of {} (95 % sure: {} to {}), with {} outstanding.",
        curve.mix,
        WORTH * 100.0,
        number(peak),
        time(at.value),
        time(at.low),
        time(at.high),
        number(knee.outstanding.value),
    )];
    let deepest = fit.depths.len() - 1;
    let last = fit.depths[deepest];
    let full = last.outstanding / last.iops * 1e3;
    why.push(format!(
        "More buys little: with {:.0} outstanding throughput is {:.1} % higher than at the threshold, latency {} times as high.",
        last.asked,
        (fit.iops[deepest] / place.iops - 1.0) * 100.0,
        number(full / threshold),
    ));
    if let Some(service) = curve.service_ms {
        why.push(format!(
            "One IO alone takes {}: at the threshold an IO waits {} of its {}.",
            time(service.value),
            time((threshold - service.value).max(0.0)),
            time(threshold),
        ));
    }
    why.push(format!(
        "The threshold lies {:.1} % above the knee, for its uncertainty and a number to remember.",
        (threshold / at.value - 1.0) * 100.0
    ));
    why.push(format!(
        "At the threshold {} are outstanding in the whole cluster. A host that is alone needs a window of that; {window:.0} leaves it a tenth of room.",
        number(place.outstanding),
    ));
    if !others.is_empty() {
        why.push(format!("The advice is for {}, which was named first.", curve.mix));
    }
    for other in others {
        if let Some(knee) = other.curve.knee {
            why.push(format!(
                "With {} the knee is at {}, with {} outstanding.",
                other.curve.mix,
                time(knee.latency_ms.value),
                number(knee.outstanding.value),
            ));
        }
    }
    let snippet = format!(
        "[volume.control]\n\
         # {}: {:.0} % of a peak of {} IOPS.\n\
         latency_threshold = \"{}\"\n\
         window_max = {window:.0}\n",
        curve.mix,
        fraction * 100.0,
        number(peak),
        duration(nanos),
    );
    Some(Advice {
        latency_threshold_ms: threshold,
        window_max: window,
        throughput_fraction: fraction,
        why,
        snippet,
    })
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

/// As the configuration has it: `30.5ms`, `142us`.
fn duration(nanos: u64) -> String {
    match nanos {
        nanos if nanos >= 1_000_000 => format!("{}ms", nanos as f64 / 1e6),
        nanos if nanos % 1000 == 0 => format!("{}us", nanos / 1000),
        nanos => format!("{nanos}ns"),
    }
}

/// For a sentence: three digits, and a unit in which they are seen.
pub(super) fn time(ms: f64) -> String {
    match ms {
        ms if ms >= 1000.0 => format!("{} s", number(ms / 1000.0)),
        ms if ms >= 1.0 || ms <= 0.0 => format!("{} ms", number(ms)),
        ms => format!("{} µs", number(ms * 1000.0)),
    }
}

/// Three digits.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size > 0.0 => format!("{value:.2}"),
        _ => "0".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_numbers_that_a_person_would_write_and_never_lower() {
        for (nanos, written) in [
            (68_730_000.0, "69ms"),
            (30_000_000.0, "30ms"),
            (30_000_001.0, "30.5ms"),
            (142_700.0, "144us"),
            (89_123.0, "90us"),
            (5_425_000.0, "5.5ms"),
            (1_012_345.0, "1.02ms"),
            (512.0, "520ns"),
        ] {
            let plain = plain(nanos);
            assert_eq!(duration(plain), written);
            assert!(plain as f64 >= nanos && plain as f64 <= nanos * 1.0201, "{nanos} {plain}");
        }
    }

    #[test]
    fn numbers_in_sentences_have_three_digits_and_a_unit() {
        assert_eq!(time(0.0796), "79.6 µs");
        assert_eq!(time(13.133), "13.1 ms");
        assert_eq!(time(1795.4), "1.80 s");
        assert_eq!(time(0.0), "0 ms");
        assert_eq!(number(200_000.1), "200000");
    }
}
