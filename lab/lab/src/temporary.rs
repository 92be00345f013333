//! Directories for temporary files.

use std::io;

use tempfile::TempDir;

/// Makes a directory whose name begins with `prefix`.
///
/// # Errors
/// It cannot be made. The message names TMPDIR, by which the user moves it.
pub(crate) fn directory(prefix: &str) -> io::Result<TempDir> {
    let root = std::env::temp_dir();
    tempfile::Builder::new().prefix(prefix).tempdir_in(&root).map_err(|error| {
        let root = root.display();
        let message = format!(
            "no directory for temporary files in {root}: {error}. TMPDIR names another place"
        );
        io::Error::new(error.kind(), message)
    })
}
