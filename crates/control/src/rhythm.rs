//! The period of the exchange, which takes at most 1 % of a healthy array's IOs.
//!
//! A round of a host takes one read and one write at the array, n = 2 IOs, or more where the slots of all hosts exceed a MiB. With H hosts
//! and a period T, rounds take n · H / T IO/s. Let R be the IO/s of the array. Then T is the configured period, or n · H / (PART · R) if
//! that is more.
//!
//! R follows the sum of all hosts' IO/s. A lower value counts only as evidence of the array's limit: while a host is backlogged, and
//! latency is near the threshold. On an array that has become slow the law must act, however few IOs the array does.

use crate::cluster::{Bounded, Governed, Report, Totals};
use crate::mechanism::{Mechanism, on};
use crate::units::Span;

/// Part of the array's IOs that the rounds of all hosts take.
const PART: f64 = 0.009;

/// Factor on [`PART`] in the first [`HASTY`] rounds in which latency is off the threshold: the law has to act. If it does not bring latency
/// to the threshold in these rounds, more rounds will not help.
const HASTE: f64 = 4.0;
const HASTY: u32 = 10;

/// Hosts whose slots are a MiB: a larger read counts as several, as it takes more than one drive.
const MIB: f64 = 256.0;

/// Assumed IO/s of an array that was not busy yet, harmless until then.
const UNSEEN: f64 = 2000.0;

/// Factor between latency and threshold, above or below, from which windows or the array are taken to be changing.
const OFF: f64 = 1.5;

/// Largest growth of the period in a round, as a single throughput or number of hosts may be wrong.
const STEP: f64 = 2.0;

/// Longest period, unless a longer one is configured. A new host must be heard within a minute.
const LONGEST: Span = Span::from_millis(60_000);

/// State at the end of a round, from which the time of the next one follows.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// Time between two rounds as configured.
    pub period: Span,
    /// Number of hosts that use the exchange, this one included.
    pub hosts: usize,
    /// Sums of the other hosts' reports. `None` if they were not heard.
    pub others: Option<&'a Totals>,
    /// The report of this host.
    pub own: &'a Report,
}

/// Rhythm of one host at one exchange.
#[derive(Clone, Debug, Default)]
pub struct Rhythm {
    /// IO/s of the array.
    ios: Option<f64>,
    hosts: usize,
    period: Option<Span>,
    slowed: bool,
    /// Rounds in a row in which a host wanted more, and latency was off the threshold.
    off: u32,
}

impl Rhythm {
    /// Time to the next round.
    pub fn next(&mut self, round: Round<'_>) -> Span {
        let Round { period, hosts, others, own } = round;
        self.hosts = hosts.max(1);
        let mut part = PART;
        if let Some(others) = others {
            let all = others.flows.all().plus(own.interval.per_second(own.elapsed).all());
            let bounded = matches!(own.bounded, Bounded::Slices | Bounded::Window);
            let wants = bounded || others.governed.wants || others.observing.wants;
            let over = all.latency / (all.ios * own.threshold.secs());
            // A host without windows does not show whether it wants more; the latency does.
            let full = own.governed == Governed::No && over > 1.0;
            // Hosts that are not heard now do IOs as well.
            let near = (over < OFF && over * OFF > 1.0) || !on(Mechanism::RhythmSick);
            self.see(all.ios, (full || (wants && near)) && others.missing <= 0.0);
            self.off = if wants && !near { self.off.saturating_add(1) } else { 0 };
            if (1..=HASTY).contains(&self.off) && on(Mechanism::RhythmHaste) {
                part *= HASTE;
            }
        }
        let wanted = self.ios_of_rounds() / (part * self.taken_for());
        let wanted = if on(Mechanism::Rhythm) { wanted } else { 0.0 };
        let before = self.period.unwrap_or(period).secs();
        let next = wanted.min(LONGEST.secs()).min(before * STEP);
        self.slowed = next > period.secs();
        let next = if self.slowed { Span::from_secs(next) } else { period };
        self.period = Some(next);
        next
    }

    fn see(&mut self, ios: f64, shows: bool) {
        let before = self.taken_for();
        if ios > before {
            self.ios = Some(ios);
        } else if shows {
            self.ios = Some(0.5 * (before + ios));
        }
    }

