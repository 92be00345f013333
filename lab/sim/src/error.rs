//! Errors of a run in virtual time.

use std::fmt::Display;

use crate::check::Violation;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// Something in the scenario is not possible. Never for a scenario that was parsed.
    #[error("{0}")]
    Impossible(String),
    /// Something happened that must never happen: a fault of this program.
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
