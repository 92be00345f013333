//! A time in which the array takes longer than usual, and what explains it.

use libm::{fabs, log, sqrt};

use super::curve::Curve;
use super::finding::{Finding, Seen, State};

/// A period with fewer standard deviations above the usual is a quiet one; after so many running it is over.
const QUIET: f64 = 1.5;
const OVER: u32 = 3;
/// Weight of a new period in what explains the last periods.
const GAIN: f64 = 0.4;
/// Standard deviations by which both explanations are off if there was another change.
const CHANGED: f64 = 5.0;
/// For how many periods a change may come, as hosts hear of it one after another; the standard deviations by which it then goes on; and the
/// part of the outstanding IOs that there must still be: with fewer the law has begun to answer.
const COMES: u32 = 6;
const COMING: f64 = 1.0;
const UNANSWERED: f64 = 0.7;
/// For how many periods latencies are foretold from one.
const FORETOLD: u32 = 10;
/// Periods after the first of a change from which on there is only one array for sure.
const LATER: u32 = 2;
/// Standard deviations by which the better explanation may be off: what is off by more explains nothing.
const EXPLAINS: f64 = 2.0;
/// Evidence from which on it is an outsider, with which it stays one, and for how many periods running there must be so much.
const TELLS: f64 = 4.0;
const STAYS: f64 = 2.0;
const TOLD: u32 = 5;
/// The least part of all outstanding IOs that is told from none.
const LEAST_PART: f64 = 0.1;
/// The most that evidence is, so that it can be outweighed, and the most that one change brings.
const EVIDENCE: f64 = 20.0;
const AT_ONCE: f64 = 16.0;
/// Relative error of an outsider's size where it is well known: its IOs are not quite like ours.
const UNLIKE: f64 = 0.25;
/// Standard deviations in which nine of ten are.
const NINE_OF_TEN: f64 = 1.645;

/// What explains that the array takes longer: one or the other.
#[derive(Clone, Copy, Debug, Default)]
struct Guess {
    /// Outstanding IOs of an outsider.
    outsider: f64,
    /// Factor by which the array is slower.
    factor: f64,
}

/// Period from which the latencies of later ones are foretold.
#[derive(Clone, Copy, Debug, Default)]
struct Origin {
    guess: Guess,
    /// Variance of the usual latency there, in that of a period's.
    unsure: f64,
    /// Whether it says something: it is the beginning of a change, with as many outstanding IOs as are known.
    counts: bool,
    age: u32,
    /// Sums of how far later latencies were off what is foretold by either guess, in standard deviations, and how many.
    sums: [f64; 2],
    count: f64,
}

impl Origin {
    /// Compares both explanations, where they foretell different latencies.
    fn compare(&mut self, curve: &Curve, seen: &Seen, noise: f64) {
        if !self.counts || !(1..=FORETOLD).contains(&self.age) {
            return;
        }
        let unsure = sqrt(1.0 + self.unsure + curve.unsure(seen.outstanding));
        let foretold = self.guess.foretold(curve, seen);
        if fabs(log(foretold[0] / foretold[1])) <= noise * unsure {
            return;
        }
        let [outsider, slower] = foretold.map(|by| log(seen.latency() / by) / (noise * unsure));
        if seen.outstanding < curve.least() && slower < 0.0 {
            // A slower array takes so long at most: how much less is not known.
            return;
        }
        self.sums = [self.sums[0] + outsider, self.sums[1] + slower];
        self.count += 1.0;
    }

    /// Logarithm of how many times likelier the first guess is. That from which it was foretold is off by chance, too.
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

/// A time in which the array takes longer than usual.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Episode {
    periods: u32,
    quiet: u32,
    /// Outstanding IOs of its first period.
    begins: f64,
    /// What explains its last periods, in the mean.
    now: Guess,
    origin: Origin,
    /// A period after that: where the first is of two arrays, this one is not.
    later: Option<Origin>,
    /// Evidence of earlier changes.
    evidence: f64,
    /// Periods running with enough of it.
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

    /// Takes in a period. `noise`: the standard deviation of its latency, relative. `false` if it is over.
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
            |by: Guess| by.foretold(curve, seen).map(|foretold| log(latency / foretold) / noise);
        let jumps = off(self.now).into_iter().all(|off| off > CHANGED);
        let drops = off(self.now).into_iter().all(|off| off < -CHANGED);
        let comes = self.origin.age < COMES
            && seen.outstanding > UNANSWERED * self.begins
            && off(self.origin.guess).into_iter().all(|off| off > COMING);
        self.origin.age += 1;
        if jumps || drops || comes {
            self.evidence = self.evidence();
            if drops {
                // What is left says little of what there was.
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
        // Evidence of the first period alone may be that of two arrays in one period.
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

    /// What is found. The state and the latencies are the caller's to say.
    pub(super) fn finding(&self, seen: &Seen, noise: f64) -> Finding {
        let Guess { outsider, factor } = self.now;
        // An error of the latency is one of all that is outstanding.
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
    /// Latencies with as many outstanding IOs as in this period: beside the outsider, and at the slower array.
    fn foretold(self, curve: &Curve, seen: &Seen) -> [f64; 2] {
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
