//! Loads of an array, and what two of them tell of it.

use libm::{fabs, log};

use super::{LoadsSeen, OVER, SHOWS};

/// Largest width, over the mean of the outstanding IOs: a line that is flatter shows nothing.
const MOST_WIDTH: f64 = 4.0;

/// Two loads of one array: throughput and outstanding IOs of the first, to be compared with a second one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    /// IOs per second.
    pub(super) rate: f64,
    /// Mean number of outstanding IOs.
    pub(super) outstanding: f64,
}

impl Load {
    /// The load of all hosts in a period.
    pub(super) fn of(seen: &LoadsSeen) -> Load {
        Load { rate: seen.rate, outstanding: seen.outstanding }
    }

    /// Whether another load shows an outsider of this `size` (true) or none (false), by the change of throughput between
    /// the two. `width`: outstanding IOs that the array serves without a queue.
    pub(super) fn tells(&self, seen: &LoadsSeen, width: f64, size: f64) -> Option<bool> {
        let more = log(seen.outstanding / self.outstanding);
        if fabs(more) < SHOWS {
            return None;
        }
        let part = |beside: f64| {
            let of = |outstanding: f64| log(outstanding / (outstanding + beside));
            of(seen.outstanding) - of(self.outstanding)
        };
        let middle = match size.is_finite() {
            true => 0.5 * (part(width) + part(width + size)),
            false => 0.5 * more,
        };
        let brought = log(seen.rate / self.rate);
        Some(if more > 0.0 { brought > middle } else { brought < middle })
    }
}

/// Latency of the array as a line over its outstanding IOs, L = c · (N + width). Fitted to loads without an outsider.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Line {
    weight: f64,
    n: f64,
    l: f64,
    nn: f64,
    nl: f64,
}

impl Line {
    /// Takes in a period without an outsider.
    pub(super) fn add(&mut self, seen: &LoadsSeen) {
        let (n, l) = (seen.outstanding, seen.latency());
        self.weight = (self.weight + 1.0).min(OVER);
        let follows = 1.0 / self.weight;
        self.n += follows * (n - self.n);
        self.l += follows * (l - self.l);
        self.nn += follows * (n * n - self.nn);
        self.nl += follows * (n * l - self.nl);
    }

    /// The width, where loads differed enough to show it.
    pub(super) fn width(&self) -> Option<f64> {
        let spread = self.nn - self.n * self.n;
        let slope = (self.nl - self.n * self.l) / spread;
        let differed = spread > SHOWS * SHOWS * self.n * self.n && slope > 0.0;
        differed.then(|| (self.l / slope - self.n).clamp(0.0, MOST_WIDTH * self.n))
    }
}
