//! Errors of a run in the laboratory.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use crate::guest::GuestError;
use crate::network::NetworkError;

/// A part of a scenario that the laboratory cannot do.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Refusal {
    /// Paths in the document at which it may stand, such as `host.2.exchange.delay`: the first one that is there counts.
    pub paths: Vec<String>,
    /// What the laboratory cannot do.
    pub error: Box<LabError>,
}

impl Refusal {
    pub(crate) fn new(paths: impl Into<Vec<String>>, error: LabError) -> Refusal {
        Refusal { paths: paths.into(), error: Box::new(error) }
    }
}

impl From<Refusal> for LabError {
    fn from(refusal: Refusal) -> LabError {
        *refusal.error
    }
}

/// Reason why a run has no answer. Errors of processes name their logs, which are kept.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// fio, which plays the VMs' clients, cannot be run.
    #[error(
        "fio, which plays the VMs, cannot be run: {0}. Install it (Debian, Ubuntu: \
         apt install fio)"
    )]
    NoFio(io::Error),
    /// fio has no NBD engine.
    #[error("this fio was built without its nbd engine: install one with it (Debian's has it)")]
    NoNbdEngine,
    /// The scenario needs something that real processes cannot do.
    #[error("{0} is beyond the laboratory: parda sim can do it")]
    OnlySimulated(String),
    /// etcd, in which hosts are to meet, cannot be run.
    #[error(
        "etcd, in which the hosts meet, cannot be run: {0}. Install it (Debian, Ubuntu: apt install \
         etcd-server), or let them meet elsewhere: --exchange udp"
    )]
    NoEtcd(io::Error),
    /// There is no network between the hosts.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A file of the run cannot be written.
    #[error("cannot write {path}: {source}", path = path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// The failure to write it.
        source: io::Error,
    },
    /// There is no place for the files of the run.
    #[error(transparent)]
    Temporary(io::Error),
    /// A process cannot be started.
    #[error("cannot start {who}: {source}")]
    Start {
        /// The process, for people.
        who: String,
        /// The failure to start it.
        source: io::Error,
    },
    /// A process ended by itself.
    #[error("{who} ended unexpectedly, {status}. It last said:\n{last}\nAll logs are in {logs}",
            logs = logs.display())]
    Died {
        /// The process, for people.
        who: String,
        /// Exit status of the process.
        status: ExitStatus,
        /// Last lines of the process's log.
        last: String,
        /// Directory of the logs.
        logs: PathBuf,
    },
    /// A process did not do something in time.
    #[error("{who} did not {what} within {}. It last said:\n{last}\nAll logs are in {logs}",
            humantime::format_duration(*.waited), logs = logs.display())]
    Late {
        /// The process, for people.
        who: String,
        /// The awaited action, as in "answer".
        what: &'static str,
        /// Time for which the laboratory waited.
        waited: Duration,
        /// Last lines of the process's log.
        last: String,
        /// Directory of the logs.
        logs: PathBuf,
    },
    /// A host that is a guest failed.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// The array refused an event. Holds the array's message.
    #[error("nothing happened to the array: {0}")]
    Array(String),
    /// The exchange cannot be created.
    #[error(transparent)]
    Exchange(#[from] parda_exchange::InitError),
    /// The relay to the exchange cannot be started.
    #[error("no way to the exchange for {host}: {source}")]
    Relay {
        /// Name of the host.
        host: String,
        /// The failure to start the relay.
        source: io::Error,
    },
    /// The user stopped the run.
    #[error("interrupted")]
    Interrupted,
}
