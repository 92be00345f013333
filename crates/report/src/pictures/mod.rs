//! Charts of a study: from its `[[plot]]` tables ([`parda_scenario::plot`]) and the measured values
//! to [`pictures`]. Charts over time need runs that were made with
//! [`Keep::Plotted`](parda_sim::Keep) or [`Keep::All`](parda_sim::Keep).
//!
//! | file | subject |
//! | --- | --- |
//! | `time` | quantities of hosts, second by second |
//! | `points` | numbers of the answer, by variant, host or VM |
//! | `expected` | expected values of single metrics |
//! | `write` | the SVG and PNG files |

mod expected;
mod points;
mod time;
mod write;

pub use parda_plot::{Figure, PngError};
use parda_scenario::Study;
use parda_scenario::plot::View;
use parda_sim::StudyOutcome;
pub use write::{WriteError, folder, write};

use self::expected::Expected;

/// A chart and the name of its files.
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
    let expected = Expected::new(study);
    let mut pictures: Vec<Picture> = Vec::new();
    for plot in &study.plots {
        let figure = match &plot.view {
            View::Time { variant, phase, panels } => {
                let run =
                    study.runs.iter().zip(&outcome.runs).find(|(run, _)| run.variant == *variant);
                let Some((run, of)) = run else { continue };
                let Some(series) = &of.series else { continue };
                time::figure(plot, phase.as_deref(), run, series, panels, &expected)
            }
            View::Points { label, draw, panels } => {
                points::figure(plot, label, *draw, panels, outcome, &expected)
            }
        };
        let seed = outcome.answer.seed;
        let how = format!("{}: virtual time, seed {seed}{}", study.name, figure.subtitle);
        let mut figure = figure.subtitle(how);
        figure.reference = reference.to_owned();
        let dash = if plot.name.is_empty() { "" } else { "-" };
        let plain = |c: char| if c.is_alphanumeric() || "-_.,=".contains(c) { c } else { '_' };
        let mut name: String =
            format!("{}{dash}{}", study.name, plot.name).chars().map(plain).collect();
        while pictures.iter().any(|other| other.name == name) {
            name.push('_');
        }
        pictures.push(Picture { name, figure });
    }
    pictures
}
