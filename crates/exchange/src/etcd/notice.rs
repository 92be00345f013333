//! What a host notices of an exchange over etcd: events, errors, counters and its standing.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parda_etcd::{EtcdError, Traffic};

use crate::identity::Identity;
use crate::slot::{InvalidReport, SlotFault};

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

/// Counters since the start. A value counts at each look that reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EtcdCounters {
    /// Valid records of this volume.
    pub records: u64,
    /// Intact records of another volume.
    pub other_volume: u64,
    /// Records of another format version.
    pub other_version: u64,
    /// Records whose checksum does not match.
    pub damaged: u64,
    /// Intact records with a field out of range, or of another key.
    pub malformed: u64,
    /// Values that are no records.
    pub foreign: u64,
    /// Looks at which another live host had this host's name.
    pub duplicate_hosts: u64,
}

impl EtcdCounters {
    pub(super) fn count_fault(&mut self, fault: &SlotFault) {
        *match fault {
            SlotFault::NotARecord => &mut self.foreign,
            SlotFault::Version(_) => &mut self.other_version,
            SlotFault::Checksum => &mut self.damaged,
            SlotFault::WrongSlot(_) | SlotFault::Malformed(_) => &mut self.malformed,
        } += 1;
    }

    /// Values that were ignored, by reason.
    #[must_use]
    pub fn ignored(&self) -> [(&'static str, u64); 5] {
        let EtcdCounters { other_volume, other_version, damaged, malformed, foreign, .. } = *self;
        [
            ("other_volume", other_volume),
            ("other_version", other_version),
            ("damaged", damaged),
            ("malformed", malformed),
            ("foreign", foreign),
        ]
    }
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
    pub counters: EtcdCounters,
    /// Key of the last value that was ignored.
    pub ignored_key: Option<String>,
}
