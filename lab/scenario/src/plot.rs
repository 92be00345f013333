//! Charts of a study: the `[[plot]]` tables, and the charts without any.

mod keys;

use parda_config::{Document, Error};

use self::keys::Over;
pub(crate) use self::keys::PlotKeys;
pub use self::keys::{Draw, OVER_TIME};
use crate::check::plain_name;
use crate::metric::{Metric, Pattern, list};
use crate::run::{Run, RunPhase};
use crate::variant_name::phase_name;

/// One chart of a study.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// Name among the study's plots, and part of the file name. May be empty.
    pub name: String,
    /// Title of the chart, one line.
    pub title: String,
    /// Content of the chart.
    pub view: ChartView,
}

/// Content of a chart.
#[derive(Clone, Debug, PartialEq)]
pub enum ChartView {
    /// Quantities of the hosts of one run, second by second.
    Time {
        /// Variant of the run, if there are any.
        variant: Option<String>,
        /// The phase to show; the whole run if absent.
        phase: Option<String>,
        /// Quantities of [`OVER_TIME`], one panel each, from top to bottom.
        panels: Vec<String>,
    },
    /// Numbers of the answer.
    Points {
        /// Label of the horizontal axis.
        label: String,
        /// Lines, marks or bars.
        draw: Draw,
        /// Panels from top to bottom.
        panels: Vec<PlotPanel>,
    },
}

/// A panel: numbers of one quantity.
#[derive(Clone, Debug, PartialEq)]
pub struct PlotPanel {
    /// Label of the quantity, for people.
    pub label: String,
    /// Unit of the quantity; empty if it has none.
    pub unit: &'static str,
    /// The lines, or the bars of one colour.
    pub lines: Vec<PlotLine>,
}

/// A named series of numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct PlotLine {
    /// Name in the legend; may be empty.
    pub name: String,
    /// Position on the axis as text, and the metric there.
    pub points: Vec<(String, Metric)>,
}

impl Plot {
    /// Keeps the parts for these variants, whose phases are `known`. `false` if nothing is left.
    pub(crate) fn pick(&mut self, known: &[RunPhase<'_>], variants: &[String]) -> bool {
        match &mut self.view {
            ChartView::Time { variant, .. } => {
                variant.as_ref().is_none_or(|variant| variants.contains(variant))
            }
            ChartView::Points { panels, .. } => {
                for panel in &mut *panels {
                    for line in &mut panel.lines {
                        line.points.retain(|(_, metric)| metric.is_of_one_of(known));
                    }
                    panel.lines.retain(|line| !line.points.is_empty());
                }
                panels.iter().any(|panel| !panel.lines.is_empty())
            }
        }
    }
}

/// The plots of a study with these runs. `swept` has the keys of its sweeps. Plots over time are
/// left out for sweeps from the command line, as there would be too many.
pub(crate) fn plots(
    document: &Document,
    written: &[PlotKeys],
    runs: &[Run],
    title: &str,
    swept: &[&str],
    sweep_of_ours: bool,
) -> Result<Vec<Plot>, Error> {
    let variants = runs.iter().any(|run| run.variant.is_some());
    let default = [PlotKeys::default_of(variants)];
    let none = !written.iter().any(|w| !sweep_of_ours || w.over != Over::Time);
    let mut plots = Vec::new();
    for (i, plot) in if none { &default } else { written }.iter().enumerate() {
        let checker = Checker { document, plot, runs, swept, path: format!("plot.{i}"), title };
        checker.check(i, if none { 1 } else { written.len() }, sweep_of_ours, &mut plots)?;
    }
    Ok(plots)
}

struct Checker<'a> {
    document: &'a Document,
    plot: &'a PlotKeys,
    runs: &'a [Run],
    swept: &'a [&'a str],
    path: String,
    title: &'a str,
}

