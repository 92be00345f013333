//! Counters and latencies of one load, and their summary.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Largest latency that the histogram can hold, in nanoseconds. Longer latencies count as this.
const LONGEST: u64 = 100_000_000_000;

/// Counters and latencies of a load over its measured time.
#[derive(Clone, Debug)]
pub struct LoadMeasured {
    /// Length of the measured time.
    pub elapsed: Duration,
    /// Number of completed reads.
    pub reads: u64,
    /// Number of completed writes.
    pub writes: u64,
    /// Size of each request, in bytes.
    pub block: u32,
    /// Latencies in nanoseconds, from before the send of a request to the end of its reply.
    pub latency: Histogram<u64>,
    /// CPU time of the client's threads.
    pub client_cpu: Duration,
    /// CPU time of the watched servers, if any were watched.
    pub server_cpu: Option<Duration>,
}

impl LoadMeasured {
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

    /// Adds what another thread measured over the same time.
    pub(crate) fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.client_cpu += other.client_cpu;
        // All histograms have the same bounds, so adding cannot fail.
        let added = self.latency.add(&other.latency);
        debug_assert!(added.is_ok());
    }

    /// Completed IOs: reads and writes.
    #[must_use]
    pub fn ios(&self) -> u64 {
        self.reads + self.writes
    }

    /// Completed IOs per second.
    #[must_use]
    pub fn iops(&self) -> f64 {
        self.ios() as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// The numbers for tables and scripts.
    #[must_use]
    pub fn summary(&self) -> BenchSummary {
        let us = |quantile| self.latency.value_at_quantile(quantile) as f64 / 1e3;
        let per_io = |cpu: Duration| cpu.as_secs_f64() * 1e6 / self.ios().max(1) as f64;
        let seconds = self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        BenchSummary {
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

/// Rates, latency percentiles and CPU time of a load, as `parda-lab bench --json` prints them.
#[derive(Clone, Debug, Serialize)]
pub struct BenchSummary {
    /// Length of the measured time, in seconds.
    pub seconds: f64,
    /// Number of completed reads.
    pub reads: u64,
    /// Number of completed writes.
    pub writes: u64,
    /// Reads and writes per second.
    pub iops: f64,
    /// Bytes read and written per second.
    pub bytes_per_s: f64,
    /// Mean latency, in microseconds.
    pub mean_us: f64,
    /// Median latency, in microseconds.
    pub p50_us: f64,
    /// 99th percentile of latency, in microseconds.
    pub p99_us: f64,
    /// 99.9th percentile of latency, in microseconds.
    pub p999_us: f64,
    /// Longest latency, in microseconds.
    pub max_us: f64,
    /// CPU time of the client per IO, in microseconds.
    pub client_cpu_us_per_io: f64,
    /// Mean number of cores that the client kept busy.
    pub client_cores: f64,
    /// CPU time of the watched servers per IO, in microseconds.
    pub server_cpu_us_per_io: Option<f64>,
    /// Mean number of cores that the watched servers kept busy.
    pub server_cores: Option<f64>,
}
