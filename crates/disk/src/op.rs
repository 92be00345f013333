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

    /// The same on another range; FLUSH has none.
    #[must_use]
    pub fn at(mut self, range: Extent) -> Self {
        match &mut self {
            Self::Read(extent)
            | Self::Write { extent, .. }
            | Self::Trim { extent, .. }
            | Self::WriteZeroes { extent, .. }
            | Self::BlockStatus { extent, .. }
            | Self::Cache(extent) => *extent = range,
            Self::Flush => {}
        }
        self
    }

    /// Whether it changes data: a write, trim or zeroes.
    #[must_use]
    pub fn changes(self) -> bool {
        matches!(self, Self::Write { .. } | Self::Trim { .. } | Self::WriteZeroes { .. })
    }

    /// Whether it changes data that is to be durable before the reply.
    #[must_use]
    pub fn fua(self) -> bool {
        match self {
            Self::Write { fua, .. } | Self::Trim { fua, .. } | Self::WriteZeroes { fua, .. } => fua,
            Self::Read(_) | Self::Flush | Self::BlockStatus { .. } | Self::Cache(_) => false,
        }
    }

    /// The same without FUA.
    #[must_use]
    pub fn without_fua(mut self) -> Self {
        if let Self::Write { fua, .. } | Self::Trim { fua, .. } | Self::WriteZeroes { fua, .. } =
            &mut self
        {
            *fua = false;
        }
        self
    }
}
