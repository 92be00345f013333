//! The two files in which the agent keeps settings over restarts: live changes, and the policy.

use std::io::ErrorKind;
use std::path::Path;

use parda_config::{Document, replace};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// First line of a state file. A file without it is not the agent's, and is never written.
const CHANGES: &str = "# Settings of parda that were changed while it ran. They are in force over those of parda.toml.\n";

/// First line of a file with the policy, as above.
const POLICY: &str =
    "# The policy of parda that was last in force here. It counts until etcd has been read.\n";

/// Last line of a file with the policy. A file without it is not complete.
const END: &str = "# end\n";

/// A file of one of the two kinds, at a path.
pub(crate) struct StateFile<'a> {
    path: &'a Path,
    mark: &'static str,
    end: &'static str,
}

impl<'a> StateFile<'a> {
    /// The state file, with live changes.
    pub(super) fn changes(path: &'a Path) -> StateFile<'a> {
        StateFile { path, mark: CHANGES, end: "" }
    }

    /// A file with the policy that was last in force.
    pub(crate) fn policy(path: &'a Path) -> StateFile<'a> {
        StateFile { path, mark: POLICY, end: END }
    }

    /// The contents. The default if the file does not exist or is empty.
    pub(super) fn read<T: DeserializeOwned + Default>(&self) -> Result<T, String> {
        let Some(doc) = self.document()? else { return Ok(T::default()) };
        if !doc.text().is_empty() && !doc.text().ends_with(self.end) {
            return Err(format!("{}: has lost its end", self.path.display()));
        }
        doc.parse().map_err(|error| error.to_string())
    }

    /// The file as it is; none if it does not exist. A pipe is no such file: to open it would wait for a writer.
    fn document(&self) -> Result<Option<Document>, String> {
        let is_missing = |error: std::io::Error| error.kind() == ErrorKind::NotFound;
        if std::fs::metadata(self.path).is_err_and(is_missing) {
            return Ok(None);
        }
        let doc = Document::read_regular(self.path).map_err(|error| error.to_string())?;
        if doc.text().is_empty() || doc.text().starts_with(self.mark) {
            return Ok(Some(doc));
        }
        Err(format!(
            "{}: state: is no state file of parda, and is not written: name a file that is not \
             there yet",
            self.path.display()
        ))
    }

    /// Replaces the file as a whole: after a crash it is the old one or the new one.
    pub(crate) fn write<T: Serialize>(&self, kept: &T) -> Result<(), String> {
        self.document()?;
        let text = toml::to_string(kept).map_err(|error| {
            format!("{}: the change cannot be written: {error}", self.path.display())
        })?;
        let text = format!("{}{text}{}", self.mark, self.end);
        replace(self.path, &text, 0o600, None)
            .map_err(|error| format!("{}: the change cannot be kept: {error}", self.path.display()))
    }
}
