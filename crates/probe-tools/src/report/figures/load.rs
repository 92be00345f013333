//! Charts of throughput and latency over outstanding IOs, and of throughput over latency.

use parda_plot::{Across, Figure, Panel};

use super::{Swept, curve, far_apart, narrow, swept};
use crate::report::confidence;
use crate::report::words::ms;
use parda_probe::ProbeDocument;

/// The advised threshold, for the legend.
const THRESHOLD: &str = "threshold to set";

/// Two charts: both over outstanding IOs, and throughput over latency.
pub(crate) fn load(document: &ProbeDocument) -> Vec<(String, Figure)> {
    let swept = swept(document);
    if swept.is_empty() {
        return Vec::new();
    }
    let found = &document.findings;
    let threshold = found.advice.as_ref().map(|a| a.latency_threshold_ms);
    let scale = |panel: Panel| {
        let peak = |s: &Swept| s.points.iter().map(|p| p.all.iops).fold(0.0, f64::max);
        if far_apart(swept.iter().map(peak)) { panel.log() } else { panel }
    };

    let mut throughput = scale(Panel::new("Throughput", "IOPS"));
    let mut latency = Panel::new("Mean latency", "ms").log();
    let mut answer = scale(Panel::new("Throughput", "IOPS"));
    for (place, of) in swept.iter().enumerate() {
        let name = of.mix.to_string();
        let outstanding = |p: &_| f64::from(load_of(p));
        throughput =
            curve(throughput, &name, &of.points, outstanding, |p| p.all.iops, confidence::iops);
        latency =
            curve(latency, &name, &of.points, outstanding, |p| p.all.mean_ms, confidence::latency);
        answer =
            curve(answer, &name, &of.points, |p| p.all.mean_ms, |p| p.all.iops, confidence::iops);
        // Labels with the number of outstanding IOs: at the ends of each curve, and along the first, where there is room.
        let last = of.points.len() - 1;
        for (i, point) in of.points.iter().enumerate() {
            let n = load_of(point);
            if i == 0 || i == last || place == 0 && n.is_power_of_two() {
                answer = answer.note((point.all.mean_ms, point.all.iops), n.to_string());
            }
        }
    }
    if let Some(threshold) = threshold {
        latency = latency.level(THRESHOLD, threshold);
    }

    let across = Across::Log { label: "IOs outstanding".to_owned() };
    let mut both = narrow("Throughput and latency against outstanding", across)
        .panel(throughput)
        .panel(latency);
    if let Some(knee) = found.curves.first().and_then(|curve| curve.knee) {
        both = both.span("", knee.outstanding.low, knee.outstanding.high);
        both = both.upright(
            format!("knee of {} (grey: 95 % sure)", found.curves[0].mix),
            knee.outstanding.value,
        );
    }
    let across = Across::Log { label: "mean latency, ms".to_owned() };
    let mut answer = narrow("Throughput against latency", across).panel(answer);
    answer.subtitle = "Beside points: how many were outstanding.".to_owned();
    if let Some(threshold) = threshold {
        answer = answer.upright(format!("{THRESHOLD}, {}", ms(threshold)), threshold);
    }
    vec![("load".to_owned(), both), ("answer".to_owned(), answer)]
}

fn load_of(point: &parda_probe::Point) -> u32 {
    point.load.outstanding
}
