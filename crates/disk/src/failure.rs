//! Failure of a request.

use std::io;

use crate::errno::Errno;

/// Failure of a request, as its client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Error that protocols have a number for.
    pub errno: Errno,
    /// The reason, for people; may be empty.
    pub message: String,
    /// Offset on the disk, in bytes, if it is known.
    pub at: Option<u64>,
    /// The fault of whoever asked, and not of the disk: memory that is gone, or an operation that the disk does not have.
    pub asker: bool,
}

impl Failure {
    /// A failure at a place that is not known.
    pub fn new(errno: Errno, message: impl Into<String>) -> Self {
        Self { errno, message: message.into(), at: None, asker: errno == Errno::NotSup }
    }

    /// The same, at that offset of the disk.
    #[must_use]
    pub fn at(self, offset: u64) -> Self {
        Self { at: Some(offset), ..self }
    }

    /// The failure of a system call with this `errno`.
    #[must_use]
    pub fn from_os(errno: i32) -> Self {
        /// The memory of a request is not there: a guest has taken it away.
        const EFAULT: i32 = 14;
        let message = io::Error::from_raw_os_error(errno).to_string();
        let failure = Self::new(Errno::from_os(errno), message);
        Self { asker: failure.asker || errno == EFAULT, ..failure }
    }
}
