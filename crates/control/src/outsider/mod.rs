//! Load on the array that is not under control, by what is missing of the usual throughput.
//!
//! A busy array completes X₀ IO/s at the threshold. Where the hosts complete X, X₀ − X is missing: somebody else has it, or nobody, as the
//! array has become slower. By Little's law an outsider that has it keeps
//!
//! ```text
//! Q = (X₀ − X) · L
//! ```
//!
//! IOs outstanding, counted in IOs like ours. Which of the two it is cannot be told at one latency, and makes no difference to
//! what hosts can do about it ([`Answer`]).

mod answer;

pub use answer::Answer;

use libm::{fabs, log};

/// Periods that the usual throughput is a mean of, at most, and those after which it is known.
const OVER: f64 = 60.0;
const KNOWN: f64 = 10.0;
/// Part of the usual throughput that must be missing, and for how many periods.
const MISSING: f64 = 0.15;
const TELLS: u32 = 3;
/// Periods after which what is missing is missing for good: the array is another one.
pub(crate) const ADOPTS: u32 = 3600;
/// Part of the threshold below which latency does not show that the array is busy.
const BUSY: f64 = 0.8;
/// Weight of a new period in the size of an outsider.
const FOLLOWS: f64 = 0.3;
/// Largest change of the part of reads, and of the logarithm of the mean size, within one kind of load.
const READS: f64 = 0.15;
const SIZE: f64 = 0.3;

/// Load of all hosts that are heard in a period, with and without control.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// IOs per second of all these hosts.
    pub rate: f64,
    /// Mean number of their outstanding IOs.
    pub outstanding: f64,
    /// Part of the IOs that are reads, from 0 to 1.
    pub reads: f64,
    /// Mean size of an IO, in bytes.
    pub size: f64,
    /// The volume's own threshold, in seconds.
    pub threshold: f64,
}

/// State of the array, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum State {
    /// Too little is known of the array under this kind of load, or it is not busy.
    #[default]
    Unknown,
    /// Throughput is as usual.
    Usual,
    /// The array became slower, or an outsider uses it.
    Slower,
}

/// State of the array, with the figures that it rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Finding {
    /// State of the array.
    pub state: State,
    /// Mean latency of the last period, in seconds.
    pub latency: f64,
    /// The usual latency with as many outstanding IOs, in seconds.
    pub usual: f64,
    /// Periods for which throughput has been below the usual.
    pub periods: u32,
    /// Outstanding IOs of an outsider that would explain it, counted in IOs like ours.
    pub outstanding: f64,
    /// Part of all outstanding IOs that such an outsider has, from 0 to 1.
    pub part: f64,
    /// Factor by which the array would be slower, if that explained it.
    pub factor: f64,
}

/// Looks for load on an array that is not under control, period by period.
#[derive(Clone, Copy, Debug, Default)]
pub struct Detector {
    /// The usual throughput X₀ in IO/s, and the number of periods that it is a mean of.
    usual: f64,
    weight: f64,
    /// Kind of load that it is of.
    reads: f64,
    size: f64,
    /// Periods in which throughput was below the usual.
    periods: u32,
    /// Mean size of the outsider that explains it.
    outstanding: f64,
    finding: Finding,
}

impl Detector {
    /// The finding of the last period.
    #[must_use]
    pub fn finding(&self) -> Finding {
        self.finding
    }

    /// Factor on the latency `alone`, in seconds, at which hosts under control keep this part of the outstanding IOs that they have at
    /// `alone` without the outsider. `None` if there is no outsider, or the factor is at most 1.
    #[must_use]
    pub fn beside(&self, alone: f64, part: f64) -> Option<f64> {
        if self.finding.state != State::Slower {
            return None;
        }
        let factor = part + self.finding.outstanding / (self.usual * alone);
        (factor > 1.0).then_some(factor)
    }

    /// Ends a period in which not all hosts were heard: the load of the others would look like an outsider's.
    pub fn pause(&mut self) {
        (self.periods, self.finding) = (0, Finding::default());
    }

