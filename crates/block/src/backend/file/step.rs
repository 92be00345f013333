//! Steps of a request on a file.

use super::unaligned::Side;

/// Where a request is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// So many bytes were read or written.
    Transfer(u64),
    /// fallocate with this mode.
    Allocate(i32),
    /// So many zeroes were written, as the file system knows no better way.
    Zeroes(u64),
    /// A block of which the request has a part is read.
    ReadEdge(Side),
    /// The block at an edge of an unaligned write is written.
    WriteEdge(Side),
    /// Data that were written are made durable.
    Sync,
    /// Fetching it into the page cache.
    Fetch,
}
