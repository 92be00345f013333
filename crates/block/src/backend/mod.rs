//! Where the data is: a file, a block device, memory, or another NBD server.

pub(crate) mod claims;
pub(crate) mod connect;
pub(crate) mod file;
pub(crate) mod map;
pub(crate) mod medium;
pub(crate) mod memory;
pub(crate) mod upstream;

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use parda_control::{Bytes, Io, IoId, IoKind, Span};
use parda_nbd::extents::Descriptor;
use parda_nbd::uri::Uri;
use parda_nbd::{BlockSizes, Cookie, Errno, Extent, Op, client};
use slab::Slab;

pub use file::format::Image;
pub use medium::Stretch;

use crate::budget::Budget;
use crate::buffer::{Buffer, Pool};
use crate::engine::losses::SyncId;
use crate::engine::pieces::Rest;

/// Kind of a disk's backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendConfig {
    /// A regular file or a block device that exists.
    File {
        /// The file or device, as it is configured.
        path: PathBuf,
        /// Whether to go around the page cache.
        direct: Direct,
        /// How other programs are kept from it.
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
        /// How its connections are used.
        options: NbdOptions,
    },
}

/// How the connections to an NBD server are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdOptions {
    /// How many, if the server shares what it was told among them (`CAN_MULTI_CONN`).
    pub connections: usize,
    /// How long IOs wait for a lost server before they fail.
    pub hold: Duration,
    /// How long a request may take before its connection is given up.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// If the file system can and the size is a multiple of its logical block.
    #[default]
    Auto,
    /// Yes, or refuse to start.
    On,
    /// No: reads may be answered from memory, where the law sees no array.
    Off,
}

/// How other programs are kept from a file or device that is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lock {
    /// Nobody else writes to it, or to what is served read-only. QEMU, its tools and other agents
    /// heed that; a block device that is written is also claimed, as a mount does.
    #[default]
    On,
    /// Others that say so too may write: guests with a cluster file system.
    Shared,
    /// No locks, for file systems that have none. Somebody else sees to it.
    Off,
}

/// A part of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Bytes of the backend before it.
    pub offset: Bytes,
    /// Its length in bytes.
    pub len: Bytes,
}

impl Region {
    /// From where to where it is.
    pub(crate) fn bytes(self) -> Range<u64> {
        self.offset.0..self.offset.0.saturating_add(self.len.0)
    }
}

/// Reason why a backend cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be opened.
    #[error("cannot open {path}: {source}", path = path.display())]
    Open {
        /// The file or device, as it is configured.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Neither a file nor a block device.
    #[error("{path} is neither a regular file nor a block device", path = .0.display())]
    NotAFile(PathBuf),
    /// Somebody else has it, now. Later it may be free.
    #[error("{path}: {who}", path = path.display())]
    InUse {
        /// The file or device, as it is configured.
        path: PathBuf,
        /// Who, and what for.
        who: String,
    },
    /// Another disk of this agent has the same bytes.
    #[error(
        "{place} overlaps the disk {other:?}, whatever the names of both, and one of them is \
         writable"
    )]
    Overlap {
        /// Its path or URI.
        place: String,
        /// The export of the disk that has it already.
        other: String,
    },
    /// Another disk on the same file or device has other locks.
    #[error(
        "{path}: the disk {other:?} is on the same file or device: give both the same `lock`",
        path = path.display()
    )]
    Locks {
        /// The file or device, as it is configured.
        path: PathBuf,
        /// The export of the disk that has it already.
        other: String,
    },
    /// The file system has no locks.
    #[error(
        "{path} cannot be locked ({source}), so another program could write to it unnoticed: set \
         lock = \"off\" for this disk if nothing else ever opens it",
        path = path.display()
    )]
    NoLocks {
        /// The file or device, as it is configured.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
    /// It is an image of a format that this agent does not know.
    #[error("{0}")]
    Format(Image),
    /// Direct IO was asked for and is not possible.
    #[error(
        "{path}: direct = \"on\" is not possible: {why}. Use direct = \"auto\" or change the file",
        path = path.display()
    )]
    NotDirect {
        /// The file or device, as it is configured.
        path: PathBuf,
        /// Reason, as part of a sentence.
        why: String,
    },
    /// Memory for a disk in memory cannot be had.
    #[error("cannot get {} bytes of memory: {source}", size.0)]
    Memory {
        /// How much was asked for.
        size: Bytes,
        /// Error of the system.
        source: io::Error,
    },
    /// The NBD server does not answer.
    #[error("cannot connect to the NBD server at {address}: {source}")]
    Connect {
        /// Address of the server.
        address: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The NBD server does not agree.
    #[error("the NBD server at {address}: {source}")]
    Handshake {
        /// Address of the server.
        address: String,
        /// Message of the server, or its breach of the protocol.
        source: client::HandshakeError,
    },
    /// The NBD server cannot make writes durable.
    #[error(
        "the NBD server at {0} is writable but does not offer FLUSH, so no write could be \
         promised to be durable: make the disk read_only, or use another server"
    )]
    NoFlush(String),
    /// The backend cannot be written.
    #[error("{0} can only be read: set read_only = true for this disk")]
    ReadOnly(String),
    /// The region is not within the backend, or not aligned.
    #[error(
        "the region of {len} bytes at {offset} does not fit: the backend has {size} bytes, and \
         both must be multiples of {min}",
        offset = region.offset.0, len = region.len.0
    )]
    Region {
        /// The region, as it is configured.
        region: Region,
        /// The backend's size in bytes.
        size: u64,
        /// The backend's block size in bytes.
        min: u32,
    },
}

