//! A host of parda: its configuration, its volumes, their control ticks, and what it says of
//! itself.
//!
//! Each volume has two threads. The ring thread ([`parda_block`]) carries IO and never waits for
//! anything else. The control thread talks to the other hosts, which may block, and hands what it
//! hears to the ring once per period.
//!
//! | file | subject |
//! | --- | --- |
//! | [`file`](mod@file) | `parda.toml` as it is written |
//! | [`config`] | what it means, checked |
//! | [`activation`] | sockets that a service manager has bound |
//! | `volume` | one running volume: start, reload, stop, status |
//! | `control` | the control thread |
//! | [`exchange`] | the exchange that a configuration names: opened, or only looked at |
//! | `gate` | what holds a volume's IOs to its window |
//! | `served` | a volume whose disks are served: its ring |
//! | `steered` | a volume whose device is steered: the kernel's queue |
//! | [`server`] | a socket at which something is asked |
//! | [`status`] | what an agent says of itself |
//! | `inject` | probing a volume that nobody uses |
//! | [`threshold`] | what it says of a threshold that it finds, and what a stored probe says |
//! | [`outlook`] | what of it says what would be done |
//! | [`medium`] | what a path or a URI really leads to |
//! | [`latency`] | distributions that travel in it |

#![forbid(unsafe_code)]

pub mod activation;
pub mod config;
mod control;
pub mod exchange;
pub mod file;
mod gate;
mod inject;
pub mod latency;
pub mod medium;
pub mod outlook;
mod served;
pub mod server;
pub mod status;
mod steered;
pub mod threshold;
mod volume;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use parda_block::AgentMemory;
use parda_exchange::{Identity, Incarnation};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

pub use control::ExchangeError;
pub use steered::SteerError;
pub use volume::StartError;

use crate::activation::{ActivationError, Passed};
use crate::config::Config;
use crate::status::Status;
use crate::volume::{Volume, VolumeView};

/// How long a stopping agent answers what is in flight. Longer than any IO of a sane array, and
/// shorter than the 90 s after which service managers kill.
const DRAIN: Duration = Duration::from_secs(30);

/// Why an agent ends without being told to.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A volume does not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The status socket cannot be bound.
    #[error("status socket {path}: {error}", path = path.display())]
    Status {
        /// Its path.
        path: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// The service manager's sockets.
    #[error(transparent)]
    Passed(#[from] ActivationError),
    /// Signals or threads cannot be had.
    #[error("cannot start: {0}")]
    System(#[from] std::io::Error),
    /// A volume's ring failed; the log has the reason.
    #[error("volume {0} has stopped")]
    Stopped(String),
}

/// What the main thread waits for.
enum Event {
    Signal(i32),
    Gone(String),
}

/// What is in force, as the status thread shows it.
type InForce = Arc<Mutex<Vec<config::Volume>>>;

/// Runs an agent until SIGTERM or SIGINT. `path` is read again on SIGHUP.
///
/// # Errors
/// Something does not start, or a volume's ring fails.
pub fn serve(path: &Path, config: Config) -> Result<(), ServeError> {
    let started = Instant::now();
    let passed = Passed::from_environment()?;
    let (events, waits) = channel();
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let signalled = events.clone();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            if signalled.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    })?;

    let mut volumes = Vec::new();
    let ended = run(path, &config, &passed, started, (&events, &waits), &mut volumes);
    // Also what a failed start has started: no socket is left behind.
    for volume in volumes {
        let name = volume.name().to_owned();
        match volume.stop(DRAIN) {
            Some(drained) if drained.unanswered == 0 => tracing::info!(volume = name, "stopped"),
            Some(drained) => tracing::warn!(
                volume = name,
                unanswered = drained.unanswered,
                "stopped; requests were not answered"
            ),
            None => tracing::error!(volume = name, "was not running any more"),
        }
    }
    ended
}

/// Starts everything, and runs it until a signal or a failure.
fn run(
    path: &Path,
    config: &Config,
    passed: &Passed,
    started: Instant,
    (events, waits): (&Sender<Event>, &Receiver<Event>),
    volumes: &mut Vec<Volume>,
) -> Result<(), ServeError> {
    let me = Identity { host: config.host.clone(), incarnation: Incarnation::starting_now() };
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    let addresses: Vec<_> = config.volumes.iter().flat_map(|v| &v.listeners).collect();
    let addresses: Vec<_> = addresses.iter().map(|l| &l.address).collect();
    for unused in passed.not_at(&addresses) {
        tracing::warn!("{unused} was passed, and no disk listens there: its clients wait in vain");
    }
    let served = config.volumes.iter().filter(|volume| !volume.disks().is_empty()).count();
    let memory = AgentMemory::new(config.memory, served);
    for volume in &config.volumes {
        let (gone, name) = (events.clone(), volume.name.clone());
        // Nobody listens any more once the agent stops: then this is no news.
        let gone = move || drop(gone.send(Event::Gone(name)));
        volumes.push(Volume::start(&me, volume.clone(), (&memory, passed), gone)?);
    }
    let in_force: InForce = Arc::new(Mutex::new(config.volumes.clone()));
    // Answers as long as this function runs.
    let _server = match &config.status {
        Some(socket) => {
            let views: Vec<VolumeView> = volumes.iter().map(Volume::view).collect();
            let (host, shown) = (config.host.to_string(), Arc::clone(&in_force));
            let how = move || describe(&host, started, &views, &shown);
            let server = status::serve(socket, how)
                .map_err(|error| ServeError::Status { path: socket.clone(), error })?;
            Some(server)
        }
        None => None,
    };
    tracing::info!(host = %config.host, volumes = volumes.len(), "started");

    loop {
        match waits.recv() {
            Ok(Event::Signal(SIGHUP)) => reload(path, config, volumes, &in_force),
            Ok(Event::Signal(_)) | Err(_) => return Ok(()),
            Ok(Event::Gone(name)) => return Err(ServeError::Stopped(name)),
        }
    }
}

fn reload(path: &Path, started: &Config, volumes: &mut [Volume], in_force: &InForce) {
    let new = match Config::read(path) {
        Ok(new) => new,
        Err(error) => {
            tracing::error!("configuration not changed: {error}");
            return;
        }
    };
    let mut restart = new.host != started.host
        || new.status != started.status
        || new.memory != started.memory
        || new.volumes.len() != volumes.len();
    for volume in volumes.iter_mut() {
        match new.volumes.iter().find(|v| v.name == volume.name()) {
            Some(wanted) => restart |= volume.reload(wanted),
            None => restart = true,
        }
    }
    *in_force.lock().unwrap_or_else(PoisonError::into_inner) =
        volumes.iter().map(|v| v.config().clone()).collect();
    if restart {
        tracing::warn!(
            "{}: shares, bursts and [volume.control] are in force; other changes need a restart",
            path.display()
        );
    } else {
        tracing::info!("{}: in force", path.display());
    }
}

fn describe(host: &str, started: Instant, views: &[VolumeView], in_force: &InForce) -> Status {
    let configs = in_force.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Status {
        host: host.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        uptime_s: started.elapsed().as_secs_f64(),
        volumes: views.iter().zip(&configs).filter_map(|(v, c)| v.status(c)).collect(),
    }
}
