//! SVG and PNG files of charts.

use std::io;
use std::path::{Path, PathBuf};

use parda_plot::PngError;

use super::Picture;

/// Reason why pictures could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The folder cannot be created.
    #[error("cannot make the folder {0}: {1}")]
    Folder(PathBuf, io::Error),
    /// A file cannot be written.
    #[error("cannot write {0}: {1}")]
    File(PathBuf, io::Error),
    /// A picture cannot be rendered as PNG.
    #[error("{0}: {1}")]
    Png(String, PngError),
}

/// Creates a folder for pictures, if there is none.
///
/// # Errors
/// The folder cannot be created.
pub fn folder(dir: &Path) -> Result<(), WriteError> {
    std::fs::create_dir_all(dir).map_err(|e| WriteError::Folder(dir.to_owned(), e))
}

/// Writes each picture into a folder, as SVG and as PNG. `wrote` is called with each file's path.
///
/// # Errors
/// The first picture that cannot be rendered or written.
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
