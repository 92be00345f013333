//! What was seen at one threshold, and what two of them together say of the curve.

use super::history::Pair;
use super::observation::Observation;

/// Periods at one threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Block {
    pub(super) periods: f64,
    pub(super) ios: f64,
    /// Sums of throughput x and outstanding IOs n, of their squares, and of their product.
    x: f64,
    n: f64,
    xx: f64,
    nn: f64,
    xn: f64,
    total: f64,
    size: f64,
    reads: f64,
}

/// No period says how fast the array is more exactly than to this part of it, whatever a few that
/// happen to be alike pretend.
const LEAST_NOISE: f64 = 0.003;

/// The fewest periods that are compared.
pub(super) const FEW: f64 = 6.0;
/// The fewest IOs in a block that is compared.
pub(super) const FEW_IOS: f64 = 200.0;

/// Throughput at one threshold that has a larger relative deviation is that of two arrays.
const MIXED: f64 = 0.16;

/// Older periods count half from here on.
const LONG: f64 = 48.0;

/// By how much two blocks may differ in what was asked of the array and still be compared: the mean
/// size relative, the part that reads absolute.
const SAME_MIX: f64 = 0.1;

impl Block {
    pub(super) fn add(&mut self, seen: &Observation) {
        if self.periods >= LONG {
            for sum in [
                &mut self.periods,
                &mut self.ios,
                &mut self.x,
                &mut self.n,
                &mut self.xx,
                &mut self.nn,
                &mut self.xn,
                &mut self.total,
                &mut self.size,
                &mut self.reads,
            ] {
                *sum /= 2.0;
            }
        }
        let Observation { rate: x, outstanding: n, .. } = *seen;
        self.periods += 1.0;
        self.ios += seen.ios;
        self.x += x;
        self.n += n;
        self.xx += x * x;
        self.nn += n * n;
        self.xn += x * n;
        self.total += seen.total;
        self.size += seen.size;
        self.reads += seen.reads;
    }

    /// Whether it says something.
    pub(super) fn enough(&self) -> bool {
        self.periods >= FEW && self.ios >= FEW_IOS
    }

    /// Mean IO/s, and the relative standard deviation of one period's.
    pub(super) fn rate(&self) -> (f64, f64) {
        let mean = self.x / self.periods;
        let spread = (self.xx / self.periods - mean * mean).max(0.0) / (mean * mean);
        (mean, libm::sqrt(spread).max(LEAST_NOISE))
    }

    /// Mean IO/s of all hosts, just added up.
    pub(super) fn total(&self) -> f64 {
        self.total / self.periods
    }

    /// The same, with the throughput of all hosts in place of that of those who want more.
    pub(super) fn in_total(&self) -> Block {
        let scale = if self.x > 0.0 { self.total / self.x } else { 1.0 };
        Block { x: self.x * scale, xx: self.xx * scale * scale, xn: self.xn * scale, ..*self }
    }

    /// Whether throughput scatters by more than [`MIXED`] and by more than chance, as it does when the
    /// array changed within the block.
    pub(super) fn mixed(&self) -> bool {
        let chance = 3.0 / libm::sqrt((self.ios / self.periods).max(1.0));
        self.enough() && self.rate().1 > MIXED.max(chance)
    }

    /// How far its mean outstanding IOs are from another one's, as a part of these.
    pub(super) fn apart(&self, other: &Block) -> f64 {
        ((self.n / self.periods) / (other.n / other.periods) - 1.0).abs()
    }

    /// Whether the same was asked of the array as in another block.
    pub(super) fn same_mix(&self, other: &Block) -> bool {
        let mean = |block: &Block| (block.size / block.periods, block.reads / block.periods);
        let ((size, reads), (others_size, others_reads)) = (mean(self), mean(other));
        (size / others_size - 1.0).abs() <= SAME_MIX && (reads - others_reads).abs() <= SAME_MIX
    }

    /// Sums over the periods of two blocks.
    pub(super) fn plus(&self, other: &Block) -> Block {
        Block {
            periods: self.periods + other.periods,
            ios: self.ios + other.ios,
            x: self.x + other.x,
            n: self.n + other.n,
            xx: self.xx + other.xx,
            nn: self.nn + other.nn,
            xn: self.xn + other.xn,
            total: self.total + other.total,
            size: self.size + other.size,
            reads: self.reads + other.reads,
        }
    }
}

/// By what part throughput grows where the outstanding IOs grow by a part of their own: the slope of
/// the curve of throughput over outstanding IOs, both in relative terms. 1 where nothing waits for
/// anything, 0 where all that is added only waits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slope {
    /// The slope.
    pub value: f64,
    /// Its standard error.
    pub error: f64,
}

impl Slope {
    /// Over what was seen at two thresholds, each class about its own mean. What is outstanding is
    /// known exactly and was set beforehand, so that least squares are right; latencies are not, as
    /// whatever slows the array by chance raises them.
    pub(super) fn over(pairs: &[Pair]) -> Slope {
        let (mut sxx, mut snn, mut sxn, mut count) = (0.0, f64::MIN_POSITIVE, 0.0, 0.0);
        for pair in pairs {
            let all = pair.base.plus(&pair.block);
            let (x, n) = (all.x / all.periods, all.n / all.periods);
            sxx += (all.xx / (x * x) - all.periods).max(0.0);
            snn += (all.nn / (n * n) - all.periods).max(0.0);
            sxn += all.xn / (x * n) - all.periods;
            count += all.periods;
        }
        let value = sxn / snn;
        let free = (count - 1.0 - pairs.len() as f64).max(1.0);
        let noise = ((sxx - value * sxn).max(0.0) / free).max(LEAST_NOISE * LEAST_NOISE);
        // Few periods do not know their own noise (about what Student's t makes of two deviations), and
        // what slows an array by chance lasts for more than one of them.
        let few = 1.25 + 4.0 / free;
        Slope { value, error: few * libm::sqrt(noise / snn) }
    }
}
