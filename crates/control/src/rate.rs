//! Shares of throughput: the factor on a host's shares that makes throughput proportional to shares.
//!
//! Equal windows give equal throughput only if the array serves equal queues alike. Counterexamples: an IO of 1 MiB holds its 128 slots of
//! 8 KiB until its last byte arrives; a stream with read-ahead takes no time. There, feedback sets the factor, from the throughput of the
//! VMs that could use more, in slots per second. [`Costs`](crate::io::Costs) defines the cost of an IO.

/// Weight of past periods; the rest is the last one's. A single period may have few IOs.
const PAST: f64 = 0.6;
/// Throughput and shares of VMs that could use more than their slices.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Throughput {
    /// Completed slots per second.
    pub rate: f64,
    /// Sum of their shares.
    pub shares: f64,
}

impl Throughput {
    /// Sums over the saturated VMs of both.
    #[must_use]
    pub fn plus(self, other: Throughput) -> Throughput {
        Throughput { rate: self.rate + other.rate, shares: self.shares + other.shares }
    }

    fn per_share(&self) -> Option<f64> {
        let per_share = self.rate / self.shares;
        (self.shares > 0.0 && per_share.is_finite()).then_some(per_share)
    }
}

/// Change of a host's weight in a period, as a part of its throughput's deviation.
const GAIN: f64 = 0.25;
/// Largest deviation that counts, either way.
const OFF: f64 = 0.5;
/// Rate at which a weight returns to one, so that the weights of all hosts do not drift together.
const LEAK: f64 = 0.002;
/// The largest weight where throughput is balanced; its reciprocal is the smallest.
const BALANCED: f64 = 64.0;

/// Factor on a host's shares, from period to period.
#[derive(Clone, Copy, Debug)]
pub struct Weight {
    factor: f64,
    saturated: (Throughput, Throughput),
}

impl Default for Weight {
    fn default() -> Weight {
        Weight { factor: 1.0, saturated: Default::default() }
    }
}

impl Weight {
    /// The factor in force.
    #[must_use]
    pub fn factor(&self) -> f64 {
        self.factor
    }

    /// Slots per second and share of the participating VMs of all hosts, as last known.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        self.saturated.1.per_share()
    }

    /// Ends a period in which throughput is to be proportional to shares. `own`: saturated VMs of this host; `all`: those of all hosts.
    /// Without any, the weight only returns slowly to one.
    pub fn balance(&mut self, own: Throughput, all: Throughput) {
        let fade = |past: &mut Throughput, now: Throughput| {
            past.rate = PAST * past.rate + (1.0 - PAST) * now.rate;
            past.shares = PAST * past.shares + (1.0 - PAST) * now.shares;
        };
        let (mine, others) = &mut self.saturated;
        fade(mine, own);
        fade(others, all);
        let mut off = 0.0;
        if let (true, Some(own), Some(all)) =
            (own.shares > 0.0, mine.per_share(), others.per_share())
            && all > 0.0
        {
            off = ((all - own) / all).clamp(-OFF, OFF);
        }
        let returns = LEAK * (1.0 - self.factor) / (1.0 + self.factor);
        self.factor *= 1.0 + GAIN * off + returns;
        self.factor = self.factor.clamp(1.0 / BALANCED, BALANCED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throughput_is_balanced_whatever_the_array_gives_for_a_slot() {
        for faster in [0.2, 0.5, 1.0, 3.0, 8.0] {
            let mut weights = [Weight::default(); 2];
            let mut rates = [0.0; 2];
            let sum = |w: &[Weight; 2]| w[0].factor() + w[1].factor();
            for _ in 0..120 {
                // Each host has its part of 100 slots, at a fixed rate per slot.
                let part = weights.map(|w| 100.0 * w.factor() / sum(&weights));
                rates = [10.0 * part[0], 10.0 * faster * part[1]];
                let [a, b] = rates.map(|rate| Throughput { rate, shares: 1000.0 });
                weights[0].balance(a, a.plus(b));
                weights[1].balance(b, a.plus(b));
            }
            assert!((rates[1] / rates[0] - 1.0).abs() < 0.03, "{faster}: {rates:?}");
        }
    }

    #[test]
    fn who_has_nothing_saturated_keeps_its_weight_but_for_a_slow_return_to_one() {
        let one = Throughput { rate: 100.0, shares: 1000.0 };
        let mut weight = Weight::default();
        (0..20).for_each(|_| weight.balance(one, Throughput { rate: 400.0, shares: 2000.0 }));
        let before = weight.factor();
        assert!(before > 1.5, "{before}");
        (0..10).for_each(|_| weight.balance(Throughput::default(), one));
        assert!((weight.factor() / before - 1.0).abs() < 0.02);
        (0..20_000).for_each(|_| weight.balance(Throughput::default(), one));
        assert!((weight.factor() - 1.0).abs() < 0.01);
    }
}
