//! Description of a load: servers, requests, depth and time.

use std::ops::Range;
use std::time::Duration;

use parda_address::Uri;
use parda_nbd::TransmissionFlags;
use parda_nbd::client::Agreed;

/// Kind of requests, and the order of their offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads at consecutive offsets.
    Read,
    /// Writes at consecutive offsets.
    Write,
    /// Reads at random offsets.
    RandomRead,
    /// Writes at random offsets.
    RandomWrite,
    /// Reads and writes at random offsets.
    Mixed {
        /// Percentage of reads, 0 to 100.
        reads: u8,
    },
}

impl Operation {
    /// Whether some requests are writes.
    #[must_use]
    pub fn writes(self) -> bool {
        !matches!(self, Self::Read | Self::RandomRead)
    }

    /// Whether offsets are random.
    #[must_use]
    pub fn is_random(self) -> bool {
        !matches!(self, Self::Read | Self::Write)
    }
}

/// A load, and how long it is measured.
#[derive(Clone, Debug)]
pub struct BenchPlan {
    /// The exports; each gets [`BenchPlan::connections`] connections.
    pub uris: Vec<Uri>,
    /// Kind of the requests, and the order of their offsets.
    pub operation: Operation,
    /// Size of each request, in bytes.
    pub block: u32,
    /// Requests that each connection keeps outstanding.
    pub depth: u32,
    /// Connections to each export.
    pub connections: u32,
    /// Threads that drive the connections.
    pub threads: u32,
    /// Time for which the load runs before it is measured.
    pub warmup: Duration,
    /// Length of the measured time.
    pub time: Duration,
    /// The bytes of the export that requests touch; the whole export if absent.
    pub range: Option<Range<u64>>,
    /// Seed of the sequence of offsets.
    pub seed: u64,
    /// Time without a reply after which a server is given up.
    pub patience: Duration,
    /// Process ids of servers whose CPU time is measured.
    pub server: Vec<u32>,
}

impl BenchPlan {
    /// A plan of 4 KiB requests, one outstanding on one connection, for three seconds.
    #[must_use]
    pub fn new(uris: Vec<Uri>, operation: Operation) -> Self {
        Self {
            uris,
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
        let refuse = |why: String| Err(PlanError { export: uri.export.to_string(), why });
        let (size, min, max) = (agreed.size, agreed.blocks.min(), agreed.blocks.max());
        let block = self.block;
        if self.operation.writes() && agreed.flags.contains(TransmissionFlags::READ_ONLY) {
            return refuse("is read-only".to_owned());
        }
        if block > max || !block.is_multiple_of(min) {
            let takes = format!("takes multiples of {min} bytes up to {max}");
            return refuse(format!("{takes}, and {block} bytes were asked for"));
        }
        let range = self.range.clone().unwrap_or(0..size);
        let range = range.start..range.end.min(size);
        if !range.start.is_multiple_of(u64::from(min)) {
            let offset = range.start;
            let why = format!(
                "cannot be used: the offset {offset} is no multiple of the server's block of {min}"
            );
            return refuse(why);
        }
        if range.end.saturating_sub(range.start) < u64::from(block) {
            let Range { start, end } = range;
            return refuse(format!("of {size} bytes has no {block} bytes from {start} to {end}"));
        }
        Ok(range)
    }
}

/// A load that does not fit an export.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("export {export:?} {why}")]
pub struct PlanError {
    /// Name of the export.
    pub export: String,
    /// Reason, as the end of a sentence.
    pub why: String,
}
