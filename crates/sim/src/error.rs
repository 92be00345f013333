//! Errors of a run in virtual time.

use std::time::Duration;

use parda_array::{FaultError, ParamError};
use parda_control::ConfigError;
use parda_exchange::identity::HostNameError;
use parda_scenario::array::ArrayFault;

use crate::check::Violation;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The scenario's array is not possible. Never for a scenario that was parsed.
    #[error(transparent)]
    Array(#[from] ArrayFault),
    /// The same, found by the array itself.
    #[error(transparent)]
    Param(#[from] ParamError),
    /// A host's settings cannot work. Never for a scenario that was parsed.
    #[error("host {host}: {error}")]
    Control {
        /// Name of the host.
        host: String,
        /// Fault of the host's settings.
        error: ConfigError,
    },
    /// A host cannot have this name. Never for a scenario that was parsed.
    #[error(transparent)]
    Name(#[from] HostNameError),
    /// Something cannot happen to the array when it should.
    #[error("at {at:?}: {error}")]
    ArrayEvent {
        /// Time of the event, from the start of the scenario.
        at: Duration,
        /// Reason why it cannot happen.
        error: FaultError,
    },
    /// Something happened that must never happen: a fault of this program.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// The same, with what it takes to see it again.
    #[error(
        "scenario {scenario}, seed {seed}, at {at:?}: {violation}. This is a fault of this \
         program: please report it with the scenario"
    )]
    Violated {
        /// Name of the scenario.
        scenario: String,
        /// Seed of the run.
        seed: u64,
        /// Virtual time of the violation.
        at: Duration,
        /// Invariant that does not hold.
        violation: Box<Violation>,
    },
}