impl Checker<'_> {
    fn error(&self, key: &str, message: impl Into<String>) -> Error {
        self.document.error(&format!("{}.{key}", self.path), message)
    }

    fn check(
        &self,
        place: usize,
        of: usize,
        sweep_of_ours: bool,
        plots: &mut Vec<Plot>,
    ) -> Result<(), Error> {
        let plot = self.plot;
        self.fitting()?;
        let name = match self.name(plots)? {
            Some(name) => name,
            None if of > 1 => (place + 1).to_string(),
            None => String::new(),
        };
        let title = plot.title.clone().unwrap_or_else(|| self.title.to_owned());
        let runs = self.chosen()?;
        self.phases()?;
        match plot.over {
            Over::Time if sweep_of_ours => {}
            Over::Time => plots.extend(self.over_time(&name, &title, &runs)?),
            Over::Variants | Over::Hosts | Over::Vms => {
                plots.push(Plot { name, title, view: self.points(&runs)? });
            }
        }
        Ok(())
    }

    /// Refuses keys that mean nothing for this kind of plot.
    fn fitting(&self) -> Result<(), Error> {
        let plot = self.plot;
        let given = [
            ("variant", plot.variant.is_some(), plot.over != Over::Variants),
            ("x", plot.x.is_some(), plot.over == Over::Variants),
            ("x_label", plot.x_label.is_some(), plot.over != Over::Time),
            ("draw", plot.draw.is_some(), plot.over != Over::Time),
        ];
        if let Some((key, ..)) = given.iter().find(|(_, given, makes_sense)| *given && !makes_sense)
        {
            return Err(self.error(key, "means nothing for a plot over this"));
        }
        if plot.panels.as_ref().is_some_and(Vec::is_empty) {
            return Err(self.error("panels", "must name at least one quantity"));
        }
        Ok(())
    }

    /// The name, if the file gives one.
    fn name(&self, plots: &[Plot]) -> Result<Option<String>, Error> {
        let Some(name) = &self.plot.name else { return Ok(None) };
        plain_name(name).map_err(|says| self.error("name", says))?;
        if plots.iter().any(|other| other.name == *name) {
            return Err(self.error("name", "there is another plot of this name"));
        }
        Ok(Some(name.clone()))
    }

    /// A plot over time for each run.
    fn over_time(&self, name: &str, title: &str, runs: &[&Run]) -> Result<Vec<Plot>, Error> {
        let plot = self.plot;
        for (p, panel) in plot.panels().iter().enumerate() {
            if !OVER_TIME.contains(&panel.as_str()) {
                let says = format!("is not kept over time; there is {}", OVER_TIME.join(", "));
                return Err(self.error(&format!("panels.{p}"), says));
            }
        }
        let plot_of = |run: &&Run| {
            let of_many = |text: &str, sep: &str| match &run.variant {
                Some(variant) if text.is_empty() => variant.clone(),
                Some(variant) if runs.len() > 1 => format!("{text}{sep}{variant}"),
                _ => text.to_owned(),
            };
            let view = ChartView::Time {
                variant: run.variant.clone(),
                phase: plot.phase.clone(),
                panels: plot.panels(),
            };
            Plot { name: of_many(name, "-"), title: of_many(title, ": "), view }
        };
        Ok(runs.iter().map(plot_of).collect())
    }

    /// The runs to draw.
    fn chosen(&self) -> Result<Vec<&Run>, Error> {
        let Some(variant) = &self.plot.variant else { return Ok(self.runs.iter().collect()) };
        let runs: Vec<&Run> = self.runs.iter().filter(|run| run.is(variant)).collect();
        if runs.is_empty() {
            let known = list(self.runs.iter().filter_map(|run| run.variant.as_deref()));
            let says = match known.as_str() {
                "" => "there are no variants".to_owned(),
                known => format!("there is no variant of this name; there is {known}"),
            };
            return Err(self.error("variant", says));
        }
        Ok(runs)
    }

    /// Names in the scenario of the phases to draw.
    fn phases(&self) -> Result<Vec<&str>, Error> {
        // Phases are the same in all variants.
        let all = self.runs.first().map_or(&[][..], |run| run.scenario.phases.as_slice());
        let all = all.iter().map(|phase| phase.name.as_str());
        match &self.plot.phase {
            None => Ok(all.collect()),
            Some(phase) if all.clone().any(|p| p == phase) => Ok(vec![phase]),
            Some(_) => {
                let says = format!("there is no phase of this name; there is {}", list(all));
                Err(self.error("phase", says))
            }
        }
    }

    fn points(&self, runs: &[&Run]) -> Result<ChartView, Error> {
        let phases = self.phases()?;
        let x = match (self.plot.over, &self.plot.x) {
            (Over::Hosts, _) => Axis::Host,
            (Over::Vms, _) => Axis::Vm,
            (_, None) => match self.swept.first() {
                Some(key) => Axis::Key((*key).to_owned()),
                None => Axis::Variant,
            },
            (_, Some(x)) if x == "variant" => Axis::Variant,
            (_, Some(x)) if x == "hosts" => Axis::Hosts,
            (_, Some(key)) => Axis::Key(key.clone()),
        };
        let mut panels = Vec::new();
        for (p, path) in self.plot.panels().iter().enumerate() {
            panels.push(self.panel(&format!("panels.{p}"), path, runs, &phases, &x)?);
        }
        let bars = matches!(x, Axis::Variant | Axis::Host | Axis::Vm);
        Ok(ChartView::Points {
            label: self.plot.x_label.clone().unwrap_or_else(|| x.label()),
            draw: self.plot.draw.unwrap_or(if bars { Draw::Bars } else { Draw::Lines }),
            panels,
        })
    }

    fn panel(
        &self,
        key: &str,
        path: &str,
        runs: &[&Run],
        phases: &[&str],
        x: &Axis,
    ) -> Result<PlotPanel, Error> {
        let pattern = x.pattern(path).map_err(|e| self.error(key, e.to_string()))?;
        let mut lines: Vec<PlotLine> = Vec::new();
        let mut label = (String::new(), "");
        for run in runs {
            let (at, rest) = match x.of(run) {
                Some(of) => of,
                None => return Err(self.error("x", x.missing(run, self.runs))),
            };
            let known = crate::run::phases(std::slice::from_ref(*run));
            for phase in phases {
                for name in &pattern.each(run) {
                    let phase_name = phase_name(run.variant.as_deref(), phase);
                    let metric = pattern
                        .metric(phase_name, name, &known)
                        .map_err(|e| self.error(key, e.to_string()))?;
                    label = metric.label();
                    let over_names = x.is_over_names();
                    let parts = [
                        if over_names { "" } else { *name },
                        &rest,
                        if phases.len() > 1 { *phase } else { "" },
                    ];
                    let parts: Vec<&str> = parts.into_iter().filter(|p| !p.is_empty()).collect();
                    let point = (if over_names { (*name).to_owned() } else { at.clone() }, metric);
                    let name = parts.join(", ");
                    match lines.iter_mut().find(|line| line.name == name) {
                        Some(line) => line.points.push(point),
                        None => lines.push(PlotLine { name, points: vec![point] }),
                    }
                }
            }
        }
        let whose = if x.is_over_names() { String::new() } else { pattern.whose() };
        Ok(PlotPanel { label: format!("{}{whose}", label.0), unit: label.1, lines })
    }
}

