//! Telling an outsider from a slower array after throughput fell at an unchanged threshold.
//!
//! An outsider that always has Q IOs outstanding looks like an array that became slower: at the same latency the hosts have fewer IOs
//! outstanding, and a higher threshold brings them more. But an outsider's throughput is known: Q / L at a latency L. So throughput
//! at each higher threshold follows from that before and after the fall. Drives that became slower stay well below it.

use super::history::Class;
use super::step::Threshold;

/// A fall of throughput at one threshold: throughput before and after, in IO/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fall {
    class: Class,
    threshold: Threshold,
    before: f64,
    after: f64,
}

/// Factor over the threshold at which throughput fell, from which on an outsider is told from slower drives.
const HIGHER: f64 = 1.4;
/// Part of the throughput predicted for an outsider, from which on the fall is taken for an outsider's.
const FORETOLD: f64 = 0.95;

impl Fall {
    pub(super) fn new(class: Class, threshold: Threshold, before: f64, after: f64) -> Option<Fall> {
        (after < before).then_some(Fall { class, threshold, before, after })
    }

    /// Threshold in force while throughput fell.
    pub(super) fn threshold(&self) -> Threshold {
        self.threshold
    }

    pub(super) fn is_of(&self, class: Class) -> bool {
        self.class == class
    }

    /// Whether `rate` at `threshold` is the throughput that an outsider would leave. `None` at thresholds where an outsider
    /// and slower drives leave the same.
    pub(super) fn is_outsiders(&self, threshold: Threshold, rate: f64) -> Option<bool> {
        if threshold.secs() < HIGHER * self.threshold.secs() {
            return None;
        }
        let taken = (self.before - self.after) * self.threshold.secs() / threshold.secs();
        Some(rate >= FORETOLD * (self.before - taken))
    }
}

#[cfg(test)]
mod tests {
    use super::super::observation::Observation;
    use super::*;

    #[test]
    fn an_outsider_is_told_from_slower_drives() {
        let class = Class::of(&Observation::default());
        // 3300 IO/s in all, 40 ms; an outsider has 60 outstanding.
        let beside = |latency: f64| 3300.0 - 60.0 / latency;
        let fall = Fall::new(class, Threshold::from_secs(0.040), 3300.0, beside(0.040)).unwrap();
        assert_eq!(fall.is_outsiders(Threshold::from_secs(0.048), beside(0.048)), None);
        assert_eq!(fall.is_outsiders(Threshold::from_secs(0.058), beside(0.058)), Some(true));
        assert_eq!(fall.is_outsiders(Threshold::from_secs(0.080), beside(0.080)), Some(true));
        // Drives that take half as long again, or twice as long: throughput rises to their most.
        for (most, service) in [(2200.0, 0.015), (1650.0, 0.020)] {
            let rate = |l: f64| most * (1.0 - (service / l).powi(3)).cbrt();
            let fall = Fall::new(class, Threshold::from_secs(0.040), 3300.0, rate(0.040)).unwrap();
            assert_eq!(
                fall.is_outsiders(Threshold::from_secs(0.058), rate(0.058)),
                Some(false),
                "{most}"
            );
        }
        assert_eq!(Fall::new(class, Threshold::from_secs(0.040), 1000.0, 1100.0), None);
    }
}
