//! Time between two rounds of the exchange, so that the exchange is at most 1 % of the array's IOs.
//!
//! A round of a host takes one read and one write at the array. With n hosts and a period T that is
//! 2 · n / T IOs per second, whatever the size of each. So the period follows the number of hosts and the
//! throughput of the array: the configured period applies while all rounds together are at most `PART` of
//! all IOs; else rounds are further apart.
//!
//! A law with rounds far apart settles slowly. So a host does rounds more often while its law moves, from a
//! bounded credit that it saves while the law rests. Each host publishes its own period, by which others
//! judge its liveness and its counts. So hosts need not have the same period, and hosts of earlier versions
//! keep the configured one.

use crate::cluster::{Bounded, Governed, Report, Totals};
use crate::units::Span;

/// Fraction of the array's IOs that the rounds of all hosts take while the law rests. With what is saved for
/// times when it moves ([`SAVED`]) it is 0.9 %, which leaves a tenth of 1 % for variations of throughput.
const PART: f64 = 0.008;

/// Credit that a round at the resting period adds, in rounds.
const SAVED: f64 = 0.125;

/// Largest credit in rounds, which is also the credit at the start.
const CREDIT: f64 = 16.0;

/// Quotient of the resting period and the period while the law moves.
const HASTE: f64 = 4.0;

/// Relative change of the law's state from one round to the next from which the law counts as moving.
const MOVES: f64 = 0.08;

/// IOs of a round: one read and one write.
const ROUND: f64 = 2.0;

/// Assumed IO/s of an array that was not busy yet. It costs nothing until the array is busy.
const UNSEEN: f64 = 2000.0;

/// Weight of a new round in the mean of the array's IO/s.
const FOLLOWS: f64 = 0.5;

/// Quotient of the array's IO/s and their mean from which the mean is replaced at once: the array can do more
/// than it could, or it is the first round of a load.
const JUMP: f64 = 1.5;

/// Largest fraction of a period that the read and the write of a round may take.
const UNDER_WAY: f64 = 0.5;

/// Weight of a new round in the mean time of reads and writes.
const VISIT: f64 = 0.5;

/// Largest factor by which the period grows from one round to the next, as a throughput or a number of hosts
/// may be wrong once.
const STEP: f64 = 2.0;

/// Longest period, unless a longer one is configured. A host that starts is to be heard within a minute.
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
    /// Time that the last round's read and write took together. `None` if one of them failed.
    pub visit: Option<Span>,
}

/// Reason for which rounds are further apart than configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slowed {
    /// All rounds together would exceed their part of the array's IOs.
    Part,
    /// The read and the write take too long.
    Latency,
}

/// Rhythm of one host at one exchange.
#[derive(Clone, Debug)]
pub struct Rhythm {
    /// IO/s of the array.
    ios: Option<f64>,
    hosts: usize,
    /// Mean time of a round's read and write, in seconds, and the time of the last one.
    visit: Option<f64>,
    last_visit: f64,
    period: Option<Span>,
    slowed: Option<Slowed>,
    /// State of the law at the last round.
    state: Option<LawState>,
    /// Rounds that may be done in addition to those at the resting period.
    credit: f64,
}

impl Default for Rhythm {
    fn default() -> Rhythm {
        Rhythm {
            ios: None,
            hosts: 0,
            visit: None,
            last_visit: f64::INFINITY,
            period: None,
            slowed: None,
            state: None,
            credit: CREDIT,
        }
    }
}

/// The law's state per share, as a report has it. The window and β of a host whose VMs want little of large shares stay
/// as they are while its window per share moves: then its active shares move.
#[derive(Clone, Copy, Debug)]
struct LawState {
    window: f64,
    beta: f64,
    active: f64,
}

impl LawState {
    fn of(report: &Report) -> LawState {
        let shares = f64::from(report.shares.0.max(1));
        let [window, beta, active] =
            [report.window.0, report.beta, report.active].map(|value| value / shares);
        LawState { window, beta, active }
    }

    fn moved(self, before: LawState) -> bool {
        let differ = |a: f64, b: f64| (a - b).abs() > MOVES * a.min(b);
        differ(self.window, before.window)
            || differ(self.beta, before.beta)
            || differ(self.active, before.active)
    }
}

