//! A host of parda: its configuration, its volumes, their control ticks, and its status.
//!
//! Two threads of a volume matter most. The ring thread ([`parda_block`]) carries IO and never waits for anything else. The control thread
//! talks to the other hosts, which may block. Once per period it ticks the law, and hands the decision to the ring. A keeper beside them
//! opens disks and applies reloads. More threads make calls that may hang: block status, writes to the page cache, the exchange, TLS.
//!
//! | file | subject |
//! | --- | --- |
//! | [`file`](mod@file) | `parda.toml` as it is written |
//! | [`config`] | what it means, checked |
//! | `activation` | sockets that a service manager has bound |
//! | `running` | the running agent: signals, its volumes as they come and go |
//! | `wakeup` | what wakes its main thread |
//! | `volume` | one running volume: start, reload, stop, status |
//! | `control` | the control thread |
//! | `locked` | mutexes that outlive a panic |
//! | `start_error` | why a volume does not start |
//! | `last_tick` | result of a control thread's last tick |
//! | `crew` | threads for work that may hang |
//! | `patience` | questions to file systems, of which none is waited for without a bound |
//! | [`exchange`] | the exchange that a configuration names: opened, or only looked at |
//! | `law` | the law of a volume, with its enforcer |
//! | `enforcer` | what holds a volume's IOs to the law's decisions |
//! | `served` | a volume whose disks are served: its ring |
//! | `steered` | a volume whose device is steered: the kernel's queue |
//! | `throttled` | a volume that QEMUs open themselves: their throttles |
//! | [`devices`] | devices that a configuration steers, looked at |
//! | [`nbd_servers`] | NBD servers with TLS that a configuration names, tried |
//! | [`socket`] | a socket at which something is asked |
//! | `http` | the HTTP server at its address |
//! | `api` | its answers |
//! | `history` | the last hour, second by second |
//! | [`events`] | what happened |
//! | [`live`] | settings that are changed while the agent runs |
//! | `policy` | settings that live in etcd for all hosts: read, put in force, read back |
//! | `tokens` | who may ask the API over TCP |
//! | `safe` | text of others without what a terminal obeys |
//! | `views` | the volumes as other threads see them |
//! | `manager` | readiness, state and signs of life for the service manager |
//! | `metrics` | the status as OpenMetrics text |
//! | `news` | faults that are logged when they are new |
//! | [`status`] | what an agent says of itself |
//! | `settings` | settings that hosts must have alike, compared |
//! | `slowed` | log lines of an exchange whose rounds are slower than configured |
//! | `idle_probe` | the daily probe of a volume that is idle |
//! | [`threshold`] | thresholds that are found or come from a stored probe, in the status |
//! | [`outlook`] | the forecast of observe mode, in it |
//! | [`latency`] | distributions that travel in it |

#![forbid(unsafe_code)]

mod activation;
mod api;
pub mod config;
mod control;
mod crew;
pub mod descriptors;
pub mod devices;
mod enforcer;
pub mod events;
pub mod exchange;
pub mod file;
mod history;
mod http;
mod idle_probe;
mod last_tick;
pub mod latency;
mod law;
pub mod live;
mod locked;
mod manager;
mod metrics;
pub mod nbd_servers;
mod news;
pub mod outlook;
mod outsider;
mod patience;
mod policy;
pub mod reachable;
mod running;
mod served;
pub mod settings;
mod slowed;
pub mod socket;
mod start_error;
pub mod status;
mod steered;
pub mod threshold;
mod throttled;
mod tokens;
mod views;
mod volume;
mod wakeup;

use std::path::Path;

use parda_config::Document;

use crate::activation::Passed;
use crate::events::Recorder;
use crate::live::Live;

/// Reason why an agent ends without a request.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The configuration is wrong.
    #[error(transparent)]
    Configuration(#[from] parda_config::Error),
    /// Signals or threads cannot be had.
    #[error("cannot start: {0}")]
    System(#[from] std::io::Error),
    /// The sockets that the service manager passed are wrong. Holds the reason.
    #[error("{0}")]
    PassedSockets(String),
    /// None of the volumes starts. Holds the reason of the first.
    #[error("{0}")]
    NoVolume(String),
    /// Another agent answers at the status socket.
    #[error(
        "another agent answers at {0}, so nothing was started: `parda status {0}` shows it; each agent needs a status socket of its own"
    )]
    AlreadyRuns(String),
    /// Another process has the status socket and does not answer.
    #[error(
        "{socket}: a process has this status socket and did not answer for {waited:?}, so nothing was started: `ss -lxp` names it. It \
         hangs, or was killed and ends when the file systems of its disks answer"
    )]
    Unresponsive {
        /// Address of the status socket.
        socket: String,
        /// Time for which an answer was waited for.
        waited: std::time::Duration,
    },
    /// The status socket cannot be bound.
    #[error("status socket {socket}: {source}{help}")]
    StatusSocket {
        /// Address of the status socket.
        socket: String,
        /// Error of the bind.
        source: std::io::Error,
        /// Advice, empty if there is none.
        help: String,
    },
}

/// Runs an agent by a configuration file that was read, until SIGTERM or SIGINT. `path` is read again on SIGHUP. A disk, listener or
/// exchange that cannot be opened is tried again until it is open. `events` is the layer of the process' log that
/// remembers what happened.
///
/// # Errors
/// The configuration is wrong, or none of the volumes starts. Or the status socket cannot be bound or belongs to another process.
pub fn serve(path: &Path, file: Document, events: Recorder) -> Result<(), ServeError> {
    let passed = Passed::from_environment().map_err(ServeError::PassedSockets)?;
    let (live, config) = Live::start(file)?;
    running::Agent::new(path, live, config, passed, events)?.run()
}
