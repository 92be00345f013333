//! An episode: periods in which latency is above the usual, and the evidence for an outsider or a slower array.

use libm::{fabs, log, sqrt};

use super::curve::Curve;
use super::finding::{Finding, Seen, State};

/// Standard deviations above the usual below which a period is quiet, and quiet periods in a row that end an episode.
const QUIET: f64 = 1.5;
const OVER: u32 = 3;
/// Weight of a new period in the mean of explanations.
const GAIN: f64 = 0.4;
/// Standard deviations from which on both predictions are off as there was another change.
const CHANGED: f64 = 5.0;
/// A change that hosts hear of one after another: the most periods that it takes, the standard deviations by which latency rises further
/// meanwhile, and the least part of the outstanding IOs of the first period. With fewer, the law has begun to respond.
const COMES: u32 = 6;
const COMING: f64 = 1.0;
const UNANSWERED: f64 = 0.7;
/// Number of periods whose latencies an origin predicts.
const PREDICTED: u32 = 10;
/// Periods after the first of a change from which on a period lies after the change as a whole.
const LATER: u32 = 2;
/// Largest mean deviation of the better explanation, in standard deviations. With more, neither explains the latencies.
const EXPLAINS: f64 = 2.0;
/// Evidence from which on the load is called an outsider, least evidence with which it stays one, and periods in a row with so much evidence
/// before it is called so.
const TELLS: f64 = 4.0;
const STAYS: f64 = 2.0;
const TOLD: u32 = 5;
/// Least part of all outstanding IOs of an outsider that is called so.
const LEAST_PART: f64 = 0.1;
/// Largest evidence, so that later periods can outweigh it, and largest evidence of one change.
const EVIDENCE: f64 = 20.0;
const AT_ONCE: f64 = 16.0;
/// Relative error of an outsider's size that more periods do not reduce, as its IOs are not quite like ours.
const UNLIKE: f64 = 0.25;
/// Half of the 90 % interval of a normal distribution, in standard deviations.
const NINE_OF_TEN: f64 = 1.645;

/// The two explanations of a slower period.
#[derive(Clone, Copy, Debug, Default)]
struct Guess {
    /// Outstanding IOs of an outsider.
    outsider: f64,
    /// Factor by which the array is slower.
    factor: f64,
}

/// A period whose explanations predict the latencies of later periods.
#[derive(Clone, Copy, Debug, Default)]
struct Origin {
    guess: Guess,
    /// Variance of the curve there, over the variance of one period.
    unsure: f64,
    /// Whether it gives evidence: it follows a rise of latency, at outstanding IOs that the curve knows.
    counts: bool,
    age: u32,
    /// Sums of the deviations of later latencies from both predictions, in standard deviations, and the number of these periods.
    sums: [f64; 2],
    count: f64,
}

impl Origin {
    /// Compares a period with both predictions, if these differ.
    fn compare(&mut self, curve: &Curve, seen: &Seen, noise: f64) {
        if !self.counts || !(1..=PREDICTED).contains(&self.age) {
            return;
        }
        let unsure = sqrt(1.0 + self.unsure + curve.unsure(seen.outstanding));
        let predicted = self.guess.predicted(curve, seen);
        if fabs(log(predicted[0] / predicted[1])) <= noise * unsure {
            return;
        }
        let [outsider, slower] = predicted.map(|by| log(seen.latency() / by) / (noise * unsure));
        if seen.outstanding < curve.least() && slower < 0.0 {
            // The prediction for a slower array is an upper bound there, and the latency is below it: no evidence.
            return;
        }
        self.sums = [self.sums[0] + outsider, self.sums[1] + slower];
        self.count += 1.0;
    }

    /// Logarithm of how many times likelier the outsider is. The origin's own latency deviates by chance, too: hence 1 + 1 / n.
    fn evidence(&self) -> f64 {
        if self.count == 0.0 {
            return 0.0;
        }
        let [outsider, slower] = self.sums.map(|sum| (sum / self.count) * (sum / self.count));
        if outsider.min(slower) > EXPLAINS * EXPLAINS {
            return 0.0;
        }
        ((slower - outsider) / (2.0 * (1.0 + 1.0 / self.count))).clamp(-AT_ONCE, AT_ONCE)
    }
}

/// Periods in a row in which latency is above the usual.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Episode {
    periods: u32,
    quiet: u32,
    /// Outstanding IOs of its first period.
    begins: f64,
    /// Mean explanations of the last periods.
    now: Guess,
    origin: Origin,
    /// A later origin, as the first period of a change may be of before and after it.
    later: Option<Origin>,
    /// Evidence of earlier origins.
    evidence: f64,
    /// Periods in a row with enough evidence.
    told: u32,
}