impl Rhythm {
    /// Time to the next round.
    pub fn next(&mut self, round: Round<'_>) -> Span {
        let Round { period, hosts, others, own, visit } = round;
        self.hosts = hosts.max(1);
        // While no host wants more, low throughput does not show what the array could do.
        let bounded = matches!(own.bounded, Bounded::Slices | Bounded::Window);
        let busy = bounded || others.is_some_and(|o| o.governed.wants || o.observing.wants);
        if let Some(others) = others {
            let all = others.flows.all().plus(own.interval.per_second(own.elapsed).all());
            // A host without windows does not show whether it wants more; the latency does.
            let full = own.governed == Governed::No && all.latency > all.ios * own.threshold.secs();
            // Hosts that are not heard now do IOs as well.
            self.see(all.ios, (busy || full) && others.missing <= 0.0);
        }
        if let Some(now) = visit.map(Span::secs) {
            // One long visit, as of a host that was stopped for a while, says nothing of the next ones.
            let visit = now.min(self.last_visit);
            self.last_visit = now;
            self.visit = Some(self.visit.map_or(visit, |mean| mean + VISIT * (visit - mean)));
        }
        let state = LawState::of(own);
        let moves = busy && self.state.replace(state).is_none_or(|before| state.moved(before));

        let part = ROUND * self.hosts as f64 / (PART * self.taken_for());
        let latency = self.visit.unwrap_or(0.0) / UNDER_WAY;
        let limited = |seconds: f64| seconds.max(latency).min(LONGEST.secs()).max(period.secs());
        let rest = limited(part);
        let wanted = if moves && self.credit >= 1.0 { limited(part / HASTE) } else { rest };
        self.slowed = (wanted > period.secs()).then_some(if part >= latency {
            Slowed::Part
        } else {
            Slowed::Latency
        });
        let before = self.period.unwrap_or(period).secs();
        let next = wanted.min(before * STEP).max(period.secs());
        self.credit = (self.credit + (1.0 + SAVED) * next / rest - 1.0).clamp(0.0, CREDIT);
        let next = if next > period.secs() { Span::from_secs(next) } else { period };
        self.period = Some(next);
        next
    }

    fn see(&mut self, ios: f64, busy: bool) {
        let before = self.taken_for();
        // An interval without IOs would make the period infinite.
        let ios = ios.max(1.0);
        if ios > JUMP * before {
            self.ios = Some(ios);
        } else if busy || ios >= before {
            self.ios = Some(before + FOLLOWS * (ios - before));
        }
    }

    fn taken_for(&self) -> f64 {
        self.ios.unwrap_or(UNSEEN)
    }

    /// Time between rounds. `None` before the first one.
    #[must_use]
    pub fn period(&self) -> Option<Span> {
        self.period
    }

    /// Reason for which the period is longer than configured. `None` if it is not.
    #[must_use]
    pub fn slowed(&self) -> Option<Slowed> {
        self.slowed
    }

    /// Number of hosts that use the exchange.
    #[must_use]
    pub fn hosts(&self) -> usize {
        self.hosts
    }

    /// IO/s of the array, and the fraction of its IOs that the rounds of all hosts are if each has the
    /// present period of this one.
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

    fn report(ios: u64, bounded: Bounded) -> Report {
        Report { bounded, ..crate::testing::report(ios) }
    }

    const SECOND: Span = Span::from_millis(1000);

