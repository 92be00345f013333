//! Failure of a request.

use std::io;

use parda_disk::Errno;

/// Failure of a request, as its client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) errno: Errno,
    pub(crate) message: String,
    /// Where in the export, if that is known.
    pub(crate) at: Option<u64>,
}

impl Failure {
    pub(crate) fn new(errno: Errno, message: impl Into<String>) -> Self {
        Self { errno, message: message.into(), at: None }
    }

    /// The same, at that offset of the export.
    pub(crate) fn at(self, offset: u64) -> Self {
        Self { at: Some(offset), ..self }
    }

    pub(crate) fn from_os(errno: i32) -> Self {
        let message = io::Error::from_raw_os_error(errno).to_string();
        Self::new(Errno::from_os(errno), message)
    }
}
