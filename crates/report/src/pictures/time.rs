//! Charts over time: quantities of hosts, second by second.

use parda_control::law::Mode;
use parda_plot::{Across, Figure, Level, Panel};
use parda_scenario::metric::{Metric, label};
use parda_scenario::plot::Plot;
use parda_scenario::{Action, HostId, Phase, Run, Scenario, State};
use parda_sim::Series;

use super::expected::Expected;
use super::points::MOST_LINES;

/// Largest number of points of a line. Longer series are drawn as means.
const MOST_POINTS: usize = 240;

/// Part of a run that a chart shows, in seconds.
#[derive(Clone, Copy)]
struct Shown {
    from: f64,
    to: f64,
}

impl Shown {
    /// The named phase, or the whole run.
    fn new(scenario: &Scenario, phase: Option<&str>) -> Shown {
        match scenario.phases.iter().find(|p| phase == Some(p.name.as_str())) {
            Some(p) => Shown { from: p.from.as_secs_f64(), to: p.to.as_secs_f64() },
            None => Shown { from: 0.0, to: scenario.duration.as_secs_f64() },
        }
    }

    fn has(&self, at: f64) -> bool {
        (self.from..=self.to).contains(&at)
    }

    fn overlaps(&self, (from, to): (f64, f64)) -> bool {
        from < self.to && to > self.from
    }
}

/// Chart of one run: a line for each host, second by second.
pub(crate) fn figure(
    plot: &Plot,
    phase: Option<&str>,
    run: &Run,
    series: &Series,
    quantities: &[String],
    expected: &Expected,
) -> Figure {
    let scenario = &run.scenario;
    let shown = Shown::new(scenario, phase);
    let mut figure = Figure::new(&plot.title, Across::Time);
    for phase in &scenario.phases {
        let from = phase.from.as_secs_f64().max(shown.from);
        let to = phase.to.as_secs_f64().min(shown.to);
        if from < to {
            figure = figure.span(&phase.name, from, to);
        }
    }
    // The time of an interval is its end.
    let within = |at: f64| at > shown.from && at <= shown.to;
    let within: Vec<usize> = (0..series.at.len()).filter(|&i| within(series.at[i])).collect();
    let pick = |values: &[f64]| -> Vec<f64> {
        within.iter().filter_map(|&i| values.get(i).copied()).collect()
    };
    let at = pick(&series.at);
    let together = at.len().div_ceil(MOST_POINTS).max(1);
    if together > 1 {
        figure.subtitle = format!(", means of {together} s");
    }
    let marked = scenario.hosts.iter().filter(|host| host.present).count() <= MOST_LINES;
    for quantity in quantities {
        let (name, unit) = label(quantity);
        let mut panel = Panel::new(name, unit);
        let present = series.hosts.iter().zip(&scenario.hosts).filter(|(_, host)| host.present);
        for (place, (host, _)) in present.enumerate() {
            panel = panel.line(&host.name, means(&at, &pick(&host.get(quantity)), together));
            let expected_of =
                |phase: String| expected.get(&Metric::of_host(phase, &host.name, quantity));
            let marks = if marked { marks(run, expected_of, place) } else { Vec::new() };
            let marks: Vec<(f64, f64)> =
                marks.into_iter().filter(|(at, _)| shown.has(*at)).collect();
            if !marks.is_empty() {
                panel = panel.paper(&host.name, marks);
            }
        }
        if quantity == "device_latency_ms" {
            panel.levels = thresholds(scenario);
            panel.levels.retain(|level| level.within.is_none_or(|within| shown.overlaps(within)));
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

/// Expected values of a host, one for each phase that has one, with the times at which they are drawn. `place`: of
/// the host among those drawn.
fn marks(run: &Run, expected: impl Fn(String) -> Option<f64>, place: usize) -> Vec<(f64, f64)> {
    let variant = run.variant.as_ref().map_or(String::new(), |v| format!("{v}."));
    // Marks of hosts are staggered, as their values are often close.
    let part = (place + 1) as f64 / (MOST_LINES + 1) as f64;
    let of_phase = |phase: &Phase| {
        let at = phase.from.as_secs_f64() + part * (phase.to - phase.from).as_secs_f64();
        let value = expected(format!("{variant}{}", phase.name))?;
        Some((at, value))
    };
    run.scenario.phases.iter().filter_map(of_phase).collect()
}

/// Means over `together` consecutive values, each at the time of its last value.
fn means(at: &[f64], values: &[f64], together: usize) -> Vec<(f64, f64)> {
    let of_some = |(at, values): (&[f64], &[f64])| {
        let there: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
        let mean = there.iter().sum::<f64>() / there.len() as f64;
        at.last().map(|at| (*at, mean))
    };
    at.chunks(together).zip(values.chunks(together)).filter_map(of_some).collect()
}

/// The thresholds in force on some host, each with the time for which it was.
fn thresholds(scenario: &Scenario) -> Vec<Level> {
    let in_force = |state: &State| -> Vec<f64> {
        let hosts = (0..scenario.hosts.len()).filter(|&h| scenario.hosts[h].present).map(HostId);
        let of_host = |id| {
            let control = state.host(id).control.resolve().ok()?.control;
            let law = control.law;
            // A threshold that is found while working is no constant level.
            let holds = control.auto.is_none()
                && !matches!(law.mode, Mode::Off | Mode::Observe | Mode::Static);
            holds.then(|| law.threshold.secs() * 1e3)
        };
        let mut all: Vec<f64> = hosts.filter_map(of_host).collect();
        all.sort_by(f64::total_cmp);
        all.dedup();
        all
    };
    let mut state = State::new(&scenario.hosts);
    // The thresholds in force, each with the time since when. `levels` has those that ended.
    let mut since: Vec<(f64, f64)> = in_force(&state).into_iter().map(|ms| (ms, 0.0)).collect();
    let mut levels = Vec::new();
    let level = |(value, from): (f64, f64), to: f64| Level {
        name: "threshold".to_owned(),
        value,
        within: Some((from, to)),
    };
    for event in &scenario.timeline {
        if !matches!(event.action, Action::SetControl(..)) || state.apply(&event.action).is_err() {
            continue;
        }
        let (at, now) = (event.at.as_secs_f64(), in_force(&state));
        let (kept, over): (Vec<_>, Vec<_>) =
            since.into_iter().partition(|(ms, _)| now.contains(ms));
        levels.extend(over.into_iter().filter(|o| o.1 < at).map(|over| level(over, at)));
        since = kept;
        let new: Vec<f64> =
            now.into_iter().filter(|ms| !since.iter().any(|(s, _)| s == ms)).collect();
        since.extend(new.into_iter().map(|ms| (ms, at)));
    }
    let end = scenario.duration.as_secs_f64();
    levels.extend(since.into_iter().map(|still| level(still, end)));
    levels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_of_what_is_there_and_of_nothing_there_is_none() {
        let at = [1.0, 2.0, 3.0, 4.0, 5.0];
        let values = [1.0, f64::NAN, f64::NAN, f64::NAN, 7.0];
        let means = means(&at, &values, 2);
        assert_eq!((means[0], means[2]), ((2.0, 1.0), (5.0, 7.0)));
        assert!(means[1].0 == 4.0 && means[1].1.is_nan());
    }
}
