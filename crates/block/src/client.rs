//! Clients of front ends, and results of their requests.

use parda_address::ExportName;
use parda_disk::status::Descriptor;
use parda_disk::{Errno, Failure, Geometry};

use crate::buffer::Buffer;

/// Client of a front end: a connection, or a guest's device. Keys are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Client {
    Nbd(usize),
    Vhost(usize),
    /// The volume itself, before it closes a disk: it is told no result.
    Volume,
    #[cfg(test)]
    Local(usize),
}

/// Number that a front end gave a request, by which it knows what to reply to. It means nothing to
/// anybody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyHandle(pub(crate) u64);

/// Result of a request that succeeded.
pub(crate) enum Body {
    /// The operation succeeded, and returned no data.
    Done,
    /// The data of a read.
    Data(Buffer),
    /// The answer to a request for block status.
    Status(Vec<Descriptor>),
}

/// Failure of a request whose client is gone: nobody will hear of it, and it was not promised to anybody.
pub(crate) fn gone() -> Failure {
    Failure::new(Errno::Shutdown, "the client is gone")
}

/// A disk as clients see it.
#[derive(Clone, Debug)]
pub(crate) struct Offered {
    pub(crate) name: ExportName,
    pub(crate) description: String,
    pub(crate) geometry: Geometry,
    /// Alignment in bytes of memory and ranges with which the backend moves data of a guest's memory. `None`: it does
    /// not, and data is copied.
    pub(crate) direct: Option<u32>,
}
