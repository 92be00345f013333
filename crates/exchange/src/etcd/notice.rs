//! What a host notices of an exchange over etcd: events, errors, counters and its standing.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parda_etcd::{EtcdError, Traffic};

use crate::counters::RecordCounters;
use crate::identity::Identity;
use crate::slot::InvalidReport;

/// Something about an exchange over etcd that an operator should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EtcdEvent {
    /// Another live host has the name of this host.
    DuplicateHost {
        /// Name and run of the other host.
        twin: Identity,
    },
}

impl fmt::Display for EtcdEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EtcdEvent::DuplicateHost { twin } => {
                write!(f, "etcd has the key of another {twin}: give every host a name of its own")
            }
        }
    }
}

/// An exchange over etcd that does not work.
#[derive(Clone, Debug, thiserror::Error)]
#[error("exchange {fault}")]
pub struct EtcdExchangeError {
    /// Reason why it does not work.
    pub fault: EtcdExchangeFault,
}

/// What is wrong with an exchange over etcd.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EtcdExchangeFault {
    /// The last call to etcd failed.
    #[error(transparent)]
    Call(#[from] Arc<EtcdError>),
    /// No call has ended since the last period.
    #[error("etcd: no answer within {0:?}")]
    NoAnswer(Duration),
    /// The report has a value that no record can hold.
    #[error("etcd: {0}")]
    Report(#[from] InvalidReport),
    /// The thread that makes the calls has ended, by a panic.
    #[error("etcd: its thread has ended")]
    Ended,
}

/// The state of an exchange over etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdStanding {
    /// The endpoint that is asked.
    pub endpoint: String,
    /// Calls and bytes since the start.
    pub traffic: Traffic,
    /// Leases that were granted since the start: more than one if some ran out or the period grew.
    pub leases: u64,
    /// Values since the start.
    pub counters: RecordCounters,
    /// Key of the last value that was ignored.
    pub ignored_key: Option<String>,
}
