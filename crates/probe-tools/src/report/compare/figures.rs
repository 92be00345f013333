//! Charts of two probes: both in one chart, or in two charts with the same axes.

use parda_plot::{Across, Figure, Panel};

use crate::report::comparison::Comparison;
use crate::report::confidence;
use crate::report::figures::{Swept, curve, far_apart, narrow, spread_of, swept};
use parda_probe::ProbeDocument;
use parda_probe::{Mix, Purpose};

/// Charts of B's throughput over A's, one for each mix that both swept.
pub(super) fn ratios(comparison: &Comparison) -> Option<(String, Figure)> {
    let mut panel = Panel::new("Throughput, B over A", "ratio").log();
    let mut mixes: Vec<Mix> = Vec::new();
    for pair in comparison.loads.iter().filter(|p| p.purpose == Purpose::Depth) {
        if !mixes.contains(&pair.load.mix) {
            mixes.push(pair.load.mix);
        }
    }
    for mix in &mixes {
        let mut pairs: Vec<_> = comparison
            .loads
            .iter()
            .filter(|p| p.purpose == Purpose::Depth && p.load.mix == *mix)
            .collect();
        pairs.sort_by_key(|p| p.load.outstanding);
        let at = |p: &crate::report::comparison::Pair| f64::from(p.load.outstanding);
        let line: Vec<_> = pairs.iter().map(|p| (at(p), p.iops_ratio)).collect();
        let sure =
            pairs.iter().filter_map(|p| p.iops_ratio_95.map(|[low, high]| (at(p), low, high)));
        let whiskers: Vec<_> = sure.collect();
        let unsettled = pairs.iter().filter(|p| !p.a.settled || !p.b.settled);
        let hollow: Vec<_> = unsettled.map(|p| (at(p), p.iops_ratio)).collect();
        panel = panel.line(mix.to_string(), line).whiskers(mix.to_string(), whiskers);
        if !hollow.is_empty() {
            panel = panel.paper(mix.to_string(), hollow);
        }
    }
    if mixes.is_empty() {
        return None;
    }
    // The axis has some height even if both are the same.
    panel.room = Some((0.8, 1.25));
    let across = Across::Log { label: "IOs outstanding".to_owned() };
    let panel = panel.level("both the same", 1.0);
    Some(("ratio".to_owned(), narrow("What B has of A's throughput", across).panel(panel)))
}

/// Charts of each mix that both swept: over outstanding IOs, and throughput over latency.
pub(super) fn loads(a: &ProbeDocument, b: &ProbeDocument) -> Vec<(Mix, [Figure; 2])> {
    let (of_a, of_b) = (swept(a), swept(b));
    let common = of_a.iter().filter_map(|a| Some((a, of_b.iter().find(|b| b.mix == a.mix)?)));
    common.map(|(of_a, of_b)| (of_a.mix, both(a, b, of_a, of_b))).collect()
}

fn both(a: &ProbeDocument, b: &ProbeDocument, of_a: &Swept, of_b: &Swept) -> [Figure; 2] {
    let peak = |of: &Swept| of.points.iter().map(|p| p.all.iops).fold(0.0, f64::max);
    let scale = if far_apart([of_a, of_b].into_iter().map(peak)) {
        Panel::log
    } else {
        |panel: Panel| panel
    };
    let mut throughput = scale(Panel::new("Throughput", "IOPS"));
    let mut latency = Panel::new("Mean latency", "ms").log();
    let mut answer = scale(Panel::new("Throughput", "IOPS"));
    for (name, of) in [("A", of_a), ("B", of_b)] {
        let at = |p: &parda_probe::Point| f64::from(p.load.outstanding);
        throughput = curve(throughput, name, &of.points, at, |p| p.all.iops, confidence::iops);
        latency = curve(latency, name, &of.points, at, |p| p.all.mean_ms, confidence::latency);
        answer =
            curve(answer, name, &of.points, |p| p.all.mean_ms, |p| p.all.iops, confidence::iops);
        for point in of.points.iter().filter(|p| p.load.outstanding.is_power_of_two()) {
            let at = (point.all.mean_ms, point.all.iops);
            answer = answer.note(at, point.load.outstanding.to_string());
        }
    }
    let outstanding = Across::Log { label: "IOs outstanding".to_owned() };
    let mut load = narrow("Against outstanding", outstanding).panel(throughput).panel(latency);
    let across = Across::Log { label: "mean latency, ms".to_owned() };
    let mut answer = narrow("Throughput against latency", across).panel(answer);
    answer.subtitle = "Beside points: how many were outstanding.".to_owned();
    for (name, document) in [("A", a), ("B", b)] {
        let found = &document.findings;
        let knee = found.curves.iter().find(|c| c.mix == of_a.mix).and_then(|c| c.knee);
        if let Some(knee) = knee {
            load = load.upright("knees", knee.outstanding.value);
            load = load.span(name, knee.outstanding.low, knee.outstanding.high);
        }
        if let Some(advice) = &found.advice {
            answer = answer.upright("thresholds to set", advice.latency_threshold_ms);
        }
    }
    [load, answer]
}

/// Charts of each mix that both swept: the distributions of latencies in A and in B.
pub(super) fn spreads(a: &ProbeDocument, b: &ProbeDocument) -> Vec<(Mix, Vec<Figure>)> {
    let (of_a, of_b) = (swept(a), swept(b));
    let common = |mix: Mix| [&of_a, &of_b].iter().all(|all| all.iter().any(|s| s.mix == mix));
    let mixes: Vec<Mix> = of_a.iter().map(|s| s.mix).filter(|mix| common(*mix)).collect();
    let both = of_a.into_iter().map(|s| ("A", s)).chain(of_b.into_iter().map(|s| ("B", s)));
    let both: Vec<(String, Swept)> = both
        .filter(|(_, s)| mixes.contains(&s.mix))
        .map(|(name, s)| (format!("{name}: {}", s.mix), s))
        .collect();
    let figures = spread_of(&both);
    let of = |mix: Mix| {
        let with = both.iter().zip(&figures).filter(|((_, s), _)| s.mix == mix);
        (mix, with.map(|(_, figure)| figure.clone()).collect())
    };
    mixes.into_iter().map(of).collect()
}
