//! Latency histogram with eight slices per octave, so that bounds are exact to an eighth.

use parda_control::Span;

/// Number of slices per octave.
const SLICES: usize = 8;
/// The first octave begins at 2^this ns, about one microsecond. Shorter latencies count in it.
const SHORTEST: u32 = 10;
/// Number of octaves, which cover more than an hour. Longer latencies count in the last.
const OCTAVES: usize = 32;

/// Number of IOs by latency, from issue to completion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: vec![0; Histogram::LEN] }
    }
}

impl Histogram {
    /// Number of counts: slices of all octaves.
    pub(crate) const LEN: usize = OCTAVES * SLICES;

    /// A histogram from [`Self::LEN`] counts.
    pub(crate) fn of(counts: impl IntoIterator<Item = u64>) -> Histogram {
        let mut counts: Vec<u64> = counts.into_iter().take(Histogram::LEN).collect();
        counts.resize(Histogram::LEN, 0);
        Histogram { counts }
    }

    /// Number of IOs in the histogram.
    #[must_use]
    pub fn ios(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of two histograms.
    #[must_use]
    pub fn plus(&self, other: &Histogram) -> Histogram {
        Histogram::of(self.counts.iter().zip(&other.counts).map(|(a, b)| a + b))
    }

    /// Latency that a fraction `q`, 0 to 1, of the IOs does not exceed; `None` without IOs.
    /// Interpolated within its slice, an eighth of an octave.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<Span> {
        let ios = self.ios();
        let mut left = q.clamp(0.0, 1.0) * ios as f64;
        for (slice, &n) in self.counts.iter().enumerate().filter(|(_, n)| **n > 0) {
            if left <= n as f64 {
                let (from, to) = (bound(slice).0 as f64, bound(slice + 1).0 as f64);
                return Some(Span((from + (to - from) * left / n as f64) as u64));
            }
            left -= n as f64;
        }
        None
    }

    /// Middle of each slice that is not empty, and its number of IOs.
    pub fn buckets(&self) -> impl Iterator<Item = (Span, u64)> {
        let used = self.counts.iter().enumerate().filter(|(_, n)| **n > 0);
        used.map(|(slice, &n)| (Span(bound(slice).0.midpoint(bound(slice + 1).0)), n))
    }

    /// Octaves from the first to the last that is not empty: beginning, end and number of IOs.
    #[must_use]
    pub fn octaves(&self) -> Vec<(Span, Span, u64)> {
        let all: Vec<(Span, Span, u64)> = self
            .counts
            .chunks(SLICES)
            .enumerate()
            .map(|(octave, n)| (octave * SLICES, n.iter().sum()))
            .map(|(from, n)| (bound(from), bound(from + SLICES), n))
            .collect();
        let used = |o: &(Span, Span, u64)| o.2 > 0;
        let (first, last) = (all.iter().position(used), all.iter().rposition(used));
        first.zip(last).map_or(Vec::new(), |(first, last)| all[first..=last].to_vec())
    }
}

/// Beginning of a slice.
fn bound(slice: usize) -> Span {
    let octave = 1u64 << (SHORTEST as usize + slice / SLICES);
    Span(octave + octave / SLICES as u64 * (slice % SLICES) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slice of a latency in ns, computed as the eBPF program does.
    fn slice(ns: u64) -> usize {
        let octave = ns.ilog2();
        (octave - SHORTEST) as usize * SLICES + ((ns >> (octave - 3)) & 7) as usize
    }

    #[test]
    fn a_latency_falls_between_the_bounds_of_its_slice() {
        for ns in [1024, 1151, 1152, 4_999_999, 20_500_000, 68_000_000_000] {
            let slice = slice(ns);
            assert!(bound(slice).0 <= ns && ns < bound(slice + 1).0, "{ns}");
        }
    }

    #[test]
    fn quantiles_are_right_to_a_slice() {
        let mut counts = vec![0; Histogram::LEN];
        for ms in 1..=100u64 {
            counts[slice(ms * 1_000_000)] += 1;
        }
        let all = Histogram::of(counts);
        for q in [0.1, 0.5, 0.9, 0.99] {
            let got = all.quantile(q).unwrap().secs() * 1e3;
            assert!((got / (q * 100.0) - 1.0).abs() < 0.125, "{q}: {got}");
        }
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    fn octaves_leave_out_what_nothing_fell_in_at_both_ends() {
        let mut counts = vec![0; Histogram::LEN];
        counts[slice(1 << 20)] = 3;
        counts[slice(1 << 22)] = 1;
        let octaves = Histogram::of(counts).octaves();
        assert_eq!(octaves.iter().map(|o| o.2).collect::<Vec<_>>(), [3, 0, 1]);
        assert_eq!(octaves[0].0, Span(1 << 20));
        assert!(Histogram::default().octaves().is_empty());
    }
}
