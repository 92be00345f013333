//! Scenario files, and the answers of their runs.

use std::path::Path;

use indicatif::ProgressBar;
use parda_config::Document;
use parda_report::table::{missed, table};
use parda_scenario::RunAnswer;
use parda_terminal::Failure;
use parda_terminal::output::{bar, colour, json, styled};

/// Writes the answer of a run, as JSON to `to` or as a table to standard output. Fails if an expectation failed.
pub(crate) fn print(answer: &RunAnswer, to: Option<&Path>) -> Result<(), Failure> {
    match to {
        Some(out) => {
            json(out, answer)?;
            // Whoever looks at the terminal is told as well.
            eprint!("{}", missed(answer, false));
        }
        None => styled(&table(answer, colour())).map(drop)?,
    }
    if answer.ok() { Ok(()) } else { Err(Failure::silent()) }
}

/// A bar of a run's seconds.
pub(crate) fn seconds(length: u64) -> ProgressBar {
    bar("{bar:30} {pos}/{len} s  {msg}", length)
}

/// Refuses an agent's configuration in the place of a scenario.
pub(crate) fn is_no_configuration(document: &Document) -> Result<(), Failure> {
    if !(document.has("host") && document.has("volume")) {
        return Ok(());
    }
    let name = document.name();
    Err(Failure::usage(format!(
        "{name}: is an agent's configuration and no scenario: parda check {name} checks it, parda serve -c {name} \
         serves by it"
    )))
}
