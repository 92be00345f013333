//! The scenarios of the papers' figures.

use std::io;
use std::path::{Path, PathBuf};

use parda_config::{Document, Error};
use parda_scenario::Study;

/// File names and contents of `scenarios/papers`, by name.
const BUILT_IN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/papers.rs"));

/// Why there are no scenarios.
#[derive(Debug, thiserror::Error)]
pub enum PapersError {
    /// The folder cannot be read.
    #[error("{}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It has no scenario in it.
    #[error("{}: there is no scenario (*.toml) in it", path.display())]
    Empty {
        /// The folder.
        path: PathBuf,
    },
    /// One of them makes no sense.
    #[error(transparent)]
    Scenario(#[from] Error),
}

/// Those that are built into this program.
///
/// # Errors
/// None, as the tests see to.
pub fn built_in() -> Result<Vec<Study>, PapersError> {
    let parse = |(name, text): &(&str, &str)| {
        Study::parse(&Document::new(format!("scenarios/papers/{name}"), *text))
    };
    Ok(BUILT_IN.iter().map(parse).collect::<Result<_, _>>()?)
}

/// Those in a folder, by name.
///
/// # Errors
/// The folder cannot be read or has none, or one of them makes no sense.
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
