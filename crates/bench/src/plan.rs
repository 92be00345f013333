//! What to do to which server.

use std::ops::Range;
use std::time::Duration;

use parda_nbd::TransmissionFlags;
use parda_nbd::client::Agreed;
use parda_nbd::uri::Uri;

/// What requests do, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads, each after the one before.
    Read,
    /// Writes, each after the one before.
    Write,
    /// Reads anywhere.
    RandomRead,
    /// Writes anywhere.
    RandomWrite,
    /// Reads and writes anywhere.
    Mixed {
        /// How many are reads, in percent.
        reads: u8,
    },
}

impl Operation {
    /// Whether any of the requests is a write.
    #[must_use]
    pub fn writes(self) -> bool {
        !matches!(self, Self::Read | Self::RandomRead)
    }

    /// Whether requests go anywhere.
    #[must_use]
    pub fn is_random(self) -> bool {
        !matches!(self, Self::Read | Self::Write)
    }
}

/// A load, and how long it is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The exports; each gets [`Plan::connections`] connections.
    pub uris: Vec<Uri>,
    /// What requests do.
    pub operation: Operation,
    /// Bytes of each request.
    pub block: u32,
    /// Requests that each connection keeps outstanding.
    pub depth: u32,
    /// Connections to each export.
    pub connections: u32,
    /// Threads that drive the connections.
    pub threads: u32,
    /// How long the load runs before it is measured.
    pub warmup: Duration,
    /// How long it is measured.
    pub time: Duration,
    /// The bytes of the export that requests touch; all of it if absent.
    pub range: Option<Range<u64>>,
    /// Where the sequence of offsets begins.
    pub seed: u64,
    /// How long a server may be silent before it is given up.
    pub patience: Duration,
    /// Processes whose CPU time is measured beside the load.
    pub server: Vec<u32>,
}

impl Plan {
    /// 4 KiB, one request at a time on one connection, three seconds.
    #[must_use]
    pub fn new(uri: Uri, operation: Operation) -> Self {
        Self {
            uris: vec![uri],
            operation,
            block: 4096,
            depth: 1,
            connections: 1,
            threads: 1,
            warmup: Duration::from_millis(500),
            time: Duration::from_secs(3),
            range: None,
            seed: 1,
            patience: Duration::from_secs(10),
            server: Vec::new(),
        }
    }

    /// The part of an export that requests touch, in whole blocks.
    pub(crate) fn range_of(&self, uri: &Uri, agreed: &Agreed) -> Result<Range<u64>, PlanError> {
        let name = || uri.export.to_string();
        let (size, min, max) = (agreed.size, agreed.blocks.min(), agreed.blocks.max());
        if self.operation.writes() && agreed.flags.contains(TransmissionFlags::READ_ONLY) {
            return Err(PlanError::ReadOnly(name()));
        }
        if self.block > max || !self.block.is_multiple_of(min) {
            return Err(PlanError::Block { export: name(), block: self.block, min, max });
        }
        let range = self.range.clone().unwrap_or(0..size);
        let range = range.start..range.end.min(size);
        if !range.start.is_multiple_of(u64::from(min)) {
            return Err(PlanError::Offset { export: name(), offset: range.start, min });
        }
        if range.end.saturating_sub(range.start) < u64::from(self.block) {
            return Err(PlanError::Range { export: name(), range, size, block: self.block });
        }
        Ok(range)
    }
}

/// Why a load does not fit an export.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The block size is not one that the server takes.
    #[error(
        "export {export:?} takes multiples of {min} bytes up to {max}, and {block} bytes were asked for"
    )]
    Block {
        /// The export.
        export: String,
        /// What was asked for, in bytes.
        block: u32,
        /// The server's minimum block size in bytes.
        min: u32,
        /// The server's maximum payload in bytes.
        max: u32,
    },
    /// The range begins within a block.
    #[error("export {export:?}: the offset {offset} is no multiple of the server's block of {min}")]
    Offset {
        /// The export.
        export: String,
        /// Where the range begins.
        offset: u64,
        /// The server's minimum block size in bytes.
        min: u32,
    },
    /// The range holds no block.
    #[error(
        "export {export:?} of {size} bytes has no {block} bytes from {start} to {end}",
        start = range.start, end = range.end
    )]
    Range {
        /// The export.
        export: String,
        /// What was asked for.
        range: Range<u64>,
        /// The export's size in bytes.
        size: u64,
        /// Bytes of a request.
        block: u32,
    },
    /// Writes to what cannot be written.
    #[error("export {0:?} is read-only")]
    ReadOnly(String),
}
