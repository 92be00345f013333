//! The load on a target: a mix of IOs, and how many are kept outstanding.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The mix of a load's IOs: size, fraction of reads, fraction of random offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LoadMix {
    /// The size of an IO, in bytes.
    pub size: u64,
    /// Reads, in percent of IOs; the rest are writes.
    pub read_percent: u32,
    /// IOs at random offsets, in percent. The rest are sequential.
    pub random_percent: u32,
}

/// A load: a mix, and the number of outstanding IOs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProbeLoad {
    /// Mix of the IOs.
    #[serde(flatten)]
    pub mix: LoadMix,
    /// Number of IOs kept outstanding, by a closed loop.
    pub outstanding: u32,
}

/// The question that a load answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// Latency and throughput over outstanding IOs: a point on the curve of its mix.
    Depth,
    /// Latency against size, for the size model.
    Size,
    /// Read % against random % against size, at one depth: SPEED'08 figure 2.
    Mix,
    /// A load that was run before, again, to see how repeatable the target is.
    Repeat,
}

impl fmt::Display for LoadMix {
    /// Such as `4 KiB, 67 % reads, 70 % random`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.size {
            size if size % (1 << 20) == 0 => write!(f, "{} MiB", size >> 20)?,
            size if size % (1 << 10) == 0 => write!(f, "{} KiB", size >> 10)?,
            size => write!(f, "{size} B")?,
        }
        match self.read_percent {
            100 => write!(f, ", reads")?,
            0 => write!(f, ", writes")?,
            some => write!(f, ", {some} % reads")?,
        }
        match self.random_percent {
            100 => write!(f, ", random"),
            0 => write!(f, ", sequential"),
            some => write!(f, ", {some} % random"),
        }
    }
}

impl fmt::Display for ProbeLoad {
    /// Such as `4 KiB, reads, random, 16 outstanding`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} outstanding", self.mix, self.outstanding)
    }
}
