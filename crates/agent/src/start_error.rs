//! Why a volume does not start.

use std::error::Error;

/// Reason why a volume does not start. Faults of its disks, listeners or exchange are none: those are tried again.
pub(crate) type StartError = Box<dyn Error + Send + Sync>;

pub(crate) fn no_thread(error: std::io::Error) -> String {
    format!("cannot start a thread: {error}")
}
