//! Errors of a run in virtual time.

use std::fmt::Display;

use crate::check::Violation;

/// Reason for a run without an answer.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// An impossible part of the scenario. Never for a scenario that was parsed.
    #[error("{0}")]
    Impossible(String),
    /// A broken invariant: a fault of this program.
    #[error(transparent)]
    Violation(#[from] Violation),
}

impl SimError {
    pub(crate) fn impossible(error: impl Display) -> SimError {
        SimError::Impossible(error.to_string())
    }

    pub(crate) fn of_host(host: &str, error: impl Display) -> SimError {
        SimError::Impossible(format!("host {host}: {error}"))
    }
}
