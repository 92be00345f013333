//! The latency of an IO against its size: latency = m · size + C (SPEED'08 §3.1).
//!
//! Large IOs take longer without the array being any busier. Scaling each latency to what the
//! model gives for one reference size keeps a host that turns to large IOs from looking like
//! congestion.

use crate::units::{Bytes, Span};

/// How latencies are scaled to the reference size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SizeModel {
    /// Not at all: the threshold is compared with the latency as it is.
    Off,
    /// By a line that was measured or computed beforehand.
    Fixed(Line),
    /// By a line fitted to what completes, each direction by itself.
    Learned,
}

/// latency = `per_byte` · size + `fixed`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// m, in seconds per byte.
    pub per_byte: f64,
    /// C.
    pub fixed: Span,
}

impl Line {
    /// What to multiply the latency of an IO of `size` by, to get what one of `reference` would
    /// have had. 1 where the line says nothing.
    #[must_use]
    pub fn factor(&self, size: Bytes, reference: Bytes) -> f64 {
        let at = |b: Bytes| self.per_byte * b.0 as f64 + self.fixed.secs();
        let (num, den) = (at(reference), at(size));
        if num > 0.0 && den > 0.0 { num / den } else { 1.0 }
    }
}

/// Past intervals count for this much of the fit at each new one: about twenty are remembered.
const MEMORY: f64 = 0.95;

/// A least-squares line through (size, latency), forgetting exponentially by interval.
#[derive(Clone, Debug, Default)]
pub struct Fit {
    n: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl Fit {
    /// Adds `n` IOs that are much alike.
    pub fn add_many(&mut self, n: u64, size: Bytes, latency: Span) {
        // Kilobytes and milliseconds keep the sums near one another in magnitude.
        let (x, y) = (size.0 as f64 / 1024.0, latency.secs() * 1e3);
        let n = n as f64;
        self.n += n;
        self.x += n * x;
        self.y += n * y;
        self.xx += n * (x * x);
        self.xy += n * (x * y);
    }

    /// Ends an interval: what was learned so far counts a little less.
    pub fn age(&mut self) {
        for sum in [&mut self.n, &mut self.x, &mut self.y, &mut self.xx, &mut self.xy] {
            *sum *= MEMORY;
        }
    }

    /// The line, if the sizes seen differ enough to draw one. Neither m nor C is ever negative.
    #[must_use]
    pub fn line(&self) -> Option<Line> {
        let var = self.n * self.xx - self.x * self.x;
        // Sizes that vary by less than a tenth of their mean say nothing about a slope.
        if self.n < 32.0 || var < 0.01 * self.x * self.x {
            return None;
        }
        let slope = ((self.n * self.xy - self.x * self.y) / var).max(0.0);
        let fixed = ((self.y - slope * self.x) / self.n).max(0.0);
        Some(Line { per_byte: slope / 1024.0 / 1e3, fixed: Span::from_secs(fixed / 1e3) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_recovered_from_mixed_sizes() {
        let mut fit = Fit::default();
        for i in 0..200u64 {
            let size = Bytes::kib(4 << (i % 5));
            fit.add_many(1, size, Span(5_000_000 + size.0 * 20));
        }
        let line = fit.line().unwrap();
        assert!((line.per_byte * 1e9 - 20.0).abs() < 0.01, "{line:?}");
        assert!((line.fixed.secs() - 0.005).abs() < 1e-6, "{line:?}");
    }

    #[test]
    fn one_size_gives_no_line() {
        let mut fit = Fit::default();
        for i in 0..200 {
            fit.add_many(1, Bytes::kib(16), Span::from_micros(1000 + i));
        }
        assert_eq!(fit.line(), None);
    }

    #[test]
    fn old_intervals_fade() {
        let mut fit = Fit::default();
        let feed = |fit: &mut Fit, per_byte: u64| {
            for i in 0..100u64 {
                let size = Bytes::kib(4 << (i % 5));
                fit.add_many(1, size, Span(1_000_000 + size.0 * per_byte));
            }
            fit.age();
        };
        (0..50).for_each(|_| feed(&mut fit, 10));
        (0..100).for_each(|_| feed(&mut fit, 40));
        let slope = fit.line().unwrap().per_byte * 1e9;
        assert!((slope - 40.0).abs() < 0.5, "{slope}");
    }

    #[test]
    fn scaling_maps_the_line_to_one_value() {
        let line = Line { per_byte: 20e-9, fixed: Span::from_millis(1) };
        let reference = Bytes::kib(8);
        let want = line.per_byte * 8192.0 + 0.001;
        for kib in [4, 8, 64, 1024] {
            let size = Bytes::kib(kib);
            let latency = line.per_byte * size.0 as f64 + 0.001;
            assert!((latency * line.factor(size, reference) - want).abs() < 1e-12);
        }
    }
}
