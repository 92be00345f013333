//! A phase of a run.

use std::time::Duration;

/// A stretch of the run over which values are measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Name, unique among phases.
    pub name: String,
    /// Beginning, from the beginning of the run.
    pub from: Duration,
    /// End, from the beginning of the run.
    pub to: Duration,
}
