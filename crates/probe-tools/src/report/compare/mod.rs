//! A comparison of two probes as sentences, table, page, charts and CSV.

mod csv;
mod figures;
mod page;
mod table;

pub use csv::csv;
pub use page::page;
pub use table::table;

use super::words::{curve_words, date, kind, latency, number_of, percent, short};
use crate::report::comparison::{Change, Comparison, Curves, SMALL, Side};
use parda_probe::{Curve, Estimate};

/// Heading of one probe: `A: model:drive-7200, 2026-01-31 12:00 UTC`.
fn side(name: &str, side: &Side) -> String {
    format!("{name}: `{}`, {}, {}", side.target.name, kind(&side.target), date(&side.begun))
}

/// Summary of a comparison, in sentences.
fn summary(comparison: &Comparison) -> Vec<String> {
    let count = |verdict| comparison.count(verdict);
    let all = comparison.loads.len();
    if all == 0 {
        return vec!["No load was run by both: there is nothing to compare.".to_owned()];
    }
    let mut out = vec![format!(
        "Of {} that both ran, B has more throughput at {}, less at {}, the same at {}{}.",
        number_of(all, "load"),
        count(Change::Better),
        count(Change::Worse),
        count(Change::Same),
        match count(Change::Unsure) {
            0 => String::new(),
            some => format!(", and at {some} it cannot be said"),
        }
    )];
    if let Some([least, middle, most]) = comparison.ratios() {
        out.push(format!(
            "B's throughput is {} A's at the middle one of these loads, {} A's at the least, {} A's at the most.",
            of(middle),
            of(least),
            of(most),
        ));
    }
    out.push(format!(
        "A difference counts if it is more than both are uncertain by (95 %, by their slices and by loads that were run \
         twice) and more than {}.",
        percent(SMALL)
    ));
    out
}

/// A ratio as text: `80 % of`, `175 times`.
fn of(ratio: f64) -> String {
    if ratio >= 2.0 { format!("{} times", short(ratio)) } else { format!("{} of", percent(ratio)) }
}

/// Sentences on peak and knee of a mix in both probes.
fn curves(of: &Curves) -> Vec<String> {
    let mut out = Vec::new();
    if let (Some(a), Some(b)) = (&of.a, &of.b) {
        out.push(change("Peak throughput", "IOPS", &a.peak_iops, &b.peak_iops));
        if let (Some(a), Some(b)) = (&a.service_ms, &b.service_ms) {
            out.push(latency_change("Service time", a, b));
        }
        match (&a.knee, &b.knee) {
            (Some(a), Some(b)) => {
                out.push(change("Knee", "outstanding", &a.outstanding, &b.outstanding));
                out.push(latency_change("Latency at the knee", &a.latency_ms, &b.latency_ms));
            }
            (Some(_), None) => out.push("B has no knee within its sweep, A has.".to_owned()),
            (None, Some(_)) => out.push("A has no knee within its sweep, B has.".to_owned()),
            (None, None) => out.push("Neither has a knee within its sweep.".to_owned()),
        }
        return out;
    }
    let only = |name: &str, curve: &Option<Curve>| {
        curve.as_ref().map(|c| format!("Only {name} swept it: {}", curve_words(c)))
    };
    out.extend(only("A", &of.a));
    out.extend(only("B", &of.b));
    out
}

fn change(what: &str, unit: &str, a: &Estimate, b: &Estimate) -> String {
    let said = |e: &Estimate| format!("{} ({} to {})", short(e.value), short(e.low), short(e.high));
    format!("{what}: A {}, B {} {unit}: {}.", said(a), said(b), moved(a, b))
}

fn latency_change(what: &str, a: &Estimate, b: &Estimate) -> String {
    format!("{what}: A {}, B {}: {}.", latency(a), latency(b), moved(a, b))
}

/// Whether two numbers differ by more than their confidence intervals allow.
fn moved(a: &Estimate, b: &Estimate) -> String {
    let small = (b.value / a.value - 1.0).abs() <= SMALL;
    if small || (a.low <= b.high && b.low <= a.high) {
        return "the same, within their confidence".to_owned();
    }
    format!("{} A's", of(b.value / a.value))
}

/// The thresholds and windows that both probes advise.
fn advice(comparison: &Comparison) -> Vec<String> {
    let said = |name: &str, side: &Side| match &side.advice {
        Some(advice) => format!(
            "{name}: latency_threshold = {}, window_max = {}, for {} of its peak.",
            super::words::ms(advice.latency_threshold_ms),
            short(advice.window_max),
            percent(advice.throughput_fraction)
        ),
        None => format!("{name}: its points say nothing on what to set."),
    };
    let mut out = vec![said("A", &comparison.a), said("B", &comparison.b)];
    if let (Some(a), Some(b)) = (&comparison.a.advice, &comparison.b.advice) {
        let ratio = b.latency_threshold_ms / a.latency_threshold_ms;
        out.push(if (ratio - 1.0).abs() <= 0.05 {
            "The thresholds agree within 5 %: either serves both.".to_owned()
        } else {
            format!("B's threshold is {} A's.", of(ratio))
        });
    }
    out
}

/// A verdict in one word.
fn word(verdict: Change) -> &'static str {
    match verdict {
        Change::Better => "better",
        Change::Same => "same",
        Change::Worse => "worse",
        Change::Unsure => "unsure",
    }
}

/// Confidence interval of a ratio. Empty if it is unknown.
fn interval(ratio: Option<[f64; 2]>) -> String {
    ratio.map_or("–".to_owned(), |[low, high]| format!("{low:.3} to {high:.3}"))
}
