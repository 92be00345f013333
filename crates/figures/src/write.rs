//! Files.

use std::io;
use std::path::{Path, PathBuf};

use parda_plot::PngError;

use crate::Picture;

/// Pictures could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// There is no folder for them.
    #[error("cannot make the folder {0}: {1}")]
    Folder(PathBuf, io::Error),
    /// One could not be written.
    #[error("cannot write {0}: {1}")]
    File(PathBuf, io::Error),
    /// One could not be drawn.
    #[error("{0}: {1}")]
    Png(String, PngError),
}

/// Makes a folder for pictures, if there is none.
///
/// # Errors
/// It cannot be made.
pub fn folder(dir: &Path) -> Result<(), WriteError> {
    std::fs::create_dir_all(dir).map_err(|e| WriteError::Folder(dir.to_owned(), e))
}

/// Writes pictures into a folder, each as SVG and as PNG, and tells of each.
///
/// # Errors
/// The first that cannot be written.
pub fn write(dir: &Path, pictures: &[Picture], wrote: impl Fn(&Path)) -> Result<(), WriteError> {
    for Picture { name, figure } in pictures {
        let png = figure.png().map_err(|e| WriteError::Png(name.clone(), e))?;
        for (ending, content) in [("svg", figure.svg().into_bytes()), ("png", png)] {
            let file = dir.join(format!("{name}.{ending}"));
            std::fs::write(&file, content).map_err(|e| WriteError::File(file.clone(), e))?;
            wrote(&file);
        }
    }
    Ok(())
}
