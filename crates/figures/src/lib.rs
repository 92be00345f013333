#![forbid(unsafe_code)]
//! From what a scenario wants drawn ([`parda_scenario::plot`]) and what was measured to pictures: [`pictures`]. Runs must have
//! been made with [`Keep::Plotted`](parda_sim::Keep) or [`Keep::All`](parda_sim::Keep) to be drawn over time.
//!
//! | file | subject |
//! | --- | --- |
//! | `time` | how it went, second by second |
//! | `points` | numbers of the answer beside one another |
//! | `expected` | what is expected of single numbers |
//! | `write` | files |

mod expected;
mod points;
mod time;
mod write;

pub use parda_plot::{Figure, PngError};
use parda_scenario::Study;
use parda_scenario::plot::View;
use parda_sim::StudyOutcome;
pub use write::{WriteError, folder, write};

use crate::expected::Expected;

/// A picture has no more lines than this: more become a band.
const MOST_LINES: usize = 12;

/// A picture, and what its files are called.
#[derive(Clone, Debug)]
pub struct Picture {
    /// Without its ending.
    pub name: String,
    /// The picture.
    pub figure: Figure,
}

/// What a study wants drawn. Runs whose series were not kept are not drawn over time. Expected values are hollow marks beside
/// what was measured; `reference` says whose they are.
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
