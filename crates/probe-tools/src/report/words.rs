//! Numbers, times and sizes as text.

use parda_plot::{brief, number};
use parda_probe::{
    Advice, Curve, IntervalEstimate, ProbeDocument, ProbeEnd, TargetInfo, TargetKind,
};

/// Bytes in decimal units, as storage is sold: `1.80 TB`.
pub(crate) fn bytes(bytes: u64) -> String {
    let units = [(1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let size = bytes as f64;
    let unit = units.into_iter().find(|(unit, _)| size >= *unit);
    unit.map_or_else(
        || format!("{bytes} B"),
        |(unit, name)| format!("{} {name}", brief(size / unit)),
    )
}

/// A length of time in minutes and seconds: `3 min 20 s`.
pub(crate) fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "an unknown time".to_owned();
    }
    if seconds < 10.0 {
        return format!("{} s", number(seconds, 1));
    }
    let whole = seconds.round() as u64;
    let (hours, minutes, rest) = (whole / 3600, whole / 60 % 60, whole % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest} s"),
        (0, _) if rest == 0 => format!("{minutes} min"),
        (0, _) => format!("{minutes} min {rest} s"),
        _ => format!("{hours} h {minutes} min"),
    }
}

/// A latency with three significant digits, in a suitable unit.
pub(crate) fn ms(ms: f64) -> String {
    match ms {
        ms if !ms.is_finite() => "–".to_owned(),
        ms if ms >= 1.0 || ms <= 0.0 => format!("{} ms", brief(ms)),
        ms => format!("{} µs", brief(ms * 1e3)),
    }
}

/// A latency with its confidence interval.
pub(crate) fn latency(of: &IntervalEstimate) -> String {
    if of.value >= 1.0 {
        return estimate(of, "ms");
    }
    let [value, low, high] = [of.value, of.low, of.high].map(|ms| ms * 1e3);
    estimate(&IntervalEstimate { value, low, high }, "µs")
}

/// A number with its unit, and its 95 % confidence interval if that is wider than the digits shown.
pub(crate) fn estimate(of: &IntervalEstimate, unit: &str) -> String {
    let [value, low, high] = [of.value, of.low, of.high].map(short);
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    if low == high || !of.low.is_finite() || !of.high.is_finite() {
        return format!("{value}{unit}");
    }
    format!("{value}{unit} ({low} to {high})")
}

/// A number with three significant digits, and no decimals if it is large.
pub(crate) fn short(value: f64) -> String {
    match value {
        v if !v.is_finite() => "–".to_owned(),
        // Four digits are one too many.
        v if (0.9995..1.0).contains(&v) => brief(1.0),
        v => brief(v),
    }
}

/// Throughput in MB/s, of 10⁶ bytes.
pub(crate) fn mb_per_s(bytes_per_s: f64) -> f64 {
    bytes_per_s / 1e6
}

/// A number with the name of the counted things: `1 load`, `3 loads`.
pub(crate) fn number_of(how_many: usize, what: &str) -> String {
    if how_many == 1 { format!("1 {what}") } else { format!("{how_many} {what}s") }
}

/// A fraction in percent: `95 %`.
pub(crate) fn percent(part: f64) -> String {
    let percent = part * 100.0;
    let decimals = match percent.abs() {
        p if !(0.05..10.0).contains(&p) || p.fract() < 0.05 => 0,
        p if p < 1.0 => 2,
        _ => 1,
    };
    format!("{} %", number(percent, decimals))
}

/// Kind and size of the target: `a block device of 1.80 TB`.
pub(crate) fn kind(target: &TargetInfo) -> String {
    let kind = match target.kind {
        TargetKind::File => "a file",
        TargetKind::Device => "a block device",
        TargetKind::Nbd => "an NBD export",
        TargetKind::Model => "the array model, in virtual time",
    };
    match target.bytes {
        0 => kind.to_owned(),
        some if target.kind == TargetKind::Model => format!("{kind}, of {}", bytes(some)),
        some => format!("{kind} of {}", bytes(some)),
    }
}

/// Sentence on the end of the probe.
pub(crate) fn end(end: ProbeEnd) -> &'static str {
    match end {
        ProbeEnd::Complete => "All loads were run.",
        ProbeEnd::Time => {
            "Its time was up before all loads were run: what is missing is not below."
        }
        ProbeEnd::Aborted => {
            "It was stopped before all loads were run: what is missing is not below."
        }
        ProbeEnd::Failed => {
            "The target failed before all loads were run: what is missing is not below."
        }
    }
}

/// Sentences on target, time and length of the probe.
pub(crate) fn story(document: &ProbeDocument) -> String {
    let loads = number_of(document.points.len(), "load");
    let access = if document.target.writes { "reads and writes" } else { "reads only" };
    let unsettled = document.points.iter().filter(|p| !p.settled).count();
    let unsettled = match unsettled {
        0 => String::new(),
        1 => " One load never settled; it is marked.".to_owned(),
        some => format!(" {some} loads never settled; they are marked."),
    };
    format!(
        "{} ({}) was probed on {} for {}: {loads}, {access}. {}{unsettled}",
        document.target.name,
        kind(&document.target),
        date(&document.begun),
        duration(document.took_s),
        end(document.end),
    )
}

