//! What a host notices of an exchange over etcd: events, errors, counters and its standing.

use std::sync::Arc;
use std::time::Duration;

use parda_etcd::{EtcdError, Traffic};

use crate::counters::RecordCounters;
use crate::slot::InvalidReport;

/// An exchange over etcd that does not work.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EtcdExchangeError {
    /// The last call to etcd failed.
    #[error("exchange {0}")]
    Call(#[from] Arc<EtcdError>),
    /// No call has ended since the last period.
    #[error("exchange etcd: no answer within {0:?}")]
    NoAnswer(Duration),
    /// The report has a value that no record can hold.
    #[error("exchange etcd: {0}")]
    Report(#[from] InvalidReport),
    /// The thread that makes the calls has ended, by a panic.
    #[error("exchange etcd: its thread has ended")]
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
