//! Scenarios of the papers' figures and tables.

use std::io;
use std::path::{Path, PathBuf};

use parda_config::{Document, Error};
use parda_scenario::Study;

/// File names and contents of `scenarios/papers`, sorted by name.
const BUILT_IN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/papers.rs"));

/// Reason why no scenarios can be run.
#[derive(Debug, thiserror::Error)]
pub enum PapersError {
    /// The folder cannot be read.
    #[error("{}: {source}", path.display())]
    Folder {
        /// Path of the folder.
        path: PathBuf,
        /// The failure to list it.
        source: io::Error,
    },
    /// The folder contains no scenario.
    #[error("{}: there is no scenario (*.toml) in it", path.display())]
    Empty {
        /// Path of the folder.
        path: PathBuf,
    },
    /// A scenario is invalid.
    #[error(transparent)]
    Scenario(#[from] Error),
}

/// The scenarios that are built into this program, sorted by file name.
///
/// # Errors
/// A scenario is invalid. Tests ensure that none is.
pub fn built_in() -> Result<Vec<Study>, PapersError> {
    let parse = |(name, text): &(&str, &str)| {
        Study::parse(&Document::new(format!("scenarios/papers/{name}"), *text))
    };
    Ok(BUILT_IN.iter().map(parse).collect::<Result<_, _>>()?)
}

/// The scenarios in a folder, sorted by file name.
///
/// # Errors
/// The folder cannot be read or contains no scenario, or a scenario is invalid.
pub fn in_folder(folder: &Path) -> Result<Vec<Study>, PapersError> {
    let unreadable = |source| PapersError::Folder { path: folder.to_owned(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        files.push(entry.map_err(unreadable)?.path());
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    if files.is_empty() {
        return Err(PapersError::Empty { path: folder.to_owned() });
    }
    let parse = |file: &PathBuf| Study::parse(&Document::read(file)?);
    Ok(files.iter().map(parse).collect::<Result<_, Error>>()?)
}
