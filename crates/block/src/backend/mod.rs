//! Storage of a disk: a file, a block device, memory, or another NBD server.

pub(crate) mod claims;
mod config;
pub(crate) mod connect;
pub(crate) mod disk_file;
pub(crate) mod file;
mod loops;
pub(crate) mod map;
pub(crate) mod medium;
pub(crate) mod memory;
mod opening;
mod request;
pub(crate) mod sizing;
pub(crate) mod upstream;

use parda_control::Instant;
use parda_disk::Op;

pub use self::config::{BackendConfig, Direct, DiskRegion, Lock, NbdOptions};
pub use self::file::format::Image;
pub use self::medium::{Stretch, Stretches};
pub use self::opening::OpenError;

pub(crate) use self::opening::{check_guests, check_region};
pub(crate) use self::request::{Arrivals, Request, Rest, Work, io_of};

/// Backend of one disk, open.
pub(crate) enum Backend {
    File(file::File),
    Memory(memory::Memory),
    /// Another server.
    Remote(Box<upstream::Upstream>),
}

/// Longest piece of a trim or of zeroes for a file or device, in bytes: about the 32-bit limit.
const FILE_PIECE: u64 = 4 << 30;

/// The longest piece for memory, in bytes: the volume's thread gives its pages back itself.
const MEMORY_PIECE: u64 = 256 << 20;

/// log2 of half the largest number of pieces of one request. On disks above 64 TiB pieces are longer, because
/// such disks are mostly holes, which take no time.
const PIECES_LOG: u32 = 14;

impl Backend {
    /// Whether the backend reports a failed write-back only to the first sync that looks, as the page
    /// cache does. Around the page cache, each request hears of its own data.
    pub(crate) fn reports_once(&self) -> bool {
        matches!(self, Self::File(file) if file.is_cached())
    }

    /// Whether a request with FUA makes only its own data durable. A server behind a disk
    /// keeps a ledger of its own. The sync of a file covers all that was done before.
    pub(crate) fn syncs_each(&self) -> bool {
        matches!(self, Self::Remote(_))
    }

    /// Most bytes of a request that are done at once.
    pub(crate) fn at_once(&self, op: Op) -> u64 {
        let longest = match (self, op) {
            (Self::Remote(up), op) => return up.at_once(op),
            (Self::File(_), Op::Trim { .. } | Op::WriteZeroes { .. }) => FILE_PIECE,
            (Self::Memory(_), Op::Trim { .. } | Op::WriteZeroes { .. }) => MEMORY_PIECE,
            _ => return u64::MAX,
        };
        longest.max((op.extent().len >> PIECES_LOG).next_power_of_two())
    }

    /// The server behind it, if that is where its data is.
    pub(crate) fn remote(&mut self) -> Option<&mut upstream::Upstream> {
        match self {
            Self::Remote(up) => Some(up),
            Self::File(_) | Self::Memory(_) => None,
        }
    }

    /// Whether the ring has nothing of its connections.
    pub(crate) fn is_idle(&self) -> bool {
        !matches!(self, Self::Remote(up) if !up.is_idle())
    }

    /// Whether nobody needs to wait for it any more, as the volume ends.
    pub(crate) fn is_silent(&self, now: Instant) -> bool {
        matches!(self, Self::Remote(up) if up.is_silent(now))
    }
}
