//! Charts of a probe: throughput and latency over outstanding IOs, and throughput over latency.
//!
//! Both are narrow, so that they stand side by side and one fits a phone. Whiskers are the 95 % confidence intervals of
//! means, from the slices of a point.

use parda_plot::{Across, Figure, Level, Panel};
use parda_probe::sample::half_width;
use parda_probe::{LoadMix, Point, ProbeDocument, Purpose, TimeSlice};

use super::words::ms;

/// Legend of the hollow marks.
const UNSETTLED: &str = "did not settle";

/// The advised threshold, for the legend.
const THRESHOLD: &str = "threshold to set";

/// Ratio of peaks above which small ones could not be told from zero on a linear scale.
const FAR_APART: f64 = 12.0;

/// The charts of a probe, each with a name for its file. None without a sweep.
#[must_use]
pub fn figures(document: &ProbeDocument) -> Vec<(String, Figure)> {
    let swept = swept(document);
    if swept.is_empty() {
        return Vec::new();
    }
    let peaks = || swept.iter().map(|of| of.points.iter().map(|p| p.all.iops).fold(0.0, f64::max));
    let far = peaks().fold(0.0, f64::max) > FAR_APART * peaks().fold(f64::INFINITY, f64::min);
    let throughput = || {
        let panel = Panel::new("Throughput", "IOPS");
        if far { panel.log() } else { panel }
    };
    let mut load = [throughput(), Panel::new("Mean latency", "ms").log()];
    let mut answer = throughput();
    let outstanding = |p: &Point| f64::from(p.load.outstanding);
    let (iops, mean) = (|p: &Point| p.all.iops, |p: &Point| p.all.mean_ms);
    let iops_error = |p: &Point| error(p, |slice| Some(slice.iops));
    let mean_error = |p: &Point| error(p, |slice| slice.mean_ms);
    for (place, of) in swept.iter().enumerate() {
        let [rates, latencies] = load;
        load = [
            curve(rates, of, outstanding, iops, iops_error),
            curve(latencies, of, outstanding, mean, mean_error),
        ];
        answer = curve(answer, of, mean, iops, iops_error);
        // Numbers at the ends of each curve, and along the first, where there is room.
        let last = of.points.len() - 1;
        for (i, point) in of.points.iter().enumerate() {
            if i == 0 || i == last || place == 0 && point.load.outstanding.is_power_of_two() {
                let note = (mean(point), iops(point), point.load.outstanding.to_string());
                answer.notes.push(note);
            }
        }
    }
    let narrow = |title: &str, across: &str| {
        let mut figure = Figure::new(title, Across::Log(across.to_owned()));
        (figure.width, figure.reference) = (Figure::NARROW, UNSETTLED.to_owned());
        figure
    };
    let title = "Throughput and latency against outstanding";
    let mut load = load.into_iter().fold(narrow(title, "IOs outstanding"), Figure::panel);
    let mut answer = narrow("Throughput against latency", "mean latency, ms").panel(answer);
    answer.subtitle = "Beside points: how many were outstanding.".to_owned();
    let found = &document.findings;
    if let Some(threshold) = found.advice.as_ref().map(|a| a.latency_threshold_ms) {
        if let Some(latency) = load.panels.last_mut() {
            let level = Level { name: THRESHOLD.to_owned(), value: threshold, within: None };
            latency.levels.push(level);
        }
        answer.uprights.push((format!("{THRESHOLD}, {}", ms(threshold)), threshold));
    }
    if let Some(knee) = found.curves.first().and_then(|curve| curve.knee) {
        load.spans.push((String::new(), knee.outstanding.low, knee.outstanding.high));
        let name = format!("knee of {} (grey: 95 % sure)", found.curves[0].mix);
        load.uprights.push((name, knee.outstanding.value));
    }
    vec![("load".to_owned(), load), ("answer".to_owned(), answer)]
}

/// A mix that was swept over outstanding IOs, and its points in ascending order.
struct Swept<'a> {
    mix: LoadMix,
    points: Vec<&'a Point>,
}

/// All mixes that were swept, in the order of the run.
fn swept(document: &ProbeDocument) -> Vec<Swept<'_>> {
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

/// Half the width of the 95 % confidence interval of a point's mean, from its slices.
fn error(point: &Point, of: impl Fn(&TimeSlice) -> Option<f64>) -> Option<f64> {
    half_width(&point.slices.iter().filter_map(of).collect::<Vec<_>>())
        .filter(|half| half.is_finite())
}

/// A line through the points of a sweep, with whiskers, and hollow marks around points that were not steady.
fn curve(
    panel: Panel,
    Swept { mix, points }: &Swept<'_>,
    at: impl Fn(&Point) -> f64,
    value: impl Fn(&Point) -> f64,
    error: impl Fn(&Point) -> Option<f64>,
) -> Panel {
    let name = mix.to_string();
    let place = |p: &&Point| (at(p), value(p));
    let whisker =
        |p: &&Point| error(p).map(|half| (at(p), (value(p) - half).max(0.0), value(p) + half));
    let whiskers: Vec<_> = points.iter().filter_map(whisker).collect();
    let hollow: Vec<_> = points.iter().filter(|p| !p.settled).map(place).collect();
    let mut panel = panel.line(&name, points.iter().map(place).collect::<Vec<_>>());
    if !whiskers.is_empty() {
        panel = panel.whiskers(&name, whiskers);
    }
    if hollow.is_empty() { panel } else { panel.paper(&name, hollow) }
}

#[cfg(test)]
mod tests {
    use parda_plot::SeriesData;

    use super::*;
    use crate::report::example::{document, empty};

    #[test]
    fn a_sweep_has_its_pictures_and_what_was_not_asked_has_none() {
        let names: Vec<String> = figures(&document()).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["load", "answer"]);
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
        for (name, figure) in figures(&document()) {
            for panel in &figure.panels {
                let hollow = panel
                    .series
                    .iter()
                    .filter(|s| matches!(&s.data, SeriesData::Paper(p) if p.len() == 1));
                assert_eq!(hollow.count(), 1, "{name}: {}", panel.label);
            }
        }
    }
}
