//! Shares of bytes: what makes windows that are alike into throughput that is.
//!
//! By Little's law a host with w slots outstanding gets w / L slots per second, where L is how long
//! *its own* slots stay at the array. Where all IOs are much alike, so are all hosts' L, and equal
//! windows are equal throughput. A slot is a fixed number of bytes with `fairness = "bytes"`, and an
//! IO of 1 MiB holds its 128 slots until its last byte is there: its slots stay far longer than those
//! of small IOs. So there a host's shares weigh as much more as its slots stay longer than the mean of
//! all hosts: λ · shares · L_own / L slots are λ · shares / L slots per second, for everybody alike.

/// Past periods count for this much, and the last one for the rest: a single period may have few IOs.
const PAST: f64 = 0.6;
/// A host's slots count as at most so many times longer or shorter than the mean.
const MOST: f64 = 64.0;

/// What was outstanding over a period, and how much was done in it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Occupancy {
    /// Mean of what was outstanding, in slots.
    pub outstanding: f64,
    /// Slots per second that were done.
    pub rate: f64,
}

impl Occupancy {
    /// How long a slot stayed at the array, in seconds. `None` if nothing was done.
    fn stay(&self) -> Option<f64> {
        let stay = self.outstanding / self.rate;
        (self.rate > 0.0 && stay > 0.0 && stay.is_finite()).then_some(stay)
    }
}

/// How much more than its shares a host weighs, from period to period.
#[derive(Clone, Copy, Debug)]
pub struct Weight {
    factor: f64,
    own: Occupancy,
    all: Occupancy,
}

impl Default for Weight {
    fn default() -> Weight {
        Weight { factor: 1.0, own: Occupancy::default(), all: Occupancy::default() }
    }
}

impl Weight {
    /// The factor in force.
    #[must_use]
    pub fn factor(&self) -> f64 {
        self.factor
    }

    /// Takes in a period: what the host did, and what all did.
    pub fn period(&mut self, own: Occupancy, all: Occupancy) {
        let fade = |past: &mut Occupancy, now: Occupancy| {
            past.outstanding = PAST * past.outstanding + (1.0 - PAST) * now.outstanding;
            past.rate = PAST * past.rate + (1.0 - PAST) * now.rate;
        };
        fade(&mut self.own, own);
        fade(&mut self.all, all);
        if let (Some(own), Some(all)) = (self.own.stay(), self.all.stay()) {
            self.factor = (own / all).clamp(1.0 / MOST, MOST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two hosts, one whose slots stay at the array for so much longer.
    fn throughput(longer: f64, weighed: bool) -> f64 {
        let mut weights = [Weight::default(); 2];
        let mut rates = [0.0; 2];
        for _ in 0..60 {
            let outstanding = weights.map(|w| if weighed { 10.0 * w.factor() } else { 10.0 });
            let stays = [0.01, 0.01 * longer];
            let at = |i: usize| Occupancy {
                outstanding: outstanding[i],
                rate: outstanding[i] / stays[i],
            };
            let (a, b) = (at(0), at(1));
            let all =
                Occupancy { outstanding: a.outstanding + b.outstanding, rate: a.rate + b.rate };
            rates = [a.rate, b.rate];
            weights[0].period(a, all);
            weights[1].period(b, all);
        }
        rates[1] / rates[0]
    }

    #[test]
    fn slots_that_stay_longer_weigh_more_until_throughput_is_alike() {
        assert!((throughput(4.0, false) - 0.25).abs() < 1e-9);
        for longer in [0.1, 0.5, 1.0, 4.0, 30.0] {
            let ratio = throughput(longer, true);
            assert!((ratio - 1.0).abs() < 1e-3, "{longer}: {ratio}");
        }
    }

    #[test]
    fn a_period_without_io_changes_little_and_a_host_without_any_weighs_its_shares() {
        let mut weight = Weight::default();
        weight.period(Occupancy::default(), Occupancy { outstanding: 5.0, rate: 100.0 });
        assert_eq!(weight.factor(), 1.0);
        let (own, all) = (
            Occupancy { outstanding: 8.0, rate: 40.0 },
            Occupancy { outstanding: 10.0, rate: 100.0 },
        );
        (0..20).for_each(|_| weight.period(own, all));
        assert!((weight.factor() - 2.0).abs() < 0.01);
        weight.period(Occupancy::default(), all);
        assert!((weight.factor() - 2.0).abs() < 0.01);
    }
}
