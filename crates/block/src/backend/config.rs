//! Configuration of a disk's backend.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parda_address::{Place, Uri};
use parda_control::Bytes;

/// Kind of a disk's backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendConfig {
    /// A regular file or a block device that exists.
    File {
        /// The file or device, as it is configured.
        path: PathBuf,
        /// Whether to go around the page cache.
        direct: Direct,
        /// Protection from other programs.
        lock: Lock,
        /// All of it is data, even if it begins as the image of another format does.
        raw: bool,
    },
    /// Memory, all zeroes at first and gone with the volume.
    Memory {
        /// Bytes of the disk.
        size: Bytes,
    },
    /// An export of another NBD server.
    Nbd {
        /// The server's address and the export's name.
        uri: Uri,
        /// Number and time limits of its connections.
        options: NbdOptions,
    },
}

impl BackendConfig {
    /// Place of the data. Memory has a name there that is no file's.
    #[must_use]
    pub fn place(&self) -> Place {
        match self {
            Self::File { path, .. } => Place::Path(path.clone()),
            Self::Memory { .. } => Place::Path("memory".into()),
            Self::Nbd { uri, .. } => Place::Nbd(uri.clone()),
        }
    }

    /// The file or device.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        if let Self::File { path, .. } = self { Some(path) } else { None }
    }
}

/// Number and time limits of the connections to an NBD server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdOptions {
    /// Number of connections, if the server keeps them consistent (`CAN_MULTI_CONN`).
    pub connections: usize,
    /// Time that IOs wait for a lost server before they fail.
    pub hold: Duration,
    /// Time limit of a request. After it, its connection is given up.
    pub timeout: Duration,
}

impl Default for NbdOptions {
    /// A restart takes a few seconds, and clients such as the Linux kernel give up after 30.
    fn default() -> Self {
        let (hold, timeout) = (Duration::from_secs(10), Duration::from_secs(30));
        Self { connections: 1, hold, timeout }
    }
}

/// Whether a file is read and written around the page cache (O_DIRECT).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direct {
    /// If the file system can and the size is a multiple of its logical block.
    #[default]
    Auto,
    /// Yes, or refuse to start.
    On,
    /// No: reads may be answered from memory, where the law sees no array.
    Off,
}

/// Protection of a served file or device from other programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lock {
    /// Nobody else writes to it, or to what is served read-only. QEMU, its tools and other agents
    /// heed that. A writable block device is also claimed, as a mount does.
    #[default]
    On,
    /// Others that say so too may write: guests with a cluster file system, or a VM that moves.
    Shared,
    /// No locks, for file systems that have none. Somebody else sees to it.
    Off,
}

/// A part of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskRegion {
    /// Bytes of the backend before it.
    pub offset: Bytes,
    /// Its length in bytes.
    pub len: Bytes,
}

impl DiskRegion {
    /// Range of bytes of the region.
    #[must_use]
    pub fn bytes(self) -> Range<u64> {
        self.offset.0..self.offset.0.saturating_add(self.len.0)
    }
}
