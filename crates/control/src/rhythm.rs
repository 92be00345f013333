//! How often hosts meet in the exchange, so that meeting costs the array next to nothing.
//!
//! Each host's round takes a read and a write at the array. With n hosts and a period T these are
//! 2 · n / T IOs per second, however little each of them reads. So the period follows the number of
//! hosts and what the array does for them: it is the one that the configuration says as long as all
//! rounds together are at most [`PART`] of all IOs, and longer beyond that. Who is alive, and over what time
//! counts were taken, is judged by what each host publishes of its own period, so hosts need not agree on
//! one, and those of earlier versions keep theirs.

use crate::cluster::{Bounded, Report, Totals};
use crate::units::Span;

/// The part of the array's IOs that all rounds together are to be. A tenth less than one in a hundred, as
/// throughput varies.
const PART: f64 = 0.009;

/// IOs of a round: a read and a write.
const ROUND: f64 = 2.0;

/// IO/s that an array is taken for that was never seen busy. Until it is, the exchange is in nobody's way.
const UNSEEN: f64 = 2000.0;

/// How far what the array is taken for follows it down in a round. Up, it follows at once.
const DOWN: f64 = 0.5;

/// Visits of the exchange are under way for at most this part of the time.
const UNDER_WAY: f64 = 0.5;

/// How much a visit counts in the mean over them.
const VISIT: f64 = 0.5;

/// From one round to the next, the period becomes so many times as long at most, or one part in so many of
/// it: the others have been promised a sign of life.
const STEP: f64 = 2.0;

/// It never becomes longer than this, unless the configuration says so: whoever comes is to be heard.
const LONGEST: Span = Span::from_millis(60_000);

/// What a host knows at the end of a round.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// The period that the configuration says.
    pub period: Span,
    /// How many hosts meet there, this one among them.
    pub hosts: usize,
    /// What the others said, if they were heard.
    pub others: Option<&'a Totals>,
    /// What this host says.
    pub own: &'a Report,
    /// How long the last round's read and write took, if both worked.
    pub visit: Option<Span>,
}

/// Why rounds are further apart than the configuration says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slowed {
    /// They would be too large a part of the array's IOs.
    Part,
    /// They take too long.
    Latency,
}

/// The rhythm of one host at one exchange.
#[derive(Clone, Debug, Default)]
pub struct Rhythm {
    /// IO/s that the array does.
    ios: Option<f64>,
    hosts: usize,
    /// Mean time of a round's visits, in seconds.
    visit: Option<f64>,
    period: Option<Span>,
    slowed: Option<Slowed>,
}

impl Rhythm {
    /// When the next round is to be, after this one.
    pub fn next(&mut self, round: Round<'_>) -> Span {
        let Round { period, hosts, others, own, visit } = round;
        self.hosts = hosts.max(1);
        if let Some(others) = others {
            let ios = others.flows.all().ios + own.interval.per_second(own.elapsed).all().ios;
            let bounded = matches!(own.bounded, Bounded::Slices | Bounded::Window);
            // While nobody wants more, that the array does little says nothing of what it could do.
            let busy = bounded || others.governed.wants || others.observing.wants;
            self.see(ios, busy);
        }
        if let Some(visit) = visit.map(Span::secs) {
            self.visit = Some(self.visit.map_or(visit, |mean| mean + VISIT * (visit - mean)));
        }
        let part = ROUND * self.hosts as f64 / (PART * self.taken_for());
        let latency = self.visit.unwrap_or(0.0) / UNDER_WAY;
        let wanted = part.max(latency).min(LONGEST.secs()).max(period.secs());
        self.slowed = (wanted > period.secs()).then_some(if part >= latency {
            Slowed::Part
        } else {
            Slowed::Latency
        });
        let before = self.period.unwrap_or(period).secs();
        let next = wanted.clamp(before / STEP, before * STEP).max(period.secs());
        let next = if next > period.secs() { Span::from_secs(next) } else { period };
        self.period = Some(next);
        next
    }

    fn see(&mut self, ios: f64, busy: bool) {
        let before = self.taken_for();
        // What nothing was done in divides nothing.
        let ios = ios.max(1.0);
        self.ios = match (busy, ios >= before) {
            (_, true) => Some(ios),
            (true, false) => Some(before + DOWN * (ios - before)),
            (false, false) => self.ios,
        };
    }

