//! Counters of a steered device since the agent started.

use parda_control::latency::Direction;
use parda_steer::measure::{Histogram, Method, Reading};

use crate::latency::Latency;
use crate::status::Counter;

/// Sums over all readings, and what was last read.
#[derive(Default)]
pub(super) struct Done {
    pub(super) reads: Counter,
    pub(super) writes: Counter,
    pub(super) read_latency: Latency,
    pub(super) write_latency: Latency,
    pub(super) requeues: u64,
    pub(super) pending: f64,
    pub(super) method: Option<Method>,
}

impl Done {
    pub(super) fn add(&mut self, reading: &Reading) {
        for class in &reading.classes {
            let counter = match class.direction {
                Direction::Read => &mut self.reads,
                Direction::Write => &mut self.writes,
            };
            counter.ios += class.ios;
            counter.bytes += class.bytes;
        }
        self.read_latency = self.read_latency.plus(&latency(&reading.reads));
        self.write_latency = self.write_latency.plus(&latency(&reading.writes));
        self.requeues += reading.requeues;
        self.pending = reading.pending;
        self.method = Some(reading.method);
    }
}

/// As it travels: each bucket by its middle.
fn latency(histogram: &Histogram) -> Latency {
    Latency { buckets: histogram.buckets().map(|(middle, ios)| (middle.0, ios)).collect() }
}