    /// IOs of one round of each host: a read and a write.
    fn ios_of_rounds(&self) -> f64 {
        let hosts = self.hosts as f64;
        hosts * (1.0 + (hosts / MIB).max(1.0))
    }

    fn taken_for(&self) -> f64 {
        self.ios.unwrap_or(UNSEEN)
    }

    /// Time between rounds. `None` before the first one.
    #[must_use]
    pub fn period(&self) -> Option<Span> {
        self.period
    }

    /// Whether the period is longer than configured, as all rounds together would exceed their part of the array's IOs.
    #[must_use]
    pub fn is_slowed(&self) -> bool {
        self.slowed
    }

    /// Number of hosts that use the exchange.
    #[must_use]
    pub fn hosts(&self) -> usize {
        self.hosts
    }

    /// IO/s of the array, and the fraction of its IOs that rounds take. All hosts are assumed to have this host's present period.
    #[must_use]
    pub fn cost(&self) -> Option<(f64, f64)> {
        let rounds = self.ios_of_rounds() / self.period?.secs();
        let ios = self.taken_for();
        Some((ios, rounds / (ios + rounds)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(ios: u64, bounded: Bounded) -> Report {
        Report { bounded, ..crate::testing::report(ios) }
    }

    const SECOND: Span = Span::from_millis(1000);

    /// The period after thirty rounds of `hosts` hosts like this one.
    fn after(rhythm: &mut Rhythm, hosts: usize, own: &Report) -> f64 {
        let others = Totals::of(core::iter::repeat_n(own, hosts - 1));
        let round = Round { period: SECOND, hosts, others: Some(&others), own };
        (0..30).map(|_| rhythm.next(round).secs()).fold(0.0, |_, last| last)
    }

    #[test]
    fn rounds_are_one_in_a_hundred_ios_with_any_number_of_hosts() {
        for hosts in [2, 4, 8, 32, 64, 256] {
            for ios in [500, 3000, 50_000] {
                let mut rhythm = Rhythm::default();
                let own = report(ios / hosts as u64, Bounded::Slices);
                let period = after(&mut rhythm, hosts, &own);
                let (_, part) = rhythm.cost().unwrap();
                assert!(part <= 0.01 || period >= 60.0, "{hosts} hosts, {ios} IO/s: {part}");
                assert!(period == 1.0 || part > 0.008 || period >= 60.0, "{part} at {period} s");
            }
        }
    }

    #[test]
    fn hosts_that_want_little_keep_the_configured_period() {
        assert_eq!(after(&mut Rhythm::default(), 4, &report(2, Bounded::Nothing)), 1.0);
        assert_eq!(after(&mut Rhythm::default(), 4, &report(2, Bounded::Slices)), 60.0);
    }

    #[test]
    fn rounds_stay_as_they_are_while_the_array_is_sick() {
        let mut rhythm = Rhythm::default();
        let well = after(&mut rhythm, 16, &report(200, Bounded::Slices));
        let mut sick = report(2, Bounded::Slices);
        sick.interval.reads.latency = Span::from_millis(2 * 3000);
        assert_eq!(after(&mut rhythm, 16, &sick), well);
    }

    #[test]
    fn a_host_without_windows_takes_the_array_for_busy_above_the_threshold() {
        let period = |latency_ms: u64| {
            let mut own = Report { governed: Governed::No, ..report(30, Bounded::Nothing) };
            own.interval.reads.latency = Span::from_millis(30 * latency_ms);
            own.threshold = Span::from_millis(30);
            after(&mut Rhythm::default(), 16, &own)
        };
        assert!(period(31) > 3.0 * period(29), "{} {}", period(29), period(31));
    }

    #[test]
    fn the_period_grows_twofold_at_most_and_a_failed_read_changes_nothing() {
        let own = report(10, Bounded::Slices);
        let others = Totals::of(core::iter::repeat_n(&own, 63));
        let others = Some(&others);
        let mut rhythm = Rhythm::default();
        let mut before = 1.0;
        for hosts in [1, 64, 64, 64, 64, 2, 2, 64, 64, 64, 64] {
            let next = rhythm.next(Round { period: SECOND, hosts, others, own: &own }).secs();
            assert!(next <= 2.01 * before, "{next} after {before}");
            before = next;
        }
        let kept = after(&mut rhythm, 64, &own);
        let next = rhythm.next(Round { period: SECOND, hosts: 64, others: None, own: &own });
        assert_eq!(next.secs(), kept);
    }
}
