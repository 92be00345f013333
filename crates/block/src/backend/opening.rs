//! Reasons why a backend cannot be opened.

use std::io;
use std::path::PathBuf;

use parda_address::{Address, Protocol};
use parda_disk::Geometry;
use parda_vhost::blk::MAX_BLOCK;

use super::config::DiskRegion;
use super::file::format::Image;
use crate::descriptors::file_help;

/// Reason why a backend cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file or device cannot be opened.
    #[error(
        "cannot open {path}: {source}{help}",
        path = path.display(), help = file_help(source, path)
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
    /// The file or device is in use now. Later it may be free.
    #[error("{path}: {who}", path = path.display())]
    InUse {
        /// The file or device, as it is configured.
        path: PathBuf,
        /// Its user, and the purpose.
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
    /// The file is an image of a format that this agent does not know.
    #[error("{0}")]
    Format(Image),
    /// The backend cannot be served as it is configured.
    #[error("{0}")]
    Refused(String),
}

impl OpenError {
    /// The backend cannot be written.
    pub(crate) fn read_only(backend: impl std::fmt::Display) -> OpenError {
        OpenError::Refused(format!(
            "{backend} can only be read: set read_only = true for this disk"
        ))
    }
}

/// Checks that `region` is a part of a backend, and that its borders are multiples of `align` bytes.
pub(crate) fn check_region(
    whole: &Geometry,
    align: u32,
    region: DiskRegion,
) -> Result<(), OpenError> {
    let min = u64::from(align);
    let DiskRegion { offset, len } = region;
    let fits = offset.0.checked_add(len.0).is_some_and(|end| end <= whole.size);
    if fits && offset.0.is_multiple_of(min) && len.0.is_multiple_of(min) {
        Ok(())
    } else {
        Err(OpenError::Refused(format!(
            "the region of {len} bytes at {offset} does not fit: the backend has {size} bytes, and \
             both must be multiples of {min}",
            offset = offset.0,
            len = len.0,
            size = whole.size,
        )))
    }
}

/// Checks that guests can use the disk, if it is offered to any.
pub(crate) fn check_guests(disk: &Geometry, listen: &[Address]) -> Result<(), OpenError> {
    let min = disk.blocks.min();
    let guests = listen.iter().find(|address| address.protocol() == Protocol::Vhost);
    match guests {
        Some(address) if min > MAX_BLOCK => Err(OpenError::Refused(format!(
            "the backend takes multiples of {min} bytes only, and no guest has blocks of more than {MAX_BLOCK}: listen by \
             NBD instead of {address}, or use a backend with smaller blocks"
        ))),
        _ => Ok(()),
    }
}