    /// Ends a period in which all hosts were heard.
    pub fn period(&mut self, seen: &Seen) {
        let latency = seen.outstanding / seen.rate;
        if !(seen.rate > 0.0 && latency >= BUSY * seen.threshold) {
            return self.pause();
        }
        let alike =
            fabs(seen.reads - self.reads) < READS && fabs(log(seen.size / self.size)) < SIZE;
        if !alike || self.periods > ADOPTS {
            *self = Detector { reads: seen.reads, size: seen.size, ..Detector::default() };
        }
        let missing = 1.0 - seen.rate / self.usual;
        if self.weight < KNOWN || missing < MISSING {
            self.weight = (self.weight + 1.0).min(OVER);
            self.usual += (seen.rate - self.usual) / self.weight;
            self.periods = 0;
        } else {
            self.periods += 1;
        }
        let now = (self.usual - seen.rate).max(0.0) * latency;
        let follows = if self.periods <= 1 { 1.0 } else { FOLLOWS };
        self.outstanding += follows * (now - self.outstanding);
        let state = match self.periods {
            _ if self.weight < KNOWN => State::Unknown,
            periods if periods < TELLS => State::Usual,
            _ => State::Slower,
        };
        self.finding = Finding {
            state,
            latency,
            usual: seen.outstanding / self.usual,
            periods: self.periods,
            outstanding: self.outstanding,
            part: self.outstanding / (self.outstanding + seen.outstanding),
            factor: self.usual / seen.rate,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A period of hosts that hold the latency beside an outsider with so many outstanding IOs, at an array of 3000 IO/s over `slow`.
    fn period(detector: &mut Detector, latency: f64, outsider: f64, slow: f64) -> Finding {
        let rate = 3000.0 / slow - outsider / latency;
        let outstanding = rate * latency;
        let (reads, size, threshold) = (1.0, 8192.0, 0.03);
        detector.period(&Seen { rate, outstanding, reads, size, threshold });
        detector.finding()
    }

    fn settled() -> Detector {
        let mut detector = Detector::default();
        (0..30).for_each(|_| _ = period(&mut detector, 0.03, 0.0, 1.0));
        detector
    }

    #[test]
    fn the_size_of_an_outsider_is_what_is_missing_of_the_throughput() {
        let mut detector = settled();
        assert_eq!(detector.finding().state, State::Usual);
        assert_eq!(period(&mut detector, 0.03, 40.0, 1.0).state, State::Usual, "it may be chance");
        (0..5).for_each(|_| _ = period(&mut detector, 0.03, 40.0, 1.0));
        let finding = detector.finding();
        assert_eq!(finding.state, State::Slower);
        assert!((finding.outstanding - 40.0).abs() < 0.1, "{finding:?}");
        // Ours had 90 outstanding. To keep as many beside 40 takes 130 / 90 of the latency, and there it is still 40.
        let beside = detector.beside(0.03, 1.0).unwrap();
        assert!((beside - 130.0 / 90.0).abs() < 0.01, "{beside}");
        (0..20).for_each(|_| _ = period(&mut detector, 0.03 * beside, 40.0, 1.0));
        assert!((detector.beside(0.03, 1.0).unwrap() - beside).abs() < 0.01);
        (0..3).for_each(|_| _ = period(&mut detector, 0.03, 0.0, 1.0));
        assert_eq!((detector.finding().state, detector.beside(0.03, 1.0)), (State::Usual, None));
    }

    #[test]
    fn a_slower_array_looks_the_same_and_is_the_usual_one_after_an_hour() {
        let mut detector = settled();
        (0..10).for_each(|_| _ = period(&mut detector, 0.03, 0.0, 2.0));
        assert_eq!(detector.finding().state, State::Slower);
        assert!((detector.finding().factor - 2.0).abs() < 0.01);
        (0..ADOPTS + 20).for_each(|_| _ = period(&mut detector, 0.03, 0.0, 2.0));
        assert_eq!(detector.finding().state, State::Usual);
    }

    #[test]
    fn an_idle_array_and_another_load_say_nothing() {
        let mut detector = settled();
        assert_eq!(period(&mut detector, 0.01, 0.0, 1.0).state, State::Unknown);
        assert_eq!(period(&mut detector, 0.03, 0.0, 1.0).state, State::Usual);
        let seen =
            Seen { rate: 300.0, outstanding: 9.0, reads: 0.2, size: 262_144.0, threshold: 0.03 };
        detector.period(&seen);
        assert_eq!(detector.finding().state, State::Unknown);
        detector.period(&Seen { rate: 0.0, ..seen });
        assert_eq!(detector.finding(), Finding::default());
    }
}
