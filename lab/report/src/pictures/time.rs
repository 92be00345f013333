//! Charts over time: quantities of hosts, second by second.

use parda_control::law::Mode;
use parda_plot::{Across, Figure, Level, Panel};
use parda_scenario::metric::{Metric, label};
use parda_scenario::plot::Plot;
use parda_scenario::{Action, ClusterState, HostIndex, Phase, Run, Scenario};
use parda_sim::RunSeries;

use super::points::MOST_LINES;

/// Largest number of points of a line. Longer series are drawn as means.
const MOST_POINTS: usize = 240;

/// Chart of one run, or of a phase of it: a line for each host, second by second.
pub(crate) fn figure(
    plot: &Plot,
    phase: Option<&str>,
    run: &Run,
    series: &RunSeries,
    quantities: &[String],
    expected: impl Fn(&Metric) -> Option<f64>,
) -> Figure {
    let scenario = &run.scenario;
    let shown = scenario.phases.iter().find(|p| phase == Some(p.name.as_str()));
    let (from, to) = shown.map_or((0.0, scenario.duration.as_secs_f64()), seconds);
    let mut figure = Figure::new(&plot.title, Across::Time);
    for phase in &scenario.phases {
        let (from, to) = (seconds(phase).0.max(from), seconds(phase).1.min(to));
        if from < to {
            figure.spans.push((phase.name.clone(), from, to));
        }
    }
    // The time of an interval is its end.
    let within = |i: &usize| series.at[*i] > from && series.at[*i] <= to;
    let within: Vec<usize> = (0..series.at.len()).filter(within).collect();
    let together = within.len().div_ceil(MOST_POINTS).max(1);
    if together > 1 {
        figure.subtitle = format!(", means of {together} s");
    }
    let present = || series.hosts.iter().zip(&scenario.hosts).filter(|(_, host)| host.present);
    for quantity in quantities {
        let (name, unit) = label(quantity);
        let mut panel = Panel::new(name, unit);
        for (place, (host, _)) in present().enumerate() {
            let values = host.get(quantity);
            let value = |i: &usize| Some((series.at[*i], *values.get(*i)?));
            let points: Vec<(f64, f64)> = within.iter().filter_map(value).collect();
            panel = panel.line(&host.name, means(&points, together));
            let expected = |phase| expected(&Metric::of_host(phase, &host.name, quantity));
            let mut marks = marks(run, expected, place);
            marks.retain(|(at, _)| (from..=to).contains(at));
            if !marks.is_empty() && present().count() <= MOST_LINES {
                panel = panel.paper(&host.name, marks);
            }
        }
        if quantity == "device_latency_ms" {
            panel.levels = thresholds(scenario);
            let overlaps = |(begin, end): (f64, f64)| begin < to && end > from;
            panel.levels.retain(|level| level.within.is_none_or(overlaps));
        }
        figure = figure.panel(panel);
    }
    // Panels without data are left out, such as windows without control.
    let drawn = |panel: &Panel| panel.series.iter().any(|series| series.data.is_some());
    if figure.panels.iter().any(drawn) {
        figure.panels.retain(drawn);
    }
    figure.digest(MOST_LINES, "hosts")
}

fn seconds(phase: &Phase) -> (f64, f64) {
    (phase.from.as_secs_f64(), phase.to.as_secs_f64())
}

/// Expected values of a host, one for each phase that has one, with the times at which they are drawn. `place`: of
/// the host among those drawn.
fn marks(run: &Run, expected: impl Fn(String) -> Option<f64>, place: usize) -> Vec<(f64, f64)> {
    let variant = run.variant.as_ref().map_or(String::new(), |v| format!("{v}."));
    // Marks of hosts are staggered, as their values are often close.
    let part = (place + 1) as f64 / (MOST_LINES + 1) as f64;
    let of_phase = |phase: &Phase| {
        let (from, to) = seconds(phase);
        Some((from + part * (to - from), expected(format!("{variant}{}", phase.name))?))
    };
    run.scenario.phases.iter().filter_map(of_phase).collect()
}

/// Means over `together` consecutive values, each at the time of its last value.
fn means(points: &[(f64, f64)], together: usize) -> Vec<(f64, f64)> {
    let mean = |points: &[(f64, f64)]| {
        let there: Vec<f64> = points.iter().map(|p| p.1).filter(|v| v.is_finite()).collect();
        points.last().map(|last| (last.0, there.iter().sum::<f64>() / there.len() as f64))
    };
    points.chunks(together).filter_map(mean).collect()
}

/// The thresholds in force on some host, each with the time for which it was.
fn thresholds(scenario: &Scenario) -> Vec<Level> {
    let of_host = |state: &ClusterState, id| {
        let control = state.host(id).control.resolve().ok()?;
        // A threshold that is found while working is no constant level.
        let found = control.auto.is_some();
        let none = matches!(control.law.mode, Mode::Off | Mode::Observe | Mode::Static);
        (!found && !none).then(|| control.law.threshold.secs() * 1e3)
    };
    let mut levels: Vec<Level> = Vec::new();
    let mut add = |state: &ClusterState, from: f64, to: f64| {
        let present = (0..scenario.hosts.len()).filter(|h| scenario.hosts[*h].present);
        for value in present.filter_map(|host| of_host(state, HostIndex(host))) {
            let same = |level: &&mut Level| {
                level.value == value && level.within.is_some_and(|w| w.1 >= from)
            };
            match levels.iter_mut().find(same) {
                Some(Level { within: Some(within), .. }) => within.1 = to,
                _ if from < to => {
                    let (name, within) = ("threshold".to_owned(), Some((from, to)));
                    levels.push(Level { name, value, within });
                }
                _ => {}
            }
        }
    };
    let mut state = ClusterState::new(&scenario.hosts);
    let mut from = 0.0;
    for event in &scenario.timeline {
        if matches!(event.action, Action::SetControl(..)) {
            let at = event.at.as_secs_f64();
            add(&state, from, at);
            from = at;
            // An event that cannot be applied changes nothing.
            let _ = state.apply(&event.action);
        }
    }
    add(&state, from, scenario.duration.as_secs_f64());
    levels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_of_what_is_there_and_of_nothing_there_is_none() {
        let points = [(1.0, 1.0), (2.0, f64::NAN), (3.0, f64::NAN), (4.0, f64::NAN), (5.0, 7.0)];
        let means = means(&points, 2);
        assert_eq!((means[0], means[2]), ((2.0, 1.0), (5.0, 7.0)));
        assert!(means[1].0 == 4.0 && means[1].1.is_nan());
    }
}
