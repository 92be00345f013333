//! The latency of an IO against its size: latency = m · size + C (SPEED'08 §3.1).
//!
//! Large IOs take longer without the array being any busier. Scaling each latency to one reference size
//! keeps a host that turns to large IOs from looking like congestion.

use crate::units::{Bytes, Span};

/// Scaling of latencies to the reference size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SizeModel {
    /// No scaling: the threshold is compared with the measured latency.
    Off,
    /// A line that was measured or computed beforehand.
    Fixed(Line),
    /// A line fitted to the completions on all hosts, for each direction.
    Learned,
}

/// latency = `per_byte` · size + `fixed`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// m, in seconds per byte.
    pub per_byte: f64,
    /// Constant C: latency of an IO without bytes.
    pub fixed: Span,
}

impl Line {
    /// Factor from the latency of an IO of `size` to that of an IO of `reference`; 1 without a positive
    /// latency.
    #[must_use]
    pub fn factor(&self, size: Bytes, reference: Bytes) -> f64 {
        let at = |b: Bytes| self.per_byte * b.0 as f64 + self.fixed.secs();
        let (num, den) = (at(reference), at(size));
        if num > 0.0 && den > 0.0 { num / den } else { 1.0 }
    }
}

/// Sums over IOs beyond those of their sizes and latencies, in KiB and milliseconds: so their magnitudes are
/// similar. Both are zero in reports of an older version.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moments {
    /// Sum of the squares of the sizes.
    pub squares: f64,
    /// Sum of size times latency.
    pub products: f64,
}

impl Moments {
    /// Moments of `ios` IOs of one size and latency.
    #[must_use]
    pub fn of(ios: u64, size: Bytes, latency: Span) -> Moments {
        let (size, ios) = (kib(size.0), ios as f64);
        Moments { squares: ios * size * size, products: ios * size * latency.secs() * 1e3 }
    }

    /// Sums over the IOs of both.
    #[must_use]
    pub fn plus(self, other: Moments) -> Moments {
        Moments { squares: self.squares + other.squares, products: self.products + other.products }
    }
}

fn kib(bytes: u64) -> f64 {
    bytes as f64 / 1024.0
}

/// All sums that a line is fitted by, over any number of hosts: in KiB and milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    ios: f64,
    sizes: f64,
    latencies: f64,
    moments: Moments,
}

impl Sums {
    /// Sums over a host's IOs of one direction. Zero if the host publishes no moments: its version is older.
    #[must_use]
    pub fn of(ios: u64, bytes: Bytes, latency: Span, moments: Moments) -> Sums {
        if moments.squares <= 0.0 {
            return Sums::default();
        }
        let latencies = latency.secs() * 1e3;
        Sums { ios: ios as f64, sizes: kib(bytes.0), latencies, moments }
    }

    /// Sums over the IOs of both.
    #[must_use]
    pub fn plus(self, other: Sums) -> Sums {
        Sums {
            ios: self.ios + other.ios,
            sizes: self.sizes + other.sizes,
            latencies: self.latencies + other.latencies,
            moments: self.moments.plus(other.moments),
        }
    }

    /// The sums, multiplied by `factor`.
    #[must_use]
    pub fn times(self, factor: f64) -> Sums {
        Sums {
            ios: self.ios * factor,
            sizes: self.sizes * factor,
            latencies: self.latencies * factor,
            moments: Moments {
                squares: self.moments.squares * factor,
                products: self.moments.products * factor,
            },
        }
    }
}

/// Past periods count for this much of the fit at each new one: about twenty are remembered.
const MEMORY: f64 = 0.95;