    /// The period after thirty rounds of `hosts` hosts that do `ios` IO/s together.
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
                assert!(part <= 0.009 || period >= 60.0, "{hosts} hosts, {ios} IO/s: {part}");
                assert!(period == 1.0 || part > 0.007 || period >= 60.0, "{part} at {period} s");
            }
        }
        assert_eq!(settled(4, 1400, Bounded::Slices, None).0, 1.0, "the configured period");
    }

    #[test]
    fn hosts_that_want_little_keep_the_configured_period() {
        assert_eq!(settled(4, 8, Bounded::Nothing, None).0, 1.0);
        let (slow, _) = settled(4, 8, Bounded::Slices, None);
        assert_eq!(slow, 60.0, "the longest period");
    }

    #[test]
    fn a_host_without_windows_takes_the_array_for_busy_above_the_threshold() {
        let period = |latency_ms: u64| {
            let mut own = Report { governed: Governed::No, ..report(300, Bounded::Nothing) };
            own.interval.reads.latency = Span::from_millis(300 * latency_ms);
            own.threshold = Span::from_millis(30);
            let others = Totals::of([&own]);
            let mut rhythm = Rhythm::default();
            let others = Some(&others);
            let round = Round { period: SECOND, hosts: 16, others, own: &own, visit: None };
            (0..30).map(|_| rhythm.next(round).secs()).fold(0.0, f64::max)
        };
        assert!((period(29) - 2.0).abs() < 0.01, "{}: as at 2,000 IO/s", period(29));
        assert!((period(31) - 6.67).abs() < 0.01, "{}: as at 600 IO/s", period(31));
    }

    #[test]
    fn rounds_that_take_long_are_further_apart() {
        let (period, rhythm) = settled(2, 3000, Bounded::Slices, Some(Span::from_millis(1500)));
        assert!((2.9..3.1).contains(&period), "{period}");
        assert_eq!(rhythm.slowed(), Some(Slowed::Latency));
    }

    #[test]
    fn the_period_grows_twofold_at_most() {
        let each = report(10, Bounded::Slices);
        let others = Totals::of(core::iter::repeat_n(&each, 63));
        let round =
            |hosts| Round { period: SECOND, hosts, others: Some(&others), own: &each, visit: None };
        let mut rhythm = Rhythm::default();
        let mut before = rhythm.next(round(1)).secs();
        for hosts in [64, 64, 64, 64, 64, 2, 2, 64, 64, 64, 64, 64, 64, 64] {
            let next = rhythm.next(round(hosts)).secs();
            assert!(next <= 2.01 * before, "{next} after {before}");
            before = next;
        }
        // A failed reading changes nothing.
        let kept = rhythm.period();
        rhythm.next(Round { others: None, ..round(64) });
        assert_eq!(
            rhythm.period().map(Span::secs).map(f64::round),
            kept.map(Span::secs).map(f64::round)
        );
    }

    /// Rounds of 64 hosts at 2,000 IO/s whose window is multiplied by `factor` in each round, for so many
    /// seconds: the number of rounds of one host, and its shortest period after the first ten seconds.
    fn rounds(factor: f64, seconds: f64, rhythm: &mut Rhythm) -> (usize, f64) {
        let others = report(2000 / 64, Bounded::Slices);
        let totals = Totals::of(core::iter::repeat_n(&others, 63));
        let mut own = others;
        let (mut time, mut count, mut shortest) = (0.0, 0, f64::INFINITY);
        while time < seconds {
            own.window.0 *= factor;
            let (others, own) = (Some(&totals), &own);
            let next = rhythm.next(Round { period: SECOND, hosts: 64, others, own, visit: None });
            shortest = if time > 10.0 { next.secs().min(shortest) } else { shortest };
            time += next.secs();
            count += 1;
        }
        (count, shortest)
    }

    #[test]
    fn rounds_are_nearer_while_the_window_per_share_moves_of_a_host_that_wants_little() {
        let others = report(2000 / 64, Bounded::Slices);
        let totals = Totals::of(core::iter::repeat_n(&others, 63));
        let shortest = |factor: f64| {
            let (mut rhythm, mut own) = (Rhythm::default(), others);
            let next = (0..12).map(|_| {
                own.active *= factor;
                let (others, own) = (Some(&totals), &own);
                rhythm.next(Round { period: SECOND, hosts: 64, others, own, visit: None }).secs()
            });
            next.skip(6).fold(f64::INFINITY, f64::min)
        };
        let rest = ROUND * 64.0 / (PART * 2000.0);
        assert!(shortest(0.7) < 1.1 * rest / HASTE, "{}", shortest(0.7));
        assert!(shortest(0.99) > 0.9 * rest, "{}", shortest(0.99));
    }

    #[test]
    fn rounds_are_nearer_while_the_law_moves_as_far_as_was_saved() {
        let rest = ROUND * 64.0 / (PART * 2000.0);
        let (_, hasty) = rounds(1.2, 30.0, &mut Rhythm::default());
        assert!((hasty - rest / HASTE).abs() < 0.3, "{hasty} of {rest}");
        let (_, calm) = rounds(1.02, 60.0, &mut Rhythm::default());
        assert!(calm > 0.95 * rest, "{calm} of {rest}");

        // A law that never rests does not do more than 0.9 %, but for the first credit.
        let mut rhythm = Rhythm::default();
        let (count, _) = rounds(1.2, 10_000.0, &mut rhythm);
        let allowed = 10_000.0 / rest * (1.0 + SAVED) + CREDIT + 3.0;
        assert!((count as f64) < allowed, "{count} rounds, {allowed} allowed");

        // And what was saved since can be used again.
        rounds(1.0, 200.0 * rest, &mut rhythm);
        let (count, _) = rounds(1.2, 20.0, &mut rhythm);
        assert!(count >= 4, "{count}");
    }
}
