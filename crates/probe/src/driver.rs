//! What drives a target through one load.

use crate::load::Load;
use crate::recording::Recording;
use crate::steady::Verdict;

/// For how long a load is driven.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Allowance {
    /// No shorter than this, in the target's own time.
    pub(crate) least_s: f64,
    /// No longer than this.
    pub(crate) most_s: f64,
    /// No longer than until throughput and mean latency are known as well as this, half of where
    /// they lie with 95 % confidence, relative to them.
    pub(crate) precision: f64,
}

/// A load that was driven.
#[derive(Debug)]
pub(crate) struct Driven {
    pub(crate) recording: Recording,
    pub(crate) verdict: Verdict,
}

/// Why a target cannot be driven further.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DriveError {
    /// It failed, in words.
    #[error("{0}")]
    Failed(String),
}

/// Is told every now and then how far a load has come, and says whether to stop now.
pub(crate) type Watch<'a> = &'a mut dyn FnMut(&Recording) -> bool;

/// Drives a target.
pub(crate) trait Driver {
    /// Keeps a load on it for as long as the allowance says.
    fn drive(
        &mut self,
        load: &Load,
        seed: u64,
        allowance: &Allowance,
        watch: Watch<'_>,
    ) -> Result<Driven, DriveError>;
}