    fn taken_for(&self) -> f64 {
        self.ios.unwrap_or(UNSEEN)
    }

    /// The time between rounds, once there was one.
    #[must_use]
    pub fn period(&self) -> Option<Span> {
        self.period
    }

    /// Why it is longer than the configuration says, if it is.
    #[must_use]
    pub fn slowed(&self) -> Option<Slowed> {
        self.slowed
    }

    /// How many hosts meet.
    #[must_use]
    pub fn hosts(&self) -> usize {
        self.hosts
    }

    /// IO/s that the array is taken for, and the part of its IOs that all hosts' rounds are if each has
    /// this rhythm.
    #[must_use]
    pub fn cost(&self) -> Option<(f64, f64)> {
        let rounds = ROUND * self.hosts as f64 / self.period?.secs();
        let ios = self.taken_for();
        Some((ios, rounds / (ios + rounds)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::{Interval, Sample};
    use crate::units::{Bytes, Shares, Window};
    use crate::{Governed, Source, Tuning};

    fn report(ios: u64, bounded: Bounded) -> Report {
        let reads = Sample { ios, bytes: Bytes(4096 * ios), ..Sample::default() };
        Report {
            elapsed: SECOND,
            interval: Interval { reads, ..Interval::default() },
            outstanding: 10.0,
            window: Window(10.0),
            beta: 0.0,
            shares: Shares(1000),
            active: 1000.0,
            bounded,
            governed: Governed::Yes,
            source: Source::Cluster,
            threshold: Span::from_millis(30),
            tuning: Tuning::Pinned,
            settings: None,
            wants: Default::default(),
            saturated: Default::default(),
            slowest: Default::default(),
        }
    }

    const SECOND: Span = Span::from_millis(1000);

    /// The period after so many rounds of n hosts that do so many IO/s together.
    fn settled(hosts: usize, ios: u64, bounded: Bounded, visit: Option<Span>) -> (f64, Rhythm) {
        let each = report(ios / hosts as u64, bounded);
        let others = Totals::of(core::iter::repeat_n(&each, hosts - 1));
        let mut rhythm = Rhythm::default();
        let round = Round { period: SECOND, hosts, others: Some(&others), own: &each, visit };
        for _ in 0..30 {
            rhythm.next(round);
        }
        (rhythm.period().unwrap().secs(), rhythm)
    }

    #[test]
    fn rounds_are_one_in_a_hundred_ios_with_any_number_of_hosts() {
        for hosts in [2, 4, 8, 32, 64, 256] {
            for ios in [500, 3000, 50_000] {
                let (period, rhythm) = settled(hosts, ios, Bounded::Slices, None);
                let (_, part) = rhythm.cost().unwrap();
                assert!(part <= 0.01 || period >= 60.0, "{hosts} hosts, {ios} IO/s: {part}");
                assert!(period == 1.0 || part > 0.008 || period >= 60.0, "{part} at {period} s");
            }
        }
        assert_eq!(settled(4, 1400, Bounded::Slices, None).0, 1.0, "the usual period");
    }

    #[test]
    fn hosts_that_want_little_meet_as_often_as_they_would_at_a_usual_array() {
        assert_eq!(settled(4, 8, Bounded::Nothing, None).0, 1.0);
        let (slow, _) = settled(4, 8, Bounded::Slices, None);
        assert_eq!(slow, 60.0, "never further apart");
    }

    #[test]
    fn rounds_that_take_long_are_further_apart() {
        let (period, rhythm) = settled(2, 3000, Bounded::Slices, Some(Span::from_millis(1500)));
        assert!((2.9..3.1).contains(&period), "{period}");
        assert_eq!(rhythm.slowed(), Some(Slowed::Latency));
    }

    #[test]
    fn the_others_are_not_surprised() {
        let each = report(10, Bounded::Slices);
        let others = Totals::of(core::iter::repeat_n(&each, 63));
        let round =
            |hosts| Round { period: SECOND, hosts, others: Some(&others), own: &each, visit: None };
        let mut rhythm = Rhythm::default();
        let mut before = rhythm.next(round(1)).secs();
        for hosts in [64, 64, 64, 64, 64, 2, 2, 2] {
            let next = rhythm.next(round(hosts)).secs();
            assert!((0.49..=2.01).contains(&(next / before)), "{next} after {before}");
            before = next;
        }
    }
}
