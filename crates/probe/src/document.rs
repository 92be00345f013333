//! The document of a probe, as `parda probe --json` writes it.

use std::path::Path;

use parda_input::Pipe;
use serde::{Deserialize, Serialize};

use crate::findings::Findings;
use crate::point::Point;

/// The version of the document that this code writes, and the only one that it reads.
pub const FORMAT: u32 = 2;

/// Most bytes of a document.
const MOST: u64 = 64 << 20;

/// The document of a probe: all points, and their findings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeDocument {
    /// Version of the document, [`FORMAT`].
    pub format: u32,
    /// Time of its beginning, RFC 3339.
    pub begun: String,
    /// Length in seconds, in virtual time for a model.
    pub took_s: f64,
    /// Target that was probed.
    pub target: TargetInfo,
    /// The seed that offsets and mixes follow from.
    pub seed: u64,
    /// Reason of its end.
    pub end: ProbeEnd,
    /// Measured loads, in the order in which they were run.
    pub points: Vec<Point>,
    /// Findings of all points together.
    pub findings: Findings,
}

/// Reason of a probe's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProbeEnd {
    /// All loads were run.
    Complete,
    /// Its time was up.
    Time,
    /// The probe was asked to stop.
    Aborted,
    /// The target failed during the probe.
    Failed,
}

/// Name, kind and size of a target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetInfo {
    /// Name as on the command line: a path, a URI, `model:drive-7200`.
    pub name: String,
    /// Kind of the target.
    pub kind: TargetKind,
    /// Its size, in bytes.
    pub bytes: u64,
    /// Whether it was written to.
    pub writes: bool,
    /// Further facts as text: model, scheduler, queue depth, file system below.
    pub about: Vec<String>,
}

/// Kind of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetKind {
    /// A file.
    File,
    /// A block device.
    Device,
    /// An NBD export.
    Nbd,
    /// The array model, in virtual time.
    Model,
}

/// Reason why a document cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// There is no such file, or it cannot be read.
    #[error("{path}: {error}")]
    Read {
        /// Path of the file.
        path: String,
        /// Error of the system.
        error: std::io::Error,
    },
    /// The file is not a document of `parda probe --json`.
    #[error("{path}:{}:{}: not a probe: {}", .error.line(), .error.column(), reason(.error))]
    Parse {
        /// Path of the file.
        path: String,
        /// Fault of the JSON, with line and column.
        error: serde_json::Error,
    },
    /// Another version of parda wrote it.
    #[error("{path}: a probe of format {found}; this parda reads format {FORMAT}")]
    Format {
        /// Path of the file.
        path: String,
        /// Format number of the document.
        found: u32,
    },
}

/// Text of the error, without its place.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(reason, _)| reason.to_owned())
}

impl ProbeDocument {
    /// Reads one from a file.
    ///
    /// # Errors
    /// It is not there, or not a probe, or one of another version.
    pub fn read(path: &Path) -> Result<ProbeDocument, DocumentError> {
        let text = parda_input::read_text(path, MOST, Pipe::Taken).map_err(|fault| {
            DocumentError::Read { path: path.display().to_string(), error: fault.into() }
        })?;
        ProbeDocument::parse(path, &text)
    }

    /// Reads one from the text of a file, which errors name.
    ///
    /// # Errors
    /// It is not a probe, or one of another version.
    pub fn parse(path: &Path, text: &str) -> Result<ProbeDocument, DocumentError> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let name = path.display().to_string();
        let parse = |error| DocumentError::Parse { path: name.clone(), error };
        let Version { format } = serde_json::from_str(text).map_err(parse)?;
        if format != FORMAT {
            return Err(DocumentError::Format { path: name, found: format });
        }
        serde_json::from_str(text).map_err(parse)
    }

    /// The document as JSON, with a line's end.
    #[must_use]
    pub fn json(&self) -> String {
        // Plain data: all keys of maps are text, and NaN and infinity are written as null.
        serde_json::to_string_pretty(self).map(|text| text + "\n").unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::target;

    fn document() -> ProbeDocument {
        ProbeDocument {
            format: FORMAT,
            begun: "2026-01-01T00:00:00Z".to_owned(),
            took_s: 1.5,
            target: target(),
            seed: 1,
            end: ProbeEnd::Complete,
            points: Vec::new(),
            findings: Findings::default(),
        }
    }

    fn read(text: &str) -> Result<ProbeDocument, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let name = file.path().display().to_string();
        ProbeDocument::read(file.path()).map_err(|e| e.to_string().replace(&name, "FILE"))
    }

    #[test]
    fn what_is_written_is_read_again() {
        assert_eq!(read(&document().json()), Ok(document()));
    }

    #[test]
    fn what_is_no_probe_is_refused_with_its_place() {
        let other = ProbeDocument { format: 9, ..document() }.json();
        assert_eq!(
            read(&other).unwrap_err(),
            "FILE: a probe of format 9; this parda reads format 2"
        );
        assert_eq!(
            read("{\n \"format\": x").unwrap_err(),
            "FILE:2:12: not a probe: expected value"
        );
        assert!(
            read("{\"format\": 2}").unwrap_err().starts_with("FILE:1:13: not a probe: missing")
        );
    }
}
