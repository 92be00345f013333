//! The file in which changes are kept.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use parda_config::Document;

use super::overlay::Overlay;

/// First line of the file. A file without it is not the agent's, and is never written.
const MARK: &str = "# Settings of parda that were changed while it ran. They are in force over those of parda.toml.\n";

/// The state file at a path.
pub(super) struct StateFile<'a>(pub(super) &'a Path);

impl StateFile<'_> {
    /// What is kept. Nothing if there is no such file, or an empty one.
    pub(super) fn read(&self) -> Result<Overlay, String> {
        match std::fs::metadata(self.0) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Overlay::default()),
            _ => {}
        }
        let doc = Document::read_regular(self.0).map_err(|error| error.to_string())?;
        self.check_mark(doc.text())?;
        doc.parse().map_err(|error| error.to_string())
    }

    fn check_mark(&self, text: &str) -> Result<(), String> {
        if text.is_empty() || text.starts_with(MARK) {
            return Ok(());
        }
        Err(format!(
            "{}: state: is no state file of parda, and is not written: name a file that is not \
             there yet",
            self.0.display()
        ))
    }

    /// Puts another file in its place, whole: after a crash there is the one or the other.
    pub(super) fn write(&self, kept: &Overlay) -> Result<(), String> {
        let wrong = |error: std::io::Error| {
            format!("{}: the change cannot be kept: {error}", self.0.display())
        };
        match std::fs::metadata(self.0) {
            // A pipe would wait for somebody to write.
            Ok(_) => {
                let doc = Document::read_regular(self.0).map_err(|error| error.to_string())?;
                self.check_mark(doc.text())?;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(wrong(error)),
        }
        let text = toml::to_string(kept).map_err(|error| {
            format!("{}: the change cannot be written: {error}", self.0.display())
        })?;
        let new = self.beside();
        let written = write_through(&new, &format!("{MARK}{text}"));
        let placed = written.and_then(|()| std::fs::rename(&new, self.0));
        if let Err(error) = placed {
            let _ = std::fs::remove_file(&new);
            return Err(wrong(error));
        }
        // The name is on the disk when the folder is.
        let folder = self.0.parent().filter(|folder| !folder.as_os_str().is_empty());
        let synced =
            File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all());
        synced.map_err(wrong)
    }

    fn beside(&self) -> PathBuf {
        let mut name = self.0.as_os_str().to_owned();
        name.push(".new");
        PathBuf::from(name)
    }
}

fn write_through(path: &Path, text: &str) -> std::io::Result<()> {
    // What a crash left there, perhaps; never what a link leads to.
    let _ = std::fs::remove_file(path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
