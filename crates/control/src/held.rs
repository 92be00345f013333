//! Causes for which an IO is held on its host, and times by cause.

use crate::units::Span;

/// Cause for which an IO is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeldBy {
    /// Its VM wants more than its slice.
    Share,
    /// The host has as many slots outstanding as its window allows, whatever the shares.
    Window,
    /// Its VM has room in its slice. The IO waits behind earlier IOs, or for credit where the grant is a fraction.
    #[default]
    Turn,
    /// Its VM, or its tenant, is at its limit.
    Limit,
}

impl HeldBy {
    /// All causes, in the order of their numbers.
    pub const ALL: [HeldBy; 4] = [HeldBy::Share, HeldBy::Window, HeldBy::Turn, HeldBy::Limit];
}

/// Times for which IOs were held. They wrap around.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldTimes([Span; HeldBy::ALL.len()]);

impl HeldTimes {
    /// Time by one cause.
    #[must_use]
    pub fn by(&self, cause: HeldBy) -> Span {
        self.0[cause as usize]
    }

    /// Time by all causes.
    #[must_use]
    pub fn total(&self) -> Span {
        self.0.iter().fold(Span::ZERO, |sum, time| plus(sum, *time))
    }

    /// Adds the time of an IO.
    pub fn add(&mut self, cause: HeldBy, time: Span) {
        let sum = &mut self.0[cause as usize];
        *sum = plus(*sum, time);
    }

    /// Adds the times of other IOs.
    pub fn add_all(&mut self, other: &HeldTimes) {
        HeldBy::ALL.iter().for_each(|cause| self.add(*cause, other.by(*cause)));
    }

    /// Difference to `earlier` times of the same VM.
    #[must_use]
    pub fn since(&self, earlier: &HeldTimes) -> HeldTimes {
        HeldTimes(HeldBy::ALL.map(|by| Span(self.by(by).0.wrapping_sub(earlier.by(by).0))))
    }
}

fn plus(sum: Span, more: Span) -> Span {
    Span(sum.0.wrapping_add(more.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_kept_by_cause_and_add_up() {
        let mut times = HeldTimes::default();
        times.add(HeldBy::Share, Span(5));
        let before = times;
        times.add(HeldBy::Share, Span(7));
        times.add(HeldBy::Turn, Span(1));
        assert_eq!(times.total(), Span(13));
        let since = times.since(&before);
        assert_eq!(HeldBy::ALL.map(|by| since.by(by).0), [7, 0, 1, 0]);
        let mut all = before;
        all.add_all(&since);
        assert_eq!(all, times);
    }
}
