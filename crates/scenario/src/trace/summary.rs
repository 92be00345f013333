//! What a trace is made of.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Trace, TraceIo, UnderWay};

/// The window in which arrivals are counted for [`Arrivals::dispersion`], in ns.
const WINDOW: u64 = 100_000_000;

/// What a trace is made of. Times are in seconds unless they say otherwise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// What wrote it, and what of it is an arrival.
    pub format: String,
    /// Reads and writes.
    pub ios: u64,
    /// How many of a hundred IOs are reads.
    pub read_percent: f64,
    /// How many of a hundred IOs do not begin where the last one of their direction has ended.
    pub random_percent: f64,
    /// The sizes, smallest first.
    pub sizes: Vec<SizeCount>,
    /// Of all IOs together.
    pub bytes: u64,
    /// Where the furthest IO ends: the smallest disk on which all of it has its place, in bytes.
    pub disk: u64,
    /// When they arrive; `None` if the trace does not say.
    pub arrivals: Option<Arrivals>,
    /// How many were under way at the device that was traced; `None` if the trace does not say.
    pub under_way: Option<UnderWay>,
    /// Lines that are neither read nor write, by what they are.
    pub skipped: BTreeMap<&'static str, u64>,
}

/// How many IOs have a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SizeCount {
    /// In bytes.
    pub size: u64,
    /// So many.
    pub ios: u64,
}

/// When IOs arrive.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Arrivals {
    /// From the first to the last, in seconds.
    pub seconds: f64,
    /// A second, on average.
    pub iops: f64,
    /// In the second that has most.
    pub peak_iops: u64,
    /// Variance over mean of how many arrive in 100 ms: 0 at even times, 1 of a Poisson process,
    /// more the more they come in bursts.
    pub dispersion: f64,
}

impl Trace {
    /// What it is made of.
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
    // What comes after the last whole window says nothing of one.
    let windows = (last / WINDOW).max(1);
    let counts = counts(ios, WINDOW).filter(|(window, _)| *window < windows);
    let (sum, squares) = counts.fold((0.0, 0.0), |(sum, squares), (_, count)| {
        (sum + count as f64, squares + (count as f64).powi(2))
    });
    let mean = sum / windows as f64;
    let variance = squares / windows as f64 - mean * mean;
    Arrivals {
        seconds,
        // Between n arrivals lie n - 1 times.
        iops: if last > 0 { (ios.len() - 1) as f64 / seconds } else { 0.0 },
        peak_iops: counts_most(ios),
        dispersion: if mean > 0.0 { variance.max(0.0) / mean } else { 0.0 },
    }
}

fn counts_most(ios: &[TraceIo]) -> u64 {
    counts(ios, 1_000_000_000).map(|(_, count)| count).max().unwrap_or(0)
}

/// How many arrive in each window in which any do.
fn counts(ios: &[TraceIo], window: u64) -> impl Iterator<Item = (u64, u64)> {
    let chunks = ios.chunk_by(move |a, b| a.at / window == b.at / window);
    chunks.map(move |chunk| (chunk[0].at / window, chunk.len() as u64))
}