/// The horizontal axis of a chart.
enum Axis {
    Variant,
    /// Number of hosts that are present.
    Hosts,
    /// Value of a key that variants set.
    Key(String),
    /// Name of the host.
    Host,
    /// Name of the VM.
    Vm,
}

impl Axis {
    /// Whether hosts or VMs lie along the axis.
    fn is_over_names(&self) -> bool {
        matches!(self, Axis::Host | Axis::Vm)
    }

    /// The pattern of a panel's metrics.
    fn pattern(&self, path: &str) -> Result<Pattern, String> {
        match self {
            Axis::Host => Pattern::parse(&format!("host/*/{path}")),
            Axis::Vm => Pattern::parse(&format!("vm/*/{path}")),
            _ => Pattern::parse(path),
        }
    }

    fn label(&self) -> String {
        match self {
            Axis::Variant => "variant".to_owned(),
            Axis::Hosts => "hosts".to_owned(),
            Axis::Key(key) => {
                let key = key.rsplit('.').next().unwrap_or(key);
                // Values of other keys contain their units.
                let unit = match key {
                    "outstanding" | "burst" => ", IOs",
                    "rate" => ", IOs/s",
                    "read" | "random" => ", %",
                    "window_min" | "window_max" | "window_start" => ", slots",
                    _ => "",
                };
                format!("{}{unit}", key.replace('_', " "))
            }
            Axis::Host => "host".to_owned(),
            Axis::Vm => "VM".to_owned(),
        }
    }

    /// Position of a run on the axis, and what else distinguishes the run. `None` if the run does not
    /// set the key.
    fn of(&self, run: &Run) -> Option<(String, String)> {
        let variant = run.variant.clone().unwrap_or_default();
        let without = |keep: &dyn Fn(&str) -> bool| -> String {
            variant.split(',').filter(|part| keep(part)).collect::<Vec<_>>().join(", ")
        };
        match self {
            Axis::Variant => Some((variant, String::new())),
            Axis::Hosts => {
                let hosts = run.scenario.hosts.iter().filter(|host| host.present).count();
                Some((hosts.to_string(), without(&|part| part.contains('='))))
            }
            Axis::Key(key) => {
                let (_, value) = run.settings.iter().rev().find(|(k, _)| k == key)?;
                let own = format!("{}={value}", key.rsplit('.').next().unwrap_or(key));
                Some((value.clone(), without(&|part| part != own)))
            }
            Axis::Host | Axis::Vm => Some((String::new(), variant)),
        }
    }

    fn missing(&self, run: &Run, runs: &[Run]) -> String {
        let keys = runs.iter().flat_map(|run| &run.settings).map(|(key, _)| key.as_str());
        let keys = list(keys.chain(["variant", "hosts"]));
        let variant =
            run.variant.as_ref().map_or("the file".to_owned(), |v| format!("variant {v}"));
        format!("must be what every variant sets, which {variant} does not; there is {keys}")
    }
}
