//! Times of a host's rounds: when the exchange is read, the law ticked and the report published.
//!
//! The clock is handed `now` and waits for nothing itself. Its driver sleeps until [`PeriodClock::next`], or plans
//! an event for then, and says what happened: the control thread of the agent in real time, the simulator in virtual
//! time.
//!
//! | call | when |
//! | --- | --- |
//! | [`PeriodClock::begin`] | a round is due and begins |
//! | [`PeriodClock::settle`] | the law has ticked |
//! | [`PeriodClock::end`] | the round is over |

use crate::cluster::{Report, Totals};
use crate::rhythm::{Rhythm, Round};
use crate::units::{Instant, Span};

/// Time limit of one read or one write of the exchange. Far above any latency at which the exchange is still of use,
/// as an array that is not yet under control may be slow; but bounded, because the law ticks on.
pub const VISIT_LIMIT: Span = Span::from_millis(5_000);

/// Of what a period has grown: the part over which rounds spread, so that those that were even over a period are so over one of twice the
/// length; and the part by which the earliest are earlier. Later rounds would hear too late of what grew the period.
const SPREAD: f64 = 2.0;
const EARLY: f64 = 1.6;

/// Clock of one host's rounds at one volume.
#[derive(Clone, Debug)]
pub struct PeriodClock {
    /// Time between two rounds as configured.
    period: Span,
    /// Shortest time between two rounds that the exchange can bear.
    least: Span,
    rhythm: Rhythm,
    /// Time between the rounds before.
    last: Span,
    /// Part of a period by which this host's rounds are later than those of a host that was started with it.
    phase: f64,
    /// Start of the next round, or of the present one.
    next: Instant,
    in_round: bool,
}

impl PeriodClock {
    /// A clock whose first round begins after the fraction `phase` of a period, so that hosts that were started
    /// together do not visit the exchange at the same time.
    #[must_use]
    pub fn new(now: Instant, period: Span, phase: f64) -> PeriodClock {
        PeriodClock {
            period,
            least: Span::ZERO,
            rhythm: Rhythm::default(),
            last: period,
            phase,
            next: now + Span::from_secs(period.secs() * phase),
            in_round: false,
        }
    }

    /// Start of the next round. During a round: the start of this one.
    #[must_use]
    pub fn next(&self) -> Instant {
        self.next
    }

    /// Whether a round is to begin. Never during a round.
    #[must_use]
    pub fn is_due(&self, now: Instant) -> bool {
        !self.in_round && self.next <= now
    }

    /// Time between two rounds: as configured, or longer where the exchange would load the array too much, or where
    /// it cannot bear that many hosts.
    #[must_use]
    pub fn period(&self) -> Span {
        self.rhythm.period().unwrap_or(self.period).max(self.least)
    }

    /// Sets the shortest time between two rounds that the exchange can bear, from the next round on.
    pub fn set_least(&mut self, least: Span) {
        self.least = least;
    }

