//! Sums of observations at one threshold, and the slope of throughput over outstanding IOs between two thresholds.

use super::history::Pair;
use super::observation::Observation;

/// Sums over the periods of one class at one threshold.
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

/// Least relative deviation that is assumed of the throughput of a period. A few periods may be more alike by chance.
const LEAST_NOISE: f64 = 0.003;

/// Fewest periods of a block that is compared.
pub(super) const FEW: f64 = 6.0;
/// Fewest IOs of a block that is compared.
pub(super) const FEW_IOS: f64 = 200.0;

/// Relative deviation of throughput at one threshold above which the array has changed within the block.
const MIXED: f64 = 0.16;

/// Number of periods from which on all sums are halved, so that older periods count less.
const LONG: f64 = 48.0;

/// Largest difference of workload between blocks that are compared: of the mean size, relative, and of the fraction of reads, absolute.
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

    /// Whether it has enough periods and IOs to be compared.
    pub(super) fn enough(&self) -> bool {
        self.periods >= FEW && self.ios >= FEW_IOS
    }

    /// Mean IO/s, and the relative standard deviation of one period's.
    pub(super) fn rate(&self) -> (f64, f64) {
        let mean = self.x / self.periods;
        let spread = (self.xx / self.periods - mean * mean).max(0.0) / (mean * mean);
        (mean, libm::sqrt(spread).max(LEAST_NOISE))
    }

    /// Mean IO/s of all hosts together.
    pub(super) fn total(&self) -> f64 {
        self.total / self.periods
    }

    /// The block with the throughput of all hosts in place of that of the backlogged ones.
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

    /// Difference of mean outstanding IOs from another block, as a fraction of the other's.
    pub(super) fn apart(&self, other: &Block) -> f64 {
        ((self.n / self.periods) / (other.n / other.periods) - 1.0).abs()
    }

    /// Whether the workload is that of another block, within [`SAME_MIX`].
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

/// Slope of throughput over outstanding IOs, both relative: 0.5 means that 10 % more outstanding IOs bring 5 % more throughput. It is 1
/// where no IO waits for another, and 0 where additional IOs only wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slope {
    /// The slope.
    pub value: f64,
    /// Its standard error.
    pub error: f64,
}

impl Slope {
    /// Least squares over the pairs, each class about its own mean. The regressor is outstanding IOs, which are set and known exactly.
    /// Latency would not do: whatever slows the array by chance raises it.
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
        // The deviation of few periods is uncertain (about the factor of Student's t at two deviations), and neighbouring periods
        // are correlated: what slows an array by chance lasts for more than one.
        let few = 1.25 + 4.0 / free;
        Slope { value, error: few * libm::sqrt(noise / snn) }
    }
}
