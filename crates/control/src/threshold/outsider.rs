//! Whether throughput that fell by itself has gone to a host outside control.
//!
//! A host that always has Q outstanding, and is not heard, looks like an array that became slower: at
//! the same latency less is outstanding, and more latency brings more. But what it takes is known: of
//! T IO/s in all, at a latency L, it has Q / L. So throughput at any threshold above follows from what it was before the
//! fall and after it, and drives that have become slower are well below that a few steps higher.

use super::history::Class;
use super::step::Threshold;

/// Throughput at one threshold, before it fell by itself and after.
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

    /// Whether `rate` at `threshold` is what a host outside control would leave. `None` as
    /// long as that cannot be told.
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