impl Episode {
    pub(super) fn periods(&self) -> u32 {
        self.periods
    }

    pub(super) fn is_outsider(&self) -> bool {
        self.told >= TOLD
    }

    pub(super) fn state(&self) -> State {
        match self.periods {
            0..=2 => State::Usual,
            _ if self.is_outsider() => State::Outsider,
            _ => State::Slower,
        }
    }

    /// Adds a period. `noise`: the relative standard deviation of its latency. `restless`: its outstanding IOs go up and down too much to give
    /// evidence. Returns `false` if the episode is over.
    pub(super) fn period(
        &mut self,
        curve: &Curve,
        seen: &Seen,
        noise: f64,
        restless: bool,
    ) -> bool {
        let latency = seen.latency();
        let usual = curve.at(seen.outstanding);
        self.quiet = if log(latency / usual) < QUIET * noise { self.quiet + 1 } else { 0 };
        if self.quiet >= OVER {
            return false;
        }
        self.periods += 1;
        let outsider = (curve.outstanding(latency) - seen.outstanding).max(0.0);
        let guess = Guess { outsider, factor: latency / usual };
        let origin = Origin {
            guess,
            unsure: curve.unsure(seen.outstanding),
            counts: !restless && seen.outstanding >= curve.least(),
            ..Origin::default()
        };
        if self.periods == 1 {
            (self.begins, self.now) = (seen.outstanding, guess);
            self.origin = origin;
            return true;
        }
        let off =
            |by: Guess| by.predicted(curve, seen).map(|predicted| log(latency / predicted) / noise);
        let jumps = off(self.now).into_iter().all(|off| off > CHANGED);
        let drops = off(self.now).into_iter().all(|off| off < -CHANGED);
        let comes = self.origin.age < COMES
            && seen.outstanding > UNANSWERED * self.begins
            && off(self.origin.guess).into_iter().all(|off| off > COMING);
        self.origin.age += 1;
        if jumps || drops || comes {
            self.evidence = self.evidence();
            if drops {
                // The part of an outsider that is left gives no evidence for the whole.
                self.evidence = self.evidence.min(0.0);
            }
            let age = if comes && !jumps { self.origin.age } else { 0 };
            self.origin = Origin { counts: origin.counts && !drops, age, ..origin };
            self.later = None;
        } else {
            self.origin.compare(curve, seen, noise);
            match &mut self.later {
                Some(later) => {
                    later.age += 1;
                    later.compare(curve, seen, noise);
                }
                None if self.origin.age >= LATER => {
                    self.later =
                        Some(Origin { counts: origin.counts && self.origin.counts, ..origin })
                }
                None => {}
            }
        }
        self.now = if jumps || drops { guess } else { self.now.towards(guess) };
        self.tell(seen);
        true
    }

    fn tell(&mut self, seen: &Seen) {
        let enough = if self.is_outsider() { STAYS } else { TELLS };
        // The first period of a change may be a mean of before and after: its evidence alone is not enough.
        let holds = self.later.is_some_and(|later| later.evidence() > 0.0);
        let tells = holds && self.evidence() >= enough && self.part(seen) >= LEAST_PART;
        self.told = if tells { self.told + 1 } else { 0 };
    }

    fn part(&self, seen: &Seen) -> f64 {
        self.now.outsider / (self.now.outsider + seen.outstanding)
    }

    fn evidence(&self) -> f64 {
        (self.evidence + self.origin.evidence()).clamp(-EVIDENCE, EVIDENCE)
    }

    /// The finding, without state and latencies, which the caller adds.
    pub(super) fn finding(&self, seen: &Seen, noise: f64) -> Finding {
        let Guess { outsider, factor } = self.now;
        // A relative error of the latency is one of all outstanding IOs.
        let chance = noise * sqrt(GAIN) * (outsider + seen.outstanding);
        let error = NINE_OF_TEN * sqrt(chance * chance + UNLIKE * UNLIKE * outsider * outsider);
        Finding {
            periods: self.periods,
            outstanding: outsider,
            within: ((outsider - error).max(0.0), outsider + error),
            part: self.part(seen),
            factor,
            evidence: self.evidence(),
            compared: self.origin.count as u32,
            ..Finding::default()
        }
    }
}

impl Guess {
    /// Predictions of a period's latency: beside the outsider, and at the slower array.
    fn predicted(self, curve: &Curve, seen: &Seen) -> [f64; 2] {
        let most = curve.most_at(seen.outstanding);
        [curve.at(seen.outstanding + self.outsider), self.factor * most]
    }

    fn towards(self, new: Guess) -> Guess {
        Guess {
            outsider: self.outsider + GAIN * (new.outsider - self.outsider),
            factor: self.factor + GAIN * (new.factor - self.factor),
        }
    }
}
