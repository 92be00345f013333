//! Operations that a client can ask for.

use crate::extent::Extent;

/// Operation on a disk. Its range is within the disk and aligned: whoever reads requests off a
/// wire has checked that ([`Geometry::check`](crate::Geometry::check)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read the data of a range.
    Read(Extent),
    /// Write the payload that follows.
    Write {
        /// Range of the disk.
        extent: Extent,
        /// Durable before the reply.
        fua: bool,
    },
    /// Make every acknowledged write durable.
    Flush,
    /// Give up the contents of a range.
    Trim {
        /// Range of the disk.
        extent: Extent,
        /// Durable before the reply.
        fua: bool,
    },
    /// Makes a range read as zeroes.
    WriteZeroes {
        /// Range of the disk.
        extent: Extent,
        /// Durable before the reply.
        fua: bool,
        /// The range must stay allocated.
        no_hole: bool,
        /// Fail with ENOTSUP if it would take as long as writing the zeroes.
        fast: bool,
    },
    /// Fetch a range into the cache. Advice: nothing depends on it.
    Cache(Extent),
    /// Tell which parts of a range are holes or read as zeroes.
    BlockStatus {
        /// Range that is asked about. The answer may end before it does.
        extent: Extent,
        /// Answer with one extent.
        one: bool,
    },
}

impl Op {
    /// The range that it is about; empty for FLUSH.
    #[must_use]
    pub fn extent(self) -> Extent {
        match self {
            Self::Read(extent)
            | Self::Write { extent, .. }
            | Self::Trim { extent, .. }
            | Self::WriteZeroes { extent, .. }
            | Self::BlockStatus { extent, .. }
            | Self::Cache(extent) => extent,
            Self::Flush => Extent { offset: 0, len: 0 },
        }
    }
}
