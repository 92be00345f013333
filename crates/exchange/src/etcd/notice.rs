//! The standing of an exchange over etcd.

use parda_etcd::Traffic;

use crate::counters::RecordCounters;

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