/// A least-squares line through (size, latency), forgetting exponentially by period.
///
/// The slope is the one within periods: sizes and latencies count as deviations from the means of their own
/// period. The array's load differs between periods. Where others send larger IOs then, size would be taken
/// for the cause.
#[derive(Clone, Debug, Default)]
pub struct Fit {
    n: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl Fit {
    /// Adds the sums of a period. Earlier periods lose a little weight.
    pub fn period(&mut self, sums: Sums) {
        for sum in [&mut self.n, &mut self.x, &mut self.y, &mut self.xx, &mut self.xy] {
            *sum *= MEMORY;
        }
        let Sums { ios, sizes, latencies, moments } = sums;
        if ios > 0.0 {
            self.n += ios;
            self.x += sizes;
            self.y += latencies;
            self.xx += (moments.squares - sizes * sizes / ios).max(0.0);
            self.xy += moments.products - sizes * latencies / ios;
        }
    }

    /// The line, if the sizes seen differ enough to draw one. Neither m nor C is ever negative.
    #[must_use]
    pub fn line(&self) -> Option<Line> {
        // Sizes that vary by less than a tenth of their mean say nothing about a slope.
        if self.n < 32.0 || self.n * self.xx < 0.01 * self.x * self.x {
            return None;
        }
        let slope = (self.xy / self.xx).max(0.0);
        let fixed = ((self.y - slope * self.x) / self.n).max(0.0);
        Some(Line { per_byte: slope / 1024.0 / 1e3, fixed: Span::from_secs(fixed / 1e3) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// IOs of a host, each by its size and its latency.
    fn sums(ios: impl IntoIterator<Item = (u64, Span)>) -> Sums {
        ios.into_iter().fold(Sums::default(), |sums, (kib, latency)| {
            let size = Bytes::kib(kib);
            sums.plus(Sums::of(1, size, latency, Moments::of(1, size, latency)))
        })
    }

    fn on_a_line(fixed: u64, per_byte: u64) -> Sums {
        let sizes = (0..200u64).map(|i| 4 << (i % 5));
        sums(sizes.map(|kib| (kib, Span(fixed + kib * 1024 * per_byte))))
    }

    #[test]
    fn a_line_is_recovered_from_mixed_sizes() {
        let mut fit = Fit::default();
        fit.period(on_a_line(5_000_000, 20));
        let line = fit.line().unwrap();
        assert!((line.per_byte * 1e9 - 20.0).abs() < 0.01, "{line:?}");
        assert!((line.fixed.secs() - 0.005).abs() < 1e-6, "{line:?}");
    }

    #[test]
    fn one_size_gives_no_line_and_two_hosts_of_one_size_each_give_one() {
        let of = |kib| sums((0..200).map(|_| (kib, Span(4_000_000 + kib * 1024 * 50))));
        let line = |sums: Sums| {
            let mut fit = Fit::default();
            (0..3).for_each(|_| fit.period(sums));
            fit.line()
        };
        assert_eq!(line(of(16)), None);
        let both = line(of(16).plus(of(256))).unwrap();
        assert!((both.per_byte * 1e9 - 50.0).abs() < 0.01, "{both:?}");
        // Rates of intervals of any length: only how many IOs there were is different.
        assert_eq!(line(of(16).plus(of(256)).times(2.0)).unwrap(), both);
    }

    #[test]
    fn a_busier_array_is_not_taken_for_larger_ios() {
        let mut fit = Fit::default();
        for period in 0..40 {
            // The larger IOs are, the less busy the array is.
            let (kib, waits) = if period % 2 == 0 { (8, 60_000_000) } else { (64, 5_000_000) };
            let ios = (0..200).map(|i| kib * (1 + i % 3));
            fit.period(sums(ios.map(|kib| (kib, Span(waits + kib * 1024 * 30)))));
        }
        let slope = fit.line().unwrap().per_byte * 1e9;
        assert!((slope - 30.0).abs() < 0.1, "{slope}");
    }

    #[test]
    fn who_does_not_say_its_moments_does_not_count() {
        let silent = Sums::of(1000, Bytes::kib(8000), Span(1), Moments::default());
        assert_eq!(silent, Sums::default());
    }

    #[test]
    fn old_periods_fade() {
        let mut fit = Fit::default();
        (0..50).for_each(|_| fit.period(on_a_line(1_000_000, 10)));
        (0..100).for_each(|_| fit.period(on_a_line(1_000_000, 40)));
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
