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
use parda_plot::{Across, Figure, Panel};
pub(super) use sizes::sizes;
pub(super) use spread::{spread, spread_of};

use super::confidence;
use parda_probe::{Estimate, Mix, Point, ProbeDocument, Purpose};

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
    let mark = |p: &&Point| Mark {
        at: (at(p), value(p)),
        sure: sure(p).map(|e| (e.low, e.high)),
        settled: p.settled,
    };
    marks(panel, name, points.iter().map(mark).collect())
}

/// A place on a line, its confidence interval, and whether the load was steady.
pub(super) struct Mark {
    pub(super) at: (f64, f64),
    pub(super) sure: Option<(f64, f64)>,
    pub(super) settled: bool,
}

/// The same for what is no [`Point`].
pub(super) fn marks(panel: Panel, name: &str, marks: Vec<Mark>) -> Panel {
    let whisker = |m: &Mark| m.sure.map(|(low, high)| (m.at.0, low, high));
    let whiskers: Vec<_> = marks.iter().filter_map(whisker).collect();
    let hollow: Vec<_> = marks.iter().filter(|m| !m.settled).map(|m| m.at).collect();
    let mut panel = panel.line(name, marks.iter().map(|m| m.at).collect::<Vec<_>>());
    if !whiskers.is_empty() {
        panel = panel.whiskers(name, whiskers);
    }
    if hollow.is_empty() { panel } else { panel.paper(name, hollow) }
}

/// Two charts of sweeps, each with its name: throughput and latency over outstanding IOs, and throughput over latency.
/// `noted`: whether a point, by the place of its sweep and its own, has its number of outstanding IOs beside it.
pub(super) fn both(
    title: &str,
    sweeps: &[(String, &Swept<'_>)],
    noted: impl Fn(usize, usize, &Point) -> bool,
) -> [Figure; 2] {
    let peak = |of: &Swept| of.points.iter().map(|p| p.all.iops).fold(0.0, f64::max);
    let far = far_apart(sweeps.iter().map(|(_, of)| peak(of)));
    let throughput = || {
        let panel = Panel::new("Throughput", "IOPS");
        if far { panel.log() } else { panel }
    };
    let mut load = [throughput(), Panel::new("Mean latency", "ms").log()];
    let mut answer = throughput();
    let outstanding = |p: &Point| f64::from(p.load.outstanding);
    let (iops, ms) = (|p: &Point| p.all.iops, |p: &Point| p.all.mean_ms);
    for (place, (name, of)) in sweeps.iter().enumerate() {
        let [rates, latencies] = load;
        load = [
            curve(rates, name, &of.points, outstanding, iops, confidence::iops),
            curve(latencies, name, &of.points, outstanding, ms, confidence::latency),
        ];
        answer = curve(answer, name, &of.points, ms, iops, confidence::iops);
        for (_, point) in of.points.iter().enumerate().filter(|(i, p)| noted(place, *i, p)) {
            answer.notes.push((ms(point), iops(point), point.load.outstanding.to_string()));
        }
    }
    let across = |label: &str| Across::Log(label.to_owned());
    let load = load.into_iter().fold(narrow(title, across("IOs outstanding")), Figure::panel);
    let mut answer = narrow("Throughput against latency", across("mean latency, ms")).panel(answer);
    answer.subtitle = "Beside points: how many were outstanding.".to_owned();
    [load, answer]
}

/// A chart of half the width of a page.
pub(super) fn narrow(title: impl Into<String>, across: Across) -> Figure {
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
fn far_apart(values: impl Iterator<Item = f64>) -> bool {
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
