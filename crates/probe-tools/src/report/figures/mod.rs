//! Charts of a probe.
//!
//! All are narrow, so that two stand side by side and one fits a phone. Whiskers are the 95 % confidence intervals of means, from
//! their slices. A hollow mark stands around a load that was not steady.

mod load;
mod mixes;
mod sizes;
mod spread;

pub(super) use load::load;
pub(super) use mixes::mixes;
use parda_plot::{Figure, Panel};
pub(super) use sizes::sizes;
pub(super) use spread::{spread, spread_of};

use parda_probe::Estimate;
use parda_probe::Point;
use parda_probe::ProbeDocument;
use parda_probe::{Mix, Purpose};

/// Legend of the hollow marks.
const UNSETTLED: &str = "did not settle";

/// All charts of a probe, each with a name for its file: throughput and latency over outstanding IOs, throughput
/// over latency, distributions of latencies, latency over size, and reads × randomness × size. Questions without measurements have
/// no chart.
#[must_use]
pub fn figures(document: &ProbeDocument) -> Vec<(String, Figure)> {
    let mut all = load(document);
    all.extend(spread(document));
    all.extend(sizes(document));
    all.extend(mixes(document));
    all
}

/// A mix that was swept over outstanding IOs, and its points in ascending order.
pub(super) struct Swept<'a> {
    pub(super) mix: Mix,
    pub(super) points: Vec<&'a Point>,
}

/// All mixes that were swept, in the order of the run.
pub(super) fn swept(document: &ProbeDocument) -> Vec<Swept<'_>> {
    let mut all: Vec<Swept> = Vec::new();
    for point in document.points.iter().filter(|p| p.purpose == Purpose::Depth) {
        match all.iter_mut().find(|s| s.mix == point.load.mix) {
            Some(of) => of.points.push(point),
            None => all.push(Swept { mix: point.load.mix, points: vec![point] }),
        }
    }
    for of in &mut all {
        of.points.sort_by_key(|p| p.load.outstanding);
    }
    all
}

/// A line through points, with whiskers, and hollow marks around points that were not steady.
pub(super) fn curve(
    panel: Panel,
    name: &str,
    points: &[&Point],
    at: impl Fn(&Point) -> f64,
    value: impl Fn(&Point) -> f64,
    sure: impl Fn(&Point) -> Option<Estimate>,
) -> Panel {
    let place = |p: &&&Point| (at(p), value(p));
    let line: Vec<(f64, f64)> = points.iter().map(|p| place(&p)).collect();
    let whiskers: Vec<(f64, f64, f64)> =
        points.iter().filter_map(|p| sure(p).map(|e| (at(p), e.low, e.high))).collect();
    let hollow: Vec<(f64, f64)> = points.iter().filter(|p| !p.settled).map(|p| place(&p)).collect();
    let mut panel = panel.line(name, line);
    if !whiskers.is_empty() {
        panel = panel.whiskers(name, whiskers);
    }
    if hollow.is_empty() { panel } else { panel.paper(name, hollow) }
}

/// A chart of half the width of a page.
pub(super) fn narrow(title: impl Into<String>, across: parda_plot::Across) -> Figure {
    let mut figure = Figure::new(title, across);
    figure.width = Figure::NARROW;
    figure.reference = UNSETTLED.to_owned();
    figure
}

/// The smallest and the largest of the values above zero.
fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let values: Vec<f64> = values.filter(|v| *v > 0.0 && v.is_finite()).collect();
    let low = values.iter().copied().reduce(f64::min)?;
    Some((low, values.iter().copied().fold(low, f64::max)))
}

/// Whether values are so far apart that on a linear scale the small ones could not be told from zero.
pub(super) fn far_apart(values: impl Iterator<Item = f64>) -> bool {
    range(values).is_some_and(|(low, high)| high > 12.0 * low)
}

#[cfg(test)]
mod tests {
    use parda_plot::Data;

    use super::*;
    use crate::report::example::{document, empty};

    #[test]
    fn each_question_has_its_picture_and_what_was_not_asked_has_none() {
        let names: Vec<String> = figures(&document()).into_iter().map(|(name, _)| name).collect();
        assert_eq!(
            names,
            [
                "load",
                "answer",
                "spread-1",
                "spread-2",
                "spread-3",
                "size",
                "mix-4KiB",
                "mix-16KiB",
                "mix-64KiB",
                "mix-256KiB"
            ]
        );
        assert!(figures(&empty()).is_empty());
    }

    #[test]
    fn every_axis_has_its_unit_and_every_picture_its_words() {
        for (name, figure) in figures(&document()) {
            let svg = figure.svg();
            let document = roxmltree::Document::parse(&svg).unwrap();
            for panel in &figure.panels {
                assert!(!panel.unit.is_empty(), "{name}: {}", panel.label);
            }
            assert!(document.root_element().attribute("aria-label").unwrap().len() > 60, "{name}");
            assert!(
                document.descendants().any(|n| n.attribute("class") == Some("series")),
                "{name}"
            );
        }
    }

    #[test]
    fn what_did_not_settle_is_marked_in_all_that_is_drawn_of_it() {
        for (name, figure) in load(&document()) {
            for panel in &figure.panels {
                let hollow = panel
                    .series
                    .iter()
                    .filter(|s| matches!(&s.data, Data::Paper(p) if p.len() == 1));
                assert_eq!(hollow.count(), 3, "{name}: {}", panel.label);
            }
        }
    }

    #[test]
    fn pictures_of_one_kind_have_common_axes() {
        let document = document();
        for figures in [spread(&document), mixes(&document)] {
            let rooms: Vec<_> = figures
                .iter()
                .map(|(_, f)| (f.room, f.panels.iter().map(|p| p.room).collect::<Vec<_>>()))
                .collect();
            assert!(rooms.len() > 2 && rooms.windows(2).all(|w| w[0] == w[1]), "{rooms:?}");
            assert!(rooms[0].1.iter().all(Option::is_some));
        }
    }
}
