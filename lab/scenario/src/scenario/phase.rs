//! A phase of a run.

use std::time::Duration;

use serde::Deserialize;

/// A stretch of the run over which values are measured.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// Name, unique among phases.
    pub name: String,
    /// Beginning, from the beginning of the run.
    #[serde(with = "parda_config::quantity")]
    pub from: Duration,
    /// End, from the beginning of the run.
    #[serde(with = "parda_config::quantity")]
    pub to: Duration,
}
