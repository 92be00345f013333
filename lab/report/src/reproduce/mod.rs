//! Figures and tables of the source papers beside the simulator's results. One table has the scenarios of
//! `scenarios/papers` and their expectations. `docs/reproduction.md` shows a run.
//!
//! | file | subject |
//! | --- | --- |
//! | `value` | one value: the paper's and ours |
//! | `page` | all values as a text table |

mod page;
mod value;

use std::path::{Path, PathBuf};

pub use page::{missed, table};
use parda_config::{Document, Error};
use parda_scenario::expectation::Tally;
use parda_scenario::{RunAnswer, Study};
pub use value::Value;

macro_rules! papers {
    ($($name:literal)*) => {
        &[$((
            concat!("scenarios/papers/", $name, ".toml"),
            include_str!(concat!("../../../../scenarios/papers/", $name, ".toml")),
        )),*]
    };
}

/// File names and contents of `scenarios/papers`, sorted by name.
const BUILT_IN: &[(&str, &str)] = papers!(
    "elling12" "fast09-fig3" "fast09-fig4" "fast09-fig6" "fast09-fig7" "fast09-fig9"
    "fast09-table2" "fast09-table4" "osdi10-come-and-go" "osdi10-fig1" "osdi10-tiers" "speed08-fig2"
    "speed08-fig3ab" "speed08-fig3cd"
);

/// The scenarios that are built into this program, sorted by file name.
///
/// # Errors
/// A scenario is invalid. Tests ensure that none is.
pub fn built_in() -> Result<Vec<Study>, Error> {
    let parse = |(name, text): &(&str, &str)| Study::parse(&Document::new(*name, *text));
    BUILT_IN.iter().map(parse).collect()
}

/// The scenarios in a folder, sorted by file name.
///
/// # Errors
/// The folder cannot be read or contains no scenario, or a scenario is invalid.
pub fn in_folder(folder: &Path) -> Result<Vec<Study>, Error> {
    let entries = std::fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let wrong = |message: String| {
        let file = folder.display().to_string();
        Error { file, place: None, value: None, message }
    };
    let entries = entries.map_err(|error| wrong(error.to_string()))?;
    let mut files: Vec<PathBuf> = entries.iter().map(std::fs::DirEntry::path).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    if files.is_empty() {
        return Err(wrong("there is no scenario (*.toml) in it".to_owned()));
    }
    let parse = |file: &PathBuf| Study::parse(&Document::read(file)?);
    files.iter().map(parse).collect()
}

/// Every value of the papers beside ours, in the order of the answers.
pub fn values(answers: &[RunAnswer]) -> impl Iterator<Item = Value> {
    let of = |answer: &RunAnswer| -> Vec<Value> {
        answer.expectations.iter().map(|it| Value::new(&answer.scenario, it)).collect()
    };
    answers.iter().flat_map(of)
}

/// Numbers of values within their tolerance, beyond it, and exempt.
#[must_use]
pub fn tally(answers: &[RunAnswer]) -> Tally {
    Tally::of(answers.iter().flat_map(|answer| &answer.expectations))
}
