//! Charts of two probes: both in one chart, or in two charts with the same axes.

use parda_plot::{Across, Figure, Level, Panel};

use crate::report::comparison::{Comparison, Pair};
use crate::report::figures::{Mark, Swept, both, marks, narrow, spread_of, swept};
use parda_probe::ProbeDocument;
use parda_probe::{Mix, Purpose};

/// Charts of B's throughput over A's, one for each mix that both swept.
pub(super) fn ratios(comparison: &Comparison) -> Option<Figure> {
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
        let mark = |p: &&Pair| Mark {
            at: (f64::from(p.load.outstanding), p.iops_ratio),
            sure: p.iops_ratio_95.map(|[low, high]| (low, high)),
            settled: p.a.settled && p.b.settled,
        };
        panel = marks(panel, &mix.to_string(), pairs.iter().map(mark).collect());
    }
    if mixes.is_empty() {
        return None;
    }
    // The axis has some height even if both are the same.
    panel.room = Some((0.8, 1.25));
    let across = Across::Log("IOs outstanding".to_owned());
    panel.levels.push(Level { name: "both the same".to_owned(), value: 1.0, within: None });
    Some(narrow("What B has of A's throughput", across).panel(panel))
}

/// Charts of each mix that both swept: over outstanding IOs, and throughput over latency.
pub(super) fn loads(a: &ProbeDocument, b: &ProbeDocument) -> Vec<(Mix, [Figure; 2])> {
    let (of_a, of_b) = (swept(a), swept(b));
    let common = of_a.iter().filter_map(|a| Some((a, of_b.iter().find(|b| b.mix == a.mix)?)));
    common.map(|(of_a, of_b)| (of_a.mix, together([a, b], [of_a, of_b]))).collect()
}

fn together([a, b]: [&ProbeDocument; 2], [of_a, of_b]: [&Swept; 2]) -> [Figure; 2] {
    let sweeps = [("A".to_owned(), of_a), ("B".to_owned(), of_b)];
    let [mut load, mut answer] = both("Against outstanding", &sweeps, |_, _, point| {
        point.load.outstanding.is_power_of_two()
    });
    for (name, document) in [("A", a), ("B", b)] {
        let found = &document.findings;
        let knee = found.curves.iter().find(|c| c.mix == of_a.mix).and_then(|c| c.knee);
        if let Some(knee) = knee {
            load.uprights.push(("knees".to_owned(), knee.outstanding.value));
            load.spans.push((name.to_owned(), knee.outstanding.low, knee.outstanding.high));
        }
        if let Some(advice) = &found.advice {
            answer.uprights.push(("thresholds to set".to_owned(), advice.latency_threshold_ms));
        }
    }
    [load, answer]
}

/// Charts of each mix that both swept: the distributions of latencies in A and in B.
pub(super) fn spreads(a: &ProbeDocument, b: &ProbeDocument) -> Vec<Vec<Figure>> {
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
        with.map(|(_, figure)| figure.clone()).collect()
    };
    mixes.into_iter().map(of).collect()
}
