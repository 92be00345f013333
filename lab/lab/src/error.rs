//! Errors of a run in the laboratory.

use std::error::Error;

/// A part of a scenario that the laboratory cannot do.
#[derive(Debug, thiserror::Error)]
#[error("{what} is beyond the laboratory: parda-lab sim can do it")]
pub struct LabRefusal {
    /// Possible paths of the unsupported part in the document, such as `host.2.exchange.delay`: the first one present
    /// counts.
    pub paths: Vec<String>,
    /// Unsupported part of the scenario.
    pub what: String,
}

/// Reason why a run has no answer.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The user stopped the run.
    #[error("interrupted")]
    Interrupted,
    /// Something failed. Errors of processes name their logs, which are kept.
    #[error(transparent)]
    Failed(#[from] Box<dyn Error + Send + Sync>),
}

impl LabError {
    pub(crate) fn failed(why: impl Into<Box<dyn Error + Send + Sync>>) -> LabError {
        LabError::Failed(why.into())
    }
}
