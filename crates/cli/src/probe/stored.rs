//! Probes that were stored.

use std::path::Path;

use parda_probe::Document;

use crate::Failure;

/// Reads what `--json` wrote.
pub(super) fn stored(file: &Path) -> Result<Document, Failure> {
    Document::read(file).map_err(|error| Failure::usage(error.to_string()))
}
