//! The files that commands are given, checked to be configurations.

use std::io::ErrorKind;
use std::path::Path;

use parda_agent::config::Config;
use parda_config::Document;
use parda_terminal::Failure;

/// The agent's configuration, for a command that queries the agent. Paths of disks are not checked, as their file systems may not
/// answer. Without a file, the error explains how to name one.
pub(crate) fn configuration(path: &Path) -> Result<Config, Failure> {
    is_there(path)?;
    let document = Document::read(path)?;
    is_no_scenario(&document)?;
    Ok(Config::settings(&document)?)
}

/// Checks that a file is there that -c names, or its default.
pub(crate) fn is_there(path: &Path) -> Result<(), Failure> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Err(Failure::usage(format!(
            "{}: there is no such file: name the agent's configuration, or write one \
             (/usr/share/doc/parda/docs/configuration.md)",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// Refuses a scenario in the place of an agent's configuration.
pub(crate) fn is_no_scenario(document: &Document) -> Result<(), Failure> {
    if !(document.has("array") && document.has("duration")) {
        return Ok(());
    }
    let name = document.name();
    Err(Failure::usage(format!(
        "{name}: is a scenario and no agent's configuration: parda-lab sim {name} runs it"
    )))
}
