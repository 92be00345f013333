//! What an agent says of itself: one JSON document per connection to its status socket, then the
//! connection closes. Counters and histograms only ever grow, so two snapshots subtract to what
//! happened between them.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::latency::Latency;

/// An agent's state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The host's name.
    pub host: String,
    /// The agent's version.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_s: f64,
    /// Its volumes.
    pub volumes: Vec<VolumeStatus>,
}

/// The state of one volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// Its name.
    pub name: String,
    /// `parda`, `published`, `static` or `off`.
    pub mode: String,
    /// The latency to hold the array at, in milliseconds.
    pub latency_threshold_ms: f64,
    /// The latency that the window rests on, in milliseconds, once there is one.
    pub cluster_latency_ms: Option<f64>,
    /// Where it comes from: `cluster`, `last-good` or `local`.
    pub source: String,
    /// The window in force, in slots. None without control.
    pub window: Option<f64>,
    /// β, in slots.
    pub beta: f64,
    /// Sum of the shares of this host's disks.
    pub shares: u32,
    /// The same, scaled down for disks that use less than their slice.
    pub active_shares: f64,
    /// Mean outstanding IOs at the array in the last period, in slots.
    pub outstanding: f64,
    /// IOs held in the host's queue now.
    pub held: u64,
    /// Clients connected now.
    pub connections: u64,
    /// Control periods since the start.
    pub ticks: u64,
    /// The exchange, if there is one.
    pub exchange: Option<ExchangeStatus>,
    /// Its disks.
    pub disks: Vec<DiskStatus>,
}

/// The state of a volume's exchange.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ExchangeStatus {
    /// Where it is.
    pub place: String,
    /// The slot in use, once one is.
    pub slot: Option<u32>,
    /// What is wrong with it now, if anything.
    pub fault: Option<String>,
    /// Periods in which it failed, since the start.
    pub failures: u64,
    /// Slots that were ignored, since the start: damaged, foreign or of another version.
    pub ignored: u64,
    /// Looks at which somebody else had written to our slot.
    pub slot_conflicts: u64,
    /// Looks at which another live host had our name.
    pub duplicate_hosts: u64,
    /// The other hosts.
    pub peers: Vec<PeerStatus>,
}

/// Another host of a volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Its name.
    pub host: String,
    /// `live`, `unproven`, `stale`, `left` or `gone`.
    pub liveness: String,
    /// Seconds since it was last seen to change.
    pub age_s: f64,
    /// Its window, in slots. None without control.
    pub window: Option<f64>,
    /// Its shares.
    pub shares: u32,
    /// Its mean device latency in its last interval, in milliseconds.
    pub latency_ms: Option<f64>,
}

/// The state of one disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DiskStatus {
    /// The export's name.
    pub name: String,
    /// Its shares.
    pub shares: u32,
    /// Reads completed since the start.
    pub reads: Counter,
    /// Writes completed since the start.
    pub writes: Counter,
    /// Other requests completed since the start: flushes, trims, zeroes.
    pub others: u64,
    /// IOs that failed at the array since the start.
    pub errors: u64,
    /// Time held in the host's queue, of reads and writes.
    pub held: Latency,
    /// Time at the array.
    pub device: Latency,
    /// Both together: what the client sees, but for its own socket.
    pub total: Latency,
}

/// IOs and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// How many.
    pub ios: u64,
    /// How much.
    pub bytes: u64,
}

/// How long an agent and whoever asks it wait for each other.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why an agent could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody answers at the socket.
    #[error("cannot ask: {0}")]
    Connect(#[from] std::io::Error),
    /// What answers is no agent of this version.
    #[error("the answer is not a status: {0}")]
    Answer(#[from] serde_json::Error),
}

/// Asks the agent behind a status socket.
///
/// # Errors
/// Nobody answers, or not with a status.
pub fn ask(socket: &Path) -> Result<Status, AskError> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}

/// A thread that answers at a status socket until it is dropped.
pub(crate) struct Server {
    socket: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Binds the socket; `status` gives what to answer.
    pub(crate) fn start(
        socket: &Path,
        status: impl Fn() -> Status + Send + 'static,
    ) -> std::io::Result<Server> {
        let listener = match UnixListener::bind(socket) {
            Err(e) if e.kind() == ErrorKind::AddrInUse && is_abandoned(socket) => {
                std::fs::remove_file(socket)?;
                UnixListener::bind(socket)?
            }
            bound => bound?,
        };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("status".to_owned()).spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                if let Err(error) = answer(stream, &status()) {
                    tracing::debug!("status not delivered: {error}");
                }
            }
        })?;
        Ok(Server { socket: socket.to_owned(), stop, thread: Some(thread) })
    }
}

/// Whether this is a socket, and nobody listens to it any more: left over from an agent that was
/// killed.
fn is_abandoned(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket())
        && UnixStream::connect(path).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused)
}

fn answer(mut stream: UnixStream, status: &Status) -> Result<(), AskError> {
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&serde_json::to_vec(status)?)?;
    Ok(())
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // It waits for somebody to ask. If it cannot be woken it has ended.
        let woken = UnixStream::connect(&self.socket);
        if let (Ok(_), Some(thread)) = (woken, self.thread.take()) {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.socket);
    }
}