    /// Whether rounds are further apart than configured because the exchange cannot bear that many hosts.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.least > self.period
    }

    /// Time between two rounds as configured, whatever the exchange costs the array.
    #[must_use]
    pub fn configured(&self) -> Span {
        self.period
    }

    /// The rhythm that the rounds follow.
    #[must_use]
    pub fn rhythm(&self) -> &Rhythm {
        &self.rhythm
    }

    /// Changes the configured period. The next round begins within one new period. Returns whether it begins earlier
    /// than it would have.
    pub fn set_period(&mut self, now: Instant, period: Span) -> bool {
        self.period = period;
        let earlier = !self.in_round && now + period < self.next;
        if earlier {
            self.next = now + period;
        }
        earlier
    }

    /// Begins a round of the exchange.
    pub fn begin(&mut self) {
        self.in_round = true;
    }

    /// The law has ticked: the time to the next round follows from its report and from the other hosts.
    /// `hosts`: number of hosts that use the exchange, this one included. `others`: sums of the other hosts' reports,
    /// `None` if they were not heard.
    pub fn settle(&mut self, hosts: usize, others: Option<&Totals>, own: &Report) {
        self.rhythm.next(Round { period: self.period, hosts, others, own });
    }

    /// Ends a round. Rounds that were missed meanwhile are left out, not made up for. Returns the start of the next
    /// one.
    ///
    /// The next round is earlier or later by a part that differs between hosts, if the period becomes longer, or if rounds further apart
    /// than configured were missed. Otherwise the rounds of hosts that a busy array ended together would meet at one drive for good.
    pub fn end(&mut self, now: Instant) -> Instant {
        self.in_round = false;
        let period = self.period();
        let before = core::mem::replace(&mut self.last, period);
        let longer = (period.secs() - before.secs()).max(0.0);
        let missed = self.next + period < now && period > self.period;
        let wait = Span::from_secs(match missed {
            true => period.secs() * (0.5 + self.phase),
            false => period.secs() + longer * (SPREAD * self.phase - EARLY),
        });
        self.next = self.next + wait;
        if self.next < now {
            self.next = now + wait;
        }
        self.next
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const SECOND: Span = Span::from_millis(1000);

    fn at(ms: u64) -> Instant {
        Instant(0) + Span::from_millis(ms)
    }

    /// One round from its start to `end`, in milliseconds.
    fn round(clock: &mut PeriodClock, end: u64) -> Instant {
        assert!(clock.is_due(clock.next()));
        clock.begin();
        assert!(!clock.is_due(at(1 << 40)), "a round is under way");
        clock.end(at(end))
    }

    #[test]
    fn rounds_that_were_missed_are_not_made_up_for() {
        let mut clock = PeriodClock::new(at(0), SECOND, 0.25);
        assert_eq!(clock.next(), at(250));
        assert_eq!(round(&mut clock, 260), at(1250), "what a round takes is part of its period");
        assert_eq!(round(&mut clock, 2250), at(2250), "just in time");
        assert_eq!(round(&mut clock, 7000), at(8000), "a period after the end, not at once");
    }

    #[test]
    fn a_shorter_period_is_in_force_at_once_and_a_longer_one_after_the_next_round() {
        let mut clock = PeriodClock::new(at(0), SECOND, 0.8);
        assert!(!clock.set_period(at(100), Span::from_millis(5000)));
        assert_eq!(clock.next(), at(800));
        assert_eq!(round(&mut clock, 1010), at(5800));
        assert!(clock.set_period(at(1500), SECOND));
        assert_eq!(clock.next(), at(2500));
        clock.begin();
        assert!(!clock.set_period(at(2600), Span::from_millis(100)), "not during a round");
        assert_eq!(clock.end(at(2610)), at(2710), "the new grid is in the past");
    }

    #[test]
    fn rounds_that_ended_together_spread_over_a_period_that_is_longer_than_configured() {
        let clock = |host| PeriodClock::new(at(0), SECOND, f64::from(host) / 1000.0);
        let mut clocks: Vec<_> = (0..1000).map(clock).collect();
        // A period that doubles, and an array that ends all rounds at once: when they begin, and later on.
        for (round, secs) in [2, 4, 8, 16, 32, 32, 32, 32].into_iter().enumerate() {
            let mut places = [0; 16];
            let stuck = round == 0 || round == 5;
            for clock in &mut clocks {
                clock.set_least(Span::from_millis(1000 * secs));
                clock.begin();
                let before = clock.next();
                let next = clock.end(at(if stuck { 150_000 } else { 0 }));
                let apart = next.since(before).secs() / secs as f64;
                assert!(stuck || (0.19..=1.21).contains(&apart), "{apart} of {secs} s");
                places[(next.0 * 16 / 1_000_000_000 / secs % 16) as usize] += 1;
            }
            assert!(places.iter().all(|n| (30..=95).contains(n)), "{places:?} of {secs} s");
        }
    }

    /// Something that happens to a clock.
    #[derive(Clone, Debug)]
    enum Step {
        /// A wait of so many milliseconds.
        Wait(u64),
        /// The next round takes so many milliseconds.
        Takes(u64),
        /// The configured period becomes so many milliseconds.
        Period(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (1u64..400).prop_map(Step::Wait),
            1 => (0u64..900).prop_map(Step::Takes),
            1 => (1u64..300).prop_map(Step::Period),
        ];
        proptest::collection::vec(step, 1..40)
    }

    /// The rounds that begin, by a timer that counts down millisecond by millisecond.
    fn counted_down(steps: &[Step]) -> Vec<u64> {
        let (mut period, mut takes) = (100i64, 0u64);
        // Milliseconds to the next round; those that the present round still takes; those since it began.
        let (mut left, mut busy, mut since) = (80i64, None::<u64>, 0i64);
        let mut began = Vec::new();
        let mut now = 0;
        for step in steps {
            match *step {
                Step::Takes(ms) => takes = ms,
                Step::Period(ms) => {
                    period = ms as i64;
                    if busy.is_none() {
                        left = left.min(period);
                    }
                }
                Step::Wait(ms) => {
                    for _ in 0..ms {
                        loop {
                            if busy.is_none() && left == 0 {
                                began.push(now);
                                (busy, since) = (Some(takes), 0);
                            }
                            if busy != Some(0) {
                                break;
                            }
                            busy = None;
                            left = if since > period { period } else { period - since };
                            if left > 0 {
                                break;
                            }
                        }
                        now += 1;
                        since += 1;
                        match &mut busy {
                            Some(ms) => *ms -= 1,
                            None => left -= 1,
                        }
                    }
                }
            }
        }
        began
    }

    /// The same by the clock, as a driver uses it.
    fn driven(steps: &[Step]) -> Vec<u64> {
        let mut clock = PeriodClock::new(at(0), Span::from_millis(100), 0.8);
        let (mut now, mut takes, mut ends) = (0, 0, None::<u64>);
        let mut began = Vec::new();
        for step in steps {
            match *step {
                Step::Takes(ms) => takes = ms,
                Step::Period(ms) => {
                    clock.set_period(at(now), Span::from_millis(ms));
                }
                Step::Wait(ms) => {
                    let until = now + ms;
                    loop {
                        let next = ends.unwrap_or(clock.next().0 / 1_000_000).max(now);
                        if next >= until {
                            break;
                        }
                        now = next;
                        if ends.take().is_some() {
                            clock.end(at(now));
                        } else if clock.is_due(at(now)) {
                            clock.begin();
                            began.push(now);
                            ends = Some(now + takes);
                        }
                    }
                    now = until;
                }
            }
        }
        began
    }

    proptest! {
        #[test]
        fn rounds_begin_when_a_timer_that_counts_down_runs_out(steps in steps()) {
            prop_assert_eq!(driven(&steps), counted_down(&steps));
        }
    }
}