/// Properties of an open backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) size: u64,
    pub(crate) blocks: BlockSizes,
    /// Alignment of the borders of a region, in bytes.
    pub(crate) align: u32,
    pub(crate) trim: bool,
    pub(crate) write_zeroes: bool,
    /// Zeroes that would be slow can be refused at once.
    pub(crate) fast_zero: bool,
    /// There is a cache into which data can be fetched.
    pub(crate) cache: bool,
}

impl Geometry {
    /// Checks that `region` is a part of it.
    pub(crate) fn check(&self, region: Region) -> Result<(), OpenError> {
        let min = u64::from(self.align);
        let Region { offset, len } = region;
        let fits = offset.0.checked_add(len.0).is_some_and(|end| end <= self.size);
        if fits && offset.0.is_multiple_of(min) && len.0.is_multiple_of(min) {
            Ok(())
        } else {
            Err(OpenError::Region { region, size: self.size, min: self.align })
        }
    }
}

/// Failure of a request, as its client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) errno: Errno,
    pub(crate) message: String,
    /// Where in the export, if that is known.
    pub(crate) at: Option<u64>,
}

impl Failure {
    pub(crate) fn new(errno: Errno, message: impl Into<String>) -> Self {
        Self { errno, message: message.into(), at: None }
    }

    /// The same, at that offset of the export.
    pub(crate) fn at(self, offset: u64) -> Self {
        Self { at: Some(offset), ..self }
    }

    pub(crate) fn from_os(errno: i32) -> Self {
        let message = io::Error::from_raw_os_error(errno).to_string();
        Self::new(Errno::from_os(errno), message)
    }
}

/// A client's request, from its arrival to its reply.
pub(crate) struct Request {
    pub(crate) conn: usize,
    pub(crate) disk: usize,
    pub(crate) cookie: Cookie,
    /// Operation that the client asked for.
    pub(crate) asked: Op,
    /// The piece of it that is done now; as a rule all of it.
    pub(crate) op: Op,
    pub(crate) rest: Rest,
    /// The payload of a write; the data of a read. Absent while the kernel has it.
    pub(crate) buffer: Option<Buffer>,
    /// The answer to BLOCK_STATUS.
    pub(crate) status: Vec<Descriptor>,
    /// Set when it was dispatched.
    pub(crate) id: Option<IoId>,
    /// Where the backend is with it.
    pub(crate) step: file::Step,
    /// Range of the step, where that is not the request's.
    pub(crate) part: Extent,
    /// The payload of a write while the blocks at its edges are read and written.
    pub(crate) aside: Option<Buffer>,
    /// The request as a change of its file, while other changes of the same blocks have to wait for it.
    pub(crate) change: Option<file::unaligned::ChangeId>,
    /// An error that came before the last piece of its reply.
    pub(crate) error: Option<Failure>,
    /// Set when the backend is done with it.
    pub(crate) outcome: Option<Result<(), Failure>>,
    /// The model of the array is not done with it.
    pub(crate) modelled: bool,
    /// Set when it was dispatched, if it makes data durable.
    pub(crate) sync: Option<SyncId>,
    /// Its latency is not the array's: it waited for a lost server or for an overlapping change.
    pub(crate) delayed: bool,
    /// How long a file has taken for its steps.
    pub(crate) took: Span,
}

impl Request {
    /// A request that has just arrived on connection `conn` for `disk`; `payload` is that of a write.
    pub(crate) fn new(
        conn: usize,
        disk: usize,
        cookie: Cookie,
        op: Op,
        payload: Option<Buffer>,
    ) -> Self {
        Self {
            conn,
            disk,
            cookie,
            asked: op,
            op,
            rest: Rest::default(),
            buffer: payload,
            status: Vec::new(),
            id: None,
            step: file::Step::Transfer(0),
            part: op.extent(),
            aside: None,
            change: None,
            error: None,
            outcome: None,
            modelled: false,
            sync: None,
            delayed: false,
            took: Span::ZERO,
        }
    }

    pub(crate) fn extent(&self) -> Extent {
        self.op.extent()
    }
}

/// Result of a request that succeeded.
pub(crate) enum Body {
    /// The operation succeeded, and returned no data.
    Done,
    /// The data of a read.
    Data(Buffer),
    /// The answer to BLOCK_STATUS.
    Status(Vec<Descriptor>),
}

/// Requests and buffers that a volume shares with its backends.
pub(crate) struct Work {
    pub(crate) pool: Pool,
    pub(crate) budget: Budget,
    pub(crate) requests: Slab<Request>,
    /// Requests that a backend is done with, and how they ended.
    pub(crate) finished: Vec<(usize, Result<(), Failure>)>,
}

/// IO of a request, as the law sees it.
pub(crate) fn io_of(op: Op) -> Io {
    let bytes = Bytes(op.extent().len);
    let kind = match op {
        Op::Read(_) => IoKind::Read,
        Op::Write { .. } => IoKind::Write,
        Op::Trim { .. } | Op::WriteZeroes { .. } => IoKind::Discard,
        Op::Flush | Op::BlockStatus { .. } | Op::Cache(_) => IoKind::Other,
    };
    Io { kind, bytes }
}

/// Backend of one disk, open.
pub(crate) enum Backend {
    File(file::File),
    Memory(memory::Memory),
    Nbd(Box<upstream::Upstream>),
}

impl Backend {
    /// Whether it reports data that could not be written back to one sync only, whichever looks
    /// first: the page cache does. Around it, each request hears of its own data.
    pub(crate) fn reports_once(&self) -> bool {
        matches!(self, Self::File(file) if file.is_cached())
    }
}
