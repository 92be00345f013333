//! Reasons why a backend cannot be opened.

use std::io;
use std::path::PathBuf;

use parda_control::Bytes;
use parda_disk::Geometry;
use parda_nbd::client;

use super::config::Region;
use super::file::format::Image;
use crate::descriptors::error_help;

/// Reason why a backend cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be opened.
    #[error(
        "cannot open {path}: {source}{help}",
        path = path.display(), help = error_help(source).unwrap_or_default()
    )]
    Open {
        /// The file or device, as it is configured.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The process has as many disks as its limit of descriptors has room for.
    #[error(
        "the limit of descriptors (RLIMIT_NOFILE, LimitNOFILE= of the unit) has no room for one more disk with its \
         clients: raise it; `parda check` has the number"
    )]
    Descriptors,
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

/// Checks that `region` is a part of a backend, and that its borders are multiples of `align` bytes.
pub(crate) fn check_region(whole: &Geometry, align: u32, region: Region) -> Result<(), OpenError> {
    let min = u64::from(align);
    let Region { offset, len } = region;
    let fits = offset.0.checked_add(len.0).is_some_and(|end| end <= whole.size);
    if fits && offset.0.is_multiple_of(min) && len.0.is_multiple_of(min) {
        Ok(())
    } else {
        Err(OpenError::Region { region, size: whole.size, min: align })
    }
}