/// A time of RFC 3339 in a short form: `2026-01-31 12:00 UTC`.
pub(crate) fn date(begun: &str) -> String {
    let utc = begun.ends_with('Z') || begun.ends_with("+00:00");
    match (begun.get(..10), begun.get(10..11), begun.get(11..16)) {
        (Some(day), Some("T" | "t" | " "), Some(time)) if utc => format!("{day} {time} UTC"),
        _ => begun.to_owned(),
    }
}

/// The curves as sentences, one each.
pub(crate) fn curves(document: &ProbeDocument) -> Vec<String> {
    let sentence = |curve: &Curve| format!("{}: {}", curve.mix, curve_words(curve));
    document.findings.curves.iter().map(sentence).collect()
}

/// Sentence on the findings for a mix.
pub(crate) fn curve_words(curve: &Curve) -> String {
    let mut parts = vec![format!(
        "peak {} IOPS ({} MB/s) from {} outstanding on",
        estimate(&curve.peak_iops, ""),
        short(mb_per_s(curve.peak_bytes_per_s)),
        curve.peak_outstanding,
    )];
    if let Some(service) = &curve.service_ms {
        parts.insert(0, format!("one at a time takes {}", latency(service)));
    }
    parts.push(match &curve.knee {
        Some(knee) => format!(
            "knee at {} outstanding: {} IOPS at {}",
            estimate(&knee.outstanding, ""),
            short(knee.iops),
            latency(&knee.latency_ms),
        ),
        None => "no knee: the sweep did not go far enough beyond it".to_owned(),
    });
    format!("{}.", parts.join("; "))
}

/// Sentences on the other findings.
pub(crate) fn others(document: &ProbeDocument) -> Vec<String> {
    let found = &document.findings;
    let mut out = Vec::new();
    if let Some(line) = &found.size_line {
        out.push(format!(
            "Latency = {} per KiB × size + {} with one outstanding; the line explains {} of the \
             variance, its worst point is {} off.",
            latency(&line.ms_per_kib),
            latency(&line.fixed_ms),
            precise_percent(line.r_squared),
            percent(line.worst_residual),
        ));
    }
    if let Some(cost) = &found.cost {
        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        out.push(format!(
            "For shares of the array's time: fairness = {{ iops_reads = {:.0}, bandwidth_reads = \"{:.1}MiB\", iops_writes = {:.0}, \
             bandwidth_writes = \"{:.1}MiB\" }}",
            cost.iops_reads,
            mib(cost.bandwidth_reads),
            cost.iops_writes,
            mib(cost.bandwidth_writes),
        ));
    }
    if let Some(asymmetry) = &found.asymmetry {
        out.push(format!(
            "Writes take {} times as long as reads, and there are {} times as many of them a second, with {} \
             outstanding.",
            short(asymmetry.latency_ratio),
            short(asymmetry.iops_ratio),
            asymmetry.outstanding,
        ));
    }
    if let Some(noise) = &found.noise {
        let pairs = number_of(noise.pairs as usize, "pair");
        out.push(format!(
            "Runs of one load differ by up to {} in throughput and {} in latency ({pairs} of runs).",
            percent(noise.iops),
            percent(noise.latency),
        ));
    }
    out
}

/// A fraction in percent, with two decimals above 99 %: 0.9987 is 99.87 %.
fn precise_percent(part: f64) -> String {
    let decimals = if part > 0.99 && part < 0.999_95 { 2 } else { 0 };
    format!("{} %", number(part * 100.0, decimals))
}

/// Heads of the columns of [`choices`].
pub(crate) const CHOICE_COLUMNS: [&str; 4] =
    ["threshold", "of the peak", "outstanding", "IOPS of one IO at a time"];

/// Thresholds to choose from, one a row. The advised one is marked.
pub(crate) fn choices(advice: &Advice) -> impl Iterator<Item = [String; 4]> {
    let advised = advice.latency_threshold_ms;
    advice.choices.iter().map(move |choice| {
        let mark = if choice.latency_threshold_ms == advised { "advised: " } else { "" };
        [
            format!("{mark}{}", ms(choice.latency_threshold_ms)),
            percent(choice.throughput_fraction),
            short(choice.outstanding),
            short(choice.one_at_a_time_iops),
        ]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_sizes_and_dates_are_said_as_people_say_them() {
        let said = [
            duration(3.25),
            duration(200.0),
            duration(240.2),
            duration(7260.0),
            duration(f64::NAN),
            bytes(1_800_000_000_000),
            bytes(512),
            date("2026-01-31T12:00:59Z"),
            date("yesterday"),
        ];
        let expected = [
            "3.2 s",
            "3 min 20 s",
            "4 min",
            "2 h 1 min",
            "an unknown time",
            "1.80 TB",
            "512 B",
            "2026-01-31 12:00 UTC",
            "yesterday",
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn an_estimate_is_said_with_its_interval_unless_that_is_nothing() {
        let of = |value, low, high| IntervalEstimate { value, low, high };
        assert_eq!(estimate(&of(12.0, 10.5, 14.0), "ms"), "12 ms (10.5 to 14)");
        assert_eq!(estimate(&of(12.0, 12.0, 12.0), "ms"), "12 ms");
        assert_eq!(estimate(&of(12.0, f64::NAN, 13.0), ""), "12");
    }
}
