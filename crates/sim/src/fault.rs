//! What can go wrong beside what the scenario says.

use std::time::Duration;

use parda_scenario::HostId;

/// Something that goes wrong, or is well again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// When, from the beginning of the run.
    pub at: Duration,
    /// With whom.
    pub host: HostId,
    /// What.
    pub kind: FaultKind,
}

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The host can no longer read or write the exchange: its visits fail at once.
    LosesExchange,
    /// It can again.
    FindsExchange,
}
