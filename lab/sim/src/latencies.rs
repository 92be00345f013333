//! Latency counts in logarithmic buckets.
//!
//! A large cluster has tens of thousands of these counts, and each IO enters three. So only buckets
//! in use are stored, in lines of neighbouring ones, and counting takes a few instructions. A
//! [`Histogram`] of the same precision, which the agent keeps too, computes all statistics.

use hdrhistogram::Histogram;
use parda_control::Span;
use parda_scenario::Distribution;

/// Bits below which latencies share a bucket, as a power of two of nanoseconds.
const UNIT: u32 = 9;
/// Buckets per power of two, as an exponent of 2: two significant digits.
const STEPS: u32 = 7;
/// Neighbouring buckets that are stored together: a line of the processor's cache.
const LINE: usize = 16;

/// Latencies to two significant digits.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    /// For each line of buckets, its position in `counts`, counted from 1; 0 for an empty line.
    lines: Vec<u16>,
    counts: Vec<[u32; LINE]>,
}

impl Latencies {
    pub(crate) fn record(&mut self, span: Span) {
        let step = step(span.0);
        let (line, within) = (step / LINE, step % LINE);
        let place = match self.lines.get(line) {
            Some(place) if *place > 0 => *place,
            _ => self.add(line),
        };
        let count = &mut self.counts[usize::from(place) - 1][within];
        *count = count.saturating_add(1);
    }

    /// Allocates a line. There are some 400 lines, so that the index fits.
    #[cold]
    fn add(&mut self, line: usize) -> u16 {
        if self.lines.len() <= line {
            self.lines.resize(line + 1, 0);
        }
        self.counts.push([0; LINE]);
        self.lines[line] = self.counts.len() as u16;
        self.lines[line]
    }

    /// Statistics of the counts; `None` without any.
    pub(crate) fn distribution(&self) -> Option<Distribution> {
        if self.counts.is_empty() {
            return None;
        }
        let mut all = Histogram::<u64>::new_with_bounds(1_000, 1_000_000, 2)
            .expect("the bounds are constants that fit");
        all.auto(true);
        for (first, line) in (0..).step_by(LINE).zip(&self.lines).filter(|(_, line)| **line > 0) {
            let counts = (first..).zip(self.counts[usize::from(*line) - 1]);
            for (step, count) in counts.filter(|(_, count)| *count > 0) {
                // The histogram grows as needed, so that recording cannot fail.
                let recorded = all.record_n(least(step), count.into());
                debug_assert!(recorded.is_ok());
            }
        }
        let ms = |ns: u64| all.median_equivalent(ns) as f64 / 1e6;
        Some(Distribution {
            mean: all.mean() / 1e6,
            stddev: all.stdev() / 1e6,
            p50: ms(all.value_at_quantile(0.5)),
            p99: ms(all.value_at_quantile(0.99)),
            max: ms(all.max()),
        })
    }
}

/// Bucket of a latency.
fn step(ns: u64) -> usize {
    let units = ns >> UNIT;
    let shift = u64::BITS - (units | 1 << STEPS).leading_zeros() - (STEPS + 1);
    ((shift << STEPS) as u64 + (units >> shift)) as usize
}

/// Least latency of a bucket, in nanoseconds.
fn least(step: usize) -> u64 {
    let shift = (step >> STEPS).saturating_sub(1);
    ((step - (shift << STEPS)) as u64) << shift << UNIT
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Statistics of a histogram that records each latency by itself.
    fn expected(ns: &[u64]) -> Distribution {
        let mut all = Histogram::<u32>::new_with_bounds(1_000, 1_000_000, 2).unwrap();
        all.auto(true);
        ns.iter().for_each(|ns| all.record(*ns).unwrap());
        let ms = |ns: u64| all.median_equivalent(ns) as f64 / 1e6;
        Distribution {
            mean: all.mean() / 1e6,
            stddev: all.stdev() / 1e6,
            p50: ms(all.value_at_quantile(0.5)),
            p99: ms(all.value_at_quantile(0.99)),
            max: ms(all.max()),
        }
    }

    #[test]
    fn what_is_answered_is_what_a_histogram_answers_to_the_bit() {
        let mut random = fastrand::Rng::with_seed(7);
        for most in [1, 30, 52] {
            let ns: Vec<u64> = (0..2_000).map(|_| random.u64(..=u64::MAX >> (64 - most))).collect();
            for some in [&ns[..], &ns[..1], &ns[..14]] {
                let mut latencies = Latencies::default();
                some.iter().for_each(|ns| latencies.record(Span(*ns)));
                assert_eq!(latencies.distribution(), Some(expected(some)), "{most} bits");
            }
        }
        assert_eq!(Latencies::default().distribution(), None);
    }

    #[test]
    fn steps_follow_one_another_without_a_gap() {
        for number in 0..6_000 {
            assert_eq!(step(least(number)), number);
            assert_eq!(step(least(number + 1) - 1), number);
        }
        assert!(step(u64::MAX) / LINE < usize::from(u16::MAX));
    }

    #[test]
    fn few_latencies_take_little_room() {
        let mut latencies = Latencies::default();
        (1..=16).for_each(|ms| latencies.record(Span::from_millis(20 * ms)));
        let bytes = 2 * latencies.lines.capacity() + 4 * LINE * latencies.counts.capacity();
        assert!(bytes <= 1_600, "{bytes}");
    }
}
