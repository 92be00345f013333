//! Charts of a study: from its `[[plot]]` tables ([`parda_scenario::plot`]) and the measured values
//! to SVG files. Charts over time need runs that were made with
//! [`Keep::Plotted`](parda_sim::KeptRuns) or [`Keep::All`](parda_sim::KeptRuns).
//!
//! | file | subject |
//! | --- | --- |
//! | `time` | quantities of hosts, second by second |
//! | `points` | numbers of the answer, by variant, host or VM |

mod points;
mod time;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

pub use parda_plot::Figure;
use parda_scenario::Study;
use parda_scenario::expectation::{Bound, Expectation};
use parda_scenario::metric::Metric;
use parda_scenario::plot::ChartView;
use parda_sim::StudyOutcome;

/// A chart and the name of its file.
#[derive(Clone, Debug)]
pub struct Picture {
    /// File name without its extension.
    pub name: String,
    /// The chart, not yet rendered.
    pub figure: Figure,
}

/// The pictures that a study asks for. Charts over time are left out for runs whose series were not
/// kept. Expected values are drawn as hollow marks beside the measured ones; `reference` names
/// their source in the legend.
pub fn pictures(study: &Study, outcome: &StudyOutcome, reference: &str) -> Vec<Picture> {
    // Expected values of single metrics.
    let of_one = |e: &Expectation| match e.bound {
        Bound::Near { expected, .. } if e.of.is_none() => Some((e.what.shortened(), expected)),
        _ => None,
    };
    let expected: HashMap<Metric, f64> = study.expectations.iter().filter_map(of_one).collect();
    let expected = |metric: &Metric| expected.get(&metric.shortened()).copied();
    let mut pictures: Vec<Picture> = Vec::new();
    for plot in &study.plots {
        let mut figure = match &plot.view {
            ChartView::Time { variant, phase, panels } => {
                let mut runs = study.runs.iter().zip(&outcome.runs);
                let Some((run, of)) = runs.find(|(run, _)| run.variant == *variant) else {
                    continue;
                };
                let Some(series) = &of.series else { continue };
                time::figure(plot, phase.as_deref(), run, series, panels, expected)
            }
            ChartView::Points { label, draw, panels } => {
                points::figure(plot, label, *draw, panels, outcome, expected)
            }
        };
        let (seed, more) = (outcome.answer.seed, &figure.subtitle);
        figure.subtitle = format!("{}: virtual time, seed {seed}{more}", study.name);
        figure.reference = reference.to_owned();
        let dash = if plot.name.is_empty() { "" } else { "-" };
        let plain = |c: char| if c.is_alphanumeric() || "-_.,=".contains(c) { c } else { '_' };
        let name = format!("{}{dash}{}", study.name, plot.name);
        let mut name: String = name.chars().map(plain).collect();
        while pictures.iter().any(|other| other.name == name) {
            name.push('_');
        }
        pictures.push(Picture { name, figure });
    }
    pictures
}

/// A file or a folder that cannot be written, as text.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WriteError(String);

/// Creates a folder for pictures, if there is none.
///
/// # Errors
/// The folder cannot be created.
pub fn folder(dir: &Path) -> Result<(), WriteError> {
    std::fs::create_dir_all(dir)
        .map_err(|error| WriteError(format!("cannot make the folder {}: {error}", dir.display())))
}

/// Writes each picture into a folder as SVG, and returns the paths of the files.
///
/// # Errors
/// The first file that cannot be written.
pub fn write<'a>(
    dir: &Path,
    pictures: impl IntoIterator<Item = &'a Picture>,
) -> Result<Vec<PathBuf>, WriteError> {
    let file = |Picture { name, figure }: &Picture| {
        let file = dir.join(format!("{name}.svg"));
        let written = std::fs::write(&file, figure.svg());
        let wrong = |error| WriteError(format!("cannot write {}: {error}", file.display()));
        written.map_err(wrong).map(|()| file)
    };
    pictures.into_iter().map(file).collect()
}
