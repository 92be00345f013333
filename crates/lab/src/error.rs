//! Why a run has no answer.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use crate::guest::GuestError;

/// Why a run has no answer. Where processes are involved, their logs are kept and named.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The clients' program is missing.
    #[error(
        "fio, which plays the VMs, cannot be run: {0}. Install it (Debian, Ubuntu: \
         apt install fio)"
    )]
    NoFio(io::Error),
    /// The clients' program speaks no NBD.
    #[error("this fio was built without its nbd engine: install one with it (Debian's has it)")]
    NoNbdEngine,
    /// A VM's workload is none that the clients' program can do.
    #[error(
        "{vm} is an open loop (`rate`), which fio cannot be on NBD: between two arrivals it waits \
         for all that is under way. `parda sim` runs it"
    )]
    OpenLoop {
        /// The VM.
        vm: String,
    },
    /// The scenario needs something that real processes do not do.
    #[error("{0} is beyond the laboratory: parda sim can do it")]
    OnlySimulated(String),
    /// A VM's workload has no words in its client's language. Never for a scenario that was checked.
    #[error(transparent)]
    Unsayable(#[from] parda_scenario::fio::Unsayable),
    /// A file of the run cannot be written.
    #[error("cannot write {path}: {source}", path = path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A process cannot be started.
    #[error("cannot start {who}: {source}")]
    Start {
        /// Which.
        who: String,
        /// Why not.
        source: io::Error,
    },
    /// A process ended by itself.
    #[error("{who} ended unexpectedly, {status}. It last said:\n{last}\nAll logs are in {logs}",
            logs = logs.display())]
    Died {
        /// Which.
        who: String,
        /// How.
        status: ExitStatus,
        /// The last lines of its log.
        last: String,
        /// Where the logs are.
        logs: PathBuf,
    },
    /// A process does not do what it should in time.
    #[error("{who} did not {what} within {}. It last said:\n{last}\nAll logs are in {logs}",
            humantime::format_duration(*.waited), logs = logs.display())]
    Late {
        /// Which.
        who: String,
        /// What it should have done.
        what: &'static str,
        /// How long we waited.
        waited: Duration,
        /// The last lines of its log.
        last: String,
        /// Where the logs are.
        logs: PathBuf,
    },
    /// A host that is a guest does not do what it should.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// The array would not take what was to happen to it.
    #[error("nothing happened to the array: {0}")]
    Array(String),
    /// The exchange cannot be made.
    #[error(transparent)]
    Exchange(#[from] parda_exchange::InitError),
    /// A host's way to the exchange cannot be made.
    #[error("no way to the exchange for {host}: {source}")]
    Relay {
        /// The host.
        host: String,
        /// Why not.
        source: io::Error,
    },
    /// The user stopped the run.
    #[error("interrupted")]
    Interrupted,
}
