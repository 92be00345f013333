//! Configuration of a volume.

use std::ops::Range;
use std::time::Duration;

use parda_address::{Address, ExportName};
use parda_config::VmSettings;
use parda_control::Decision;

use crate::backend::{BackendConfig, DiskRegion, OpenError};
use crate::front::AgentMemory;
use crate::listen::{ListenError, ListenerConfig};
use crate::timed::Timed;

/// A volume: disks that share one array, and hence one window and one fair queue.
pub struct VolumeConfig {
    /// Its name, for the thread and the logs.
    pub name: String,
    /// Decision of the law by which it works until the next one.
    pub decision: Decision,
    /// Disks that the volume serves from its start.
    pub disks: Vec<DiskConfig>,
    /// How its listeners are set up. An address of a disk that is not among them is bound with the
    /// defaults of [`ListenerConfig::new`].
    pub listeners: Vec<ListenerConfig>,
    /// A model that times every IO, if this is an emulated array.
    pub model: Option<Box<dyn Timed>>,
    /// Limits for the volume's clients.
    pub limits: Limits,
    /// Limits for all volumes of the agent together.
    pub memory: AgentMemory,
}

/// Settings of a disk, checked: the one type that a configuration is read into and that a volume serves.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskConfig {
    /// Name of the export, unique within its listener.
    pub name: ExportName,
    /// Description for people who list the exports; may be empty.
    pub description: String,
    /// Place of the data, with the way in which it is used.
    pub backend: BackendConfig,
    /// Part of the backend that is the disk; all of it if `None`.
    pub region: Option<DiskRegion>,
    /// Whether the export refuses writes.
    pub read_only: bool,
    /// Settings of its VM, with their defaults. They change while clients are connected, as do the next three.
    pub settings: VmSettings,
    /// Where clients find it. Disks with the same address share one listener.
    pub listen: Address,
    /// Further addresses, which an emulated array has.
    pub also_at: Vec<Address>,
    /// Whether it takes no new connections.
    pub drain: bool,
}

impl DiskConfig {
    /// A disk of all of the backend, with defaults for the rest.
    #[must_use]
    pub fn new(name: ExportName, backend: BackendConfig, listen: Address) -> DiskConfig {
        DiskConfig {
            name,
            description: String::new(),
            backend,
            region: None,
            read_only: false,
            settings: VmSettings::default().or_defaults(),
            listen,
            also_at: Vec::new(),
            drain: false,
        }
    }

    /// Range of bytes of the backend that is the disk; `None` for all of it.
    #[must_use]
    pub fn bytes(&self) -> Option<Range<u64>> {
        self.region.map(DiskRegion::bytes)
    }

    /// Whether a disk that is open takes these settings over as it is ([`Handle::set_disk`](crate::Handle::set_disk)).
    #[must_use]
    pub fn stays_open_for(&self, new: &DiskConfig) -> bool {
        let DiskConfig { settings, listen, also_at, drain, .. } = new.clone();
        DiskConfig { settings, listen, also_at, drain, ..self.clone() } == *new
    }

    /// Addresses that are configured.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = &Address> {
        std::iter::once(&self.listen).chain(&self.also_at)
    }

    /// Addresses at which new clients find it.
    pub(crate) fn offered_at(&self) -> Vec<Address> {
        if self.drain { Vec::new() } else { self.addresses().cloned().collect() }
    }
}

/// Limits at which clients have to wait or are turned away.
///
/// The data and the records of requests never take more than `memory`, counted in what is
/// allocated. What is not counted in it:
///
/// - 8 KiB of each connection to receive requests.
/// - Replies without data that a connection does not take: 16 KiB, and then those of its requests
///   in flight. With `requests_per_connection` of 512 these are up to 64 KiB.
/// - 128 KiB of each connection to an NBD backend, to receive replies.
/// - The thread of each connection to an NBD backend with TLS, with its buffers. (That of a client with TLS is
///   counted as 256 KiB.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory in the buffers of the volume.
    pub memory: usize,
    /// Connections of the volume that have chosen an export. A quarter as many more may be in
    /// their handshake.
    pub connections: usize,
    /// Of these, connections to one disk.
    pub connections_per_export: usize,
    /// Connections of one process over a unix socket, or of one address over TCP.
    pub connections_per_peer: usize,
    /// Handshakes that begin in a second, once as many have begun at once as there may be
    /// connections.
    pub handshakes_per_second: usize,
    /// Requests in flight on one connection. The next is read when one was answered.
    pub requests_per_connection: usize,
    /// Bytes of memory that one connection's requests take, beyond which no request is read.
    pub memory_per_connection: usize,
    /// How long a handshake may take.
    pub handshake_timeout: Duration,
    /// How long a client may take for [`Limits::LEAST_PROGRESS`] bytes of what it owes: the rest of
    /// a request that it has begun, or to take its replies.
    pub progress_timeout: Duration,
}

impl Limits {
    /// Bytes that a client which owes something must move within `progress_timeout`.
    pub const LEAST_PROGRESS: u64 = crate::front::LEAST;

    /// How many connections there can be, with those that are in their handshake or wait for it.
    #[must_use]
    pub fn all_connections(&self) -> usize {
        self.connections + 2 * self.handshakes()
    }

    /// How many connections may be in their handshake, and how many may wait for it.
    pub(crate) fn handshakes(&self) -> usize {
        (self.connections / 4).max(4)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 256 << 20,
            connections: 1024,
            connections_per_export: 256,
            connections_per_peer: 256,
            handshakes_per_second: 250,
            requests_per_connection: 512,
            // Two of the largest requests, so that one can be received while one is answered.
            memory_per_connection: 64 << 20,
            handshake_timeout: Duration::from_secs(10),
            progress_timeout: Duration::from_secs(30),
        }
    }
}

/// Reason why a volume does not start.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// A disk cannot be opened.
    #[error("disk {disk:?}: {source}")]
    Backend {
        /// The disk's export name.
        disk: String,
        /// Fault of its backend.
        source: OpenError,
    },
    /// A listener's address cannot be used.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Anything else, as a sentence.
    #[error("{0}")]
    Refused(String),
}
