//! Statistics of a trace.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Trace, TraceIo, UnderWay};

/// Window over which arrivals are counted for [`Arrivals::dispersion`], in ns.
const WINDOW: u64 = 100_000_000;

/// Statistics of a trace. Times are in seconds unless stated otherwise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Format of the trace, and what counts as an arrival.
    pub format: String,
    /// Number of reads and writes.
    pub ios: u64,
    /// Percentage of IOs that are reads.
    pub read_percent: f64,
    /// Percentage of IOs that do not begin at the end of the previous IO of their direction.
    pub random_percent: f64,
    /// Number of IOs of each size, smallest size first.
    pub sizes: Vec<SizeCount>,
    /// Bytes of all IOs together.
    pub bytes: u64,
    /// Size in bytes of the smallest disk that all IOs fit on.
    pub disk: u64,
    /// Statistics of arrivals; `None` if the trace has no times.
    pub arrivals: Option<Arrivals>,
    /// IOs that were outstanding at the traced device; `None` if the trace has no completions.
    pub under_way: Option<UnderWay>,
    /// Number of lines that are neither reads nor writes, by kind.
    pub skipped: BTreeMap<&'static str, u64>,
}

/// Number of IOs of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SizeCount {
    /// Size of the IOs, in bytes.
    pub size: u64,
    /// Number of IOs of this size.
    pub ios: u64,
}

/// Statistics of the arrival times of IOs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Arrivals {
    /// Time from the first to the last arrival, in seconds.
    pub seconds: f64,
    /// Mean arrivals per second.
    pub iops: f64,
    /// Arrivals in the busiest second.
    pub peak_iops: u64,
    /// Variance over mean of the number of arrivals in 100 ms: 0 for evenly spaced arrivals, 1 for a
    /// Poisson process, more for bursts.
    pub dispersion: f64,
}

impl Trace {
    /// Statistics of the trace.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let ios = self.ios();
        let percent = |n: u64| 100.0 * n as f64 / ios.len() as f64;
        let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
        let (mut reads, mut random, mut bytes, mut after) = (0, 0, 0, [None; 2]);
        for io in ios {
            let TraceIo { offset, len, read, .. } = *io;
            reads += u64::from(read);
            bytes += u64::from(len);
            *sizes.entry(len.into()).or_default() += 1;
            random += u64::from(after[usize::from(read)] != Some(offset));
            after[usize::from(read)] = Some(offset + u64::from(len));
        }
        Summary {
            format: self.format.to_string(),
            ios: ios.len() as u64,
            read_percent: percent(reads),
            random_percent: percent(random),
            sizes: sizes.into_iter().map(|(size, ios)| SizeCount { size, ios }).collect(),
            bytes,
            disk: self.end.0,
            arrivals: self.has_times().then(|| arrivals(ios)),
            under_way: self.under_way,
            skipped: self.skipped.clone(),
        }
    }
}

fn arrivals(ios: &[TraceIo]) -> Arrivals {
    let last = ios.last().map_or(0, |io| io.at);
    let seconds = last as f64 / 1e9;
    // The incomplete window at the end is left out.
    let windows = (last / WINDOW).max(1);
    let counts = counts(ios, WINDOW).filter(|(window, _)| *window < windows);
    let (sum, squares) = counts.fold((0.0, 0.0), |(sum, squares), (_, count)| {
        (sum + count as f64, squares + (count as f64).powi(2))
    });
    let mean = sum / windows as f64;
    let variance = squares / windows as f64 - mean * mean;
    Arrivals {
        seconds,
        // There are n - 1 times between n arrivals.
        iops: if last > 0 { (ios.len() - 1) as f64 / seconds } else { 0.0 },
        peak_iops: counts_most(ios),
        dispersion: if mean > 0.0 { variance.max(0.0) / mean } else { 0.0 },
    }
}

fn counts_most(ios: &[TraceIo]) -> u64 {
    counts(ios, 1_000_000_000).map(|(_, count)| count).max().unwrap_or(0)
}

/// Number of arrivals in each window that has any, with the window's index.
fn counts(ios: &[TraceIo], window: u64) -> impl Iterator<Item = (u64, u64)> {
    let chunks = ios.chunk_by(move |a, b| a.at / window == b.at / window);
    chunks.map(move |chunk| (chunk[0].at / window, chunk.len() as u64))
}
