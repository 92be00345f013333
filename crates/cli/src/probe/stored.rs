//! Probes that were stored.

use std::path::Path;

use parda_probe::ProbeDocument;

use crate::Failure;

/// Reads what `--json` wrote.
pub(super) fn stored(file: &Path) -> Result<ProbeDocument, Failure> {
    ProbeDocument::read(file).map_err(|error| Failure::usage(error.to_string()))
}
