//! What was measured.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// A latency beyond this counts as this, in nanoseconds.
const LONGEST: u64 = 100_000_000_000;

/// What a load did while it was measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// How long it was measured.
    pub elapsed: Duration,
    /// Reads that were done.
    pub reads: u64,
    /// Writes that were done.
    pub writes: u64,
    /// Bytes of each.
    pub block: u32,
    /// From before the send of a request to its whole reply, in nanoseconds.
    pub latency: Histogram<u64>,
    /// CPU time of the client's threads.
    pub client_cpu: Duration,
    /// CPU time of the servers that were watched, if any were.
    pub server_cpu: Option<Duration>,
}

impl Measured {
    pub(crate) fn new(block: u32) -> Self {
        Self {
            elapsed: Duration::ZERO,
            reads: 0,
            writes: 0,
            block,
            latency: Histogram::new_with_bounds(100, LONGEST, 3)
                .expect("the bounds are constants that fit"),
            client_cpu: Duration::ZERO,
            server_cpu: None,
        }
    }

    /// Adds what another thread did in the same time.
    pub(crate) fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.client_cpu += other.client_cpu;
        // All histograms have the same bounds, so that adding cannot fail.
        let added = self.latency.add(&other.latency);
        debug_assert!(added.is_ok());
    }

    /// IOs that were done.
    #[must_use]
    pub fn ios(&self) -> u64 {
        self.reads + self.writes
    }

    /// IOs a second.
    #[must_use]
    pub fn iops(&self) -> f64 {
        self.ios() as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// The numbers that people and scripts read.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let us = |quantile| self.latency.value_at_quantile(quantile) as f64 / 1e3;
        let per_io = |cpu: Duration| cpu.as_secs_f64() * 1e6 / self.ios().max(1) as f64;
        let seconds = self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        Summary {
            seconds: self.elapsed.as_secs_f64(),
            reads: self.reads,
            writes: self.writes,
            iops: self.iops(),
            bytes_per_s: self.iops() * f64::from(self.block),
            mean_us: self.latency.mean() / 1e3,
            p50_us: us(0.5),
            p99_us: us(0.99),
            p999_us: us(0.999),
            max_us: self.latency.max() as f64 / 1e3,
            client_cpu_us_per_io: per_io(self.client_cpu),
            client_cores: self.client_cpu.as_secs_f64() / seconds,
            server_cpu_us_per_io: self.server_cpu.map(per_io),
            server_cores: self.server_cpu.map(|cpu| cpu.as_secs_f64() / seconds),
        }
    }
}

/// [`Measured`] as numbers.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// How long it was measured.
    pub seconds: f64,
    /// Reads that were done.
    pub reads: u64,
    /// Writes that were done.
    pub writes: u64,
    /// Both, a second.
    pub iops: f64,
    /// Bytes read and written, a second.
    pub bytes_per_s: f64,
    /// Mean latency.
    pub mean_us: f64,
    /// Median latency.
    pub p50_us: f64,
    /// 99th percentile of latency.
    pub p99_us: f64,
    /// 99.9th percentile of latency.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
    /// CPU time of the client for each IO.
    pub client_cpu_us_per_io: f64,
    /// How many cores the client kept busy.
    pub client_cores: f64,
    /// CPU time of the watched servers for each IO.
    pub server_cpu_us_per_io: Option<f64>,
    /// How many cores the watched servers kept busy.
    pub server_cores: Option<f64>,
}
