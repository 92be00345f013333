//! Charts of numbers of the answer, by variant, host or VM.

use parda_plot::{Across, Figure, Panel};
use parda_scenario::metric::Metric;
use parda_scenario::plot::{Draw, Plot, PlotPanel};
use parda_sim::StudyOutcome;

/// Largest number of lines in a chart. More lines become a band.
pub(crate) const MOST_LINES: usize = 12;

/// Chart of numbers of the answer.
pub(crate) fn figure(
    plot: &Plot,
    label: &str,
    draw: Draw,
    panels: &[PlotPanel],
    outcome: &StudyOutcome,
    expected: impl Fn(&Metric) -> Option<f64>,
) -> Figure {
    let (across, place) = axis(label, draw, panels);
    let mut figure = Figure::new(&plot.title, across);
    for PlotPanel { label, unit, lines } in panels {
        let mut panel = Panel::new(label, *unit);
        for line in lines {
            let at = |value: &dyn Fn(&Metric) -> Option<f64>| -> Vec<(f64, f64)> {
                let points = line.points.iter();
                points.map(|(x, metric)| (place(x), value(metric).unwrap_or(f64::NAN))).collect()
            };
            let mut ours = at(&|metric| metric.value(&outcome.answer.phases));
            ours.sort_by(|a, b| a.0.total_cmp(&b.0));
            let theirs = at(&expected);
            panel = match draw {
                Draw::Lines => panel.line(&line.name, ours),
                Draw::Marks => panel.marks(&line.name, ours),
                Draw::Bars => panel.bars(&line.name, ours),
            };
            if theirs.iter().any(|(_, value)| value.is_finite()) {
                panel = panel.paper(&line.name, theirs);
            }
        }
        figure = figure.panel(panel);
    }
    figure.digest(MOST_LINES, "lines")
}

/// The common axis, and the position of each label on it. Labels that are evenly spread numbers lie
/// on a numeric scale. Names, and numbers that double, lie side by side.
fn axis(label: &str, draw: Draw, panels: &[PlotPanel]) -> (Across, impl Fn(&str) -> f64 + use<>) {
    let mut names: Vec<String> = Vec::new();
    let lines = panels.iter().flat_map(|panel| &panel.lines);
    for (name, _) in lines.flat_map(|line| &line.points) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    let number = |text: &str| text.parse::<f64>().ok().filter(|n| n.is_finite());
    let mut even = false;
    if names.iter().all(|name| number(name).is_some()) {
        let number = |name: &String| number(name).unwrap_or_default();
        names.sort_by(|a, b| number(a).total_cmp(&number(b)));
        let gaps = || names.windows(2).map(|pair| number(&pair[1]) - number(&pair[0]));
        let (least, most) = (gaps().fold(f64::INFINITY, f64::min), gaps().fold(0.0, f64::max));
        even = draw != Draw::Bars && names.len() > 1 && most <= 4.0 * least;
    }
    let label = label.to_owned();
    let across = if even { Across::Numbers(label) } else { Across::Names(label, names.clone()) };
    let place = move |name: &str| match even {
        true => name.parse().unwrap_or(f64::NAN),
        false => names.iter().position(|n| n == name).map_or(f64::NAN, |i| i as f64),
    };
    (across, place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(places: &[&str], draw: Draw) -> (Across, Vec<f64>) {
        let metric = Metric::of_host("p".to_owned(), "kvm-01", "iops");
        let points = places.iter().map(|at| ((*at).to_owned(), metric.clone())).collect();
        let line = parda_scenario::plot::PlotLine { name: String::new(), points };
        let panel = PlotPanel { label: String::new(), unit: "", lines: vec![line] };
        let (across, place) = axis("x", draw, &[panel]);
        (across, places.iter().map(|at| place(at)).collect())
    }

    #[test]
    fn numbers_that_are_spread_evenly_are_on_a_scale() {
        let (across, places) = at(&["1", "2", "5", "3"], Draw::Lines);
        assert!(matches!(across, Across::Numbers(_)));
        assert_eq!(places, [1.0, 2.0, 5.0, 3.0]);
    }

    #[test]
    fn numbers_that_double_are_side_by_side_in_their_order() {
        let (across, places) = at(&["64", "2", "16", "256"], Draw::Lines);
        assert!(matches!(across, Across::Names(_, names) if names == ["2", "16", "64", "256"]));
        assert_eq!(places, [2.0, 0.0, 1.0, 3.0]);
    }

    #[test]
    fn bars_and_names_are_side_by_side() {
        assert!(matches!(at(&["1", "2", "3"], Draw::Bars).0, Across::Names(..)));
        let (across, places) = at(&["8KiB", "4KiB", "8KiB"], Draw::Lines);
        assert!(matches!(across, Across::Names(_, names) if names == ["8KiB", "4KiB"]));
        assert_eq!(places, [0.0, 1.0, 0.0]);
    }
}
