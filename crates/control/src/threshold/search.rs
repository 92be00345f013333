//! Search of the leader for the knee. It tries a threshold one step away, compares throughput and outstanding IOs with those of
//! the threshold before, and keeps the better one.
//!
//! A *try* is the time at a new threshold until it is judged. A *drift* is a change of throughput at an unchanged threshold. The
//! *slope* is the growth of throughput over the growth of outstanding IOs, both relative ([`Slope`]).

use super::block::{Block, FEW, FEW_IOS, Slope};
use super::history::{Class, History, Pair};
use super::observation::Observation;
use super::outsider::Fall;
use super::step::{Auto, Knee, Step, Threshold};
use super::why::{Move, Why};

/// Least slope at which a higher threshold is kept: 10 % more outstanding IOs bring 1.3 % more throughput.
const WORTH: f64 = 0.13;
/// Largest slope at which a lower threshold is kept: 10 % fewer outstanding IOs cost 0.7 % of the throughput. Between
/// [`WORTHLESS`] and [`WORTH`] the threshold stays.
const WORTHLESS: f64 = 0.07;
/// Largest loss at which a lower threshold is kept, as a fraction of the best throughput seen at any threshold. It bounds the
/// loss of the backlogged hosts and that of all hosts together.
const LOSS: f64 = 0.05;
/// Largest loss of all hosts together at which a higher threshold is kept. Where the threshold in force loses more than
/// [`LOSS`], a lower one that loses less is kept, whatever it costs the backlogged hosts.
const LOSS_BY_RISING: f64 = 0.03;
/// Slopes in place of [`WORTH`] and [`WORTHLESS`] after a drift, for a step in the direction to which the drift points.
const LIKELY_UP: f64 = 0.12;
const LIKELY_DOWN: f64 = 0.10;
/// Standard errors between a slope and its bound from which the slope is believed before [`ENOUGH`] periods: in general, and
/// in the direction to which a drift points.
const SURE: f64 = 2.0;
const SURE_AFTER_DRIFT: f64 = 1.5;
/// Largest standard error of a slope that is believed after [`ENOUGH`] periods.
const CLEAR: f64 = 0.05;
/// Slope from which the array may have changed during the try. It is no reason against a step back.
const STEEP: f64 = 0.5;

/// Periods after a move in which the other hosts hear of it and windows follow. Nothing is compared in them.
const SETTLE: u32 = 3;
/// Periods of a try after which a step that does not look worth it is given up, and one to which a drift points is believed
/// ([`UNLIKELY`]); and after which an unclear step is given up ([`ENOUGH`]). Observations are kept for the next try.
const UNLIKELY: u32 = 8;
const ENOUGH: u32 = 24;
/// Periods after which any try is given up, counting those that cannot be compared.
const LONGEST_TRY: u32 = 150;
/// Part of a step by which the outstanding IOs must have moved for a comparison.
const FOLLOWED: f64 = 0.4;
/// Fall of throughput, as a fraction, while windows settle, from which a lower threshold is given up at once: the array cannot
/// meet it.
const COLLAPSE: f64 = 0.15;

/// Deviation of throughput that is a drift: as a fraction, in standard deviations, and in periods running. The capacity of the
/// array or its workload has changed.
const DRIFT: f64 = 0.08;
const DRIFT_DEVIATIONS: f64 = 4.0;
const DRIFT_PERIODS: u32 = 3;

/// Periods of rest when neither direction is worth it: the first time, and at most. Each rest without a change in between is twice
/// as long as the one before.
const REST: u32 = 60;
const LONGEST_REST: u32 = 480;

/// Periods running of a [`Kind`] other than `Held` before it has an effect.
const PATIENCE: u32 = 5;

/// Largest factor between latency and threshold at which the latency counts as held at the threshold.
const AT: f64 = 1.2;
/// Quotient of threshold and latency from which a period counts as light load.
const NEAR: f64 = 1.5;
/// Part of the windows in use from which windows bound the hosts.
const USED: f64 = 0.4;
/// Growth of windows in a period below which they stand still.
const STANDS: f64 = 1.02;

/// Periods running, each of another class than the one before, after which the search reports [`Why::Restless`].
const RESTLESS: u32 = 30;

/// Relation of threshold, latency and windows in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Latency is at the threshold.
    Held,
    /// Light load: the hosts ask for too little to reach the threshold.
    Light,
    /// Latency is not at the threshold: windows are still changing, or an outsider loads the array.
    Elsewhere,
    /// Windows are at their maximum, and latency is below the threshold.
    Unbound,
    /// Windows are at their minimum, and latency is above the threshold.
    Squeezed,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// The threshold stays. Observations are gathered to compare the next try with. `rest`: periods before that try.
    Stays { rest: u32 },
    /// A try, one step from `from`. `periods`: those so far that can be compared; `all`: all of them.
    Tries { from: Threshold, step: Step, periods: u32, all: u32 },
    /// The way back, one step a period, to where a try of several steps began.
    Returns { to: Threshold },
}

/// State of the search.
#[derive(Clone, Debug)]
pub(super) struct Search {
    phase: Phase,
    /// Observations of the thresholds that were tried, forgotten at a drift.
    history: History,
    /// Periods that are still skipped after a move.
    settle: u32,
    /// Direction of the next try.
    next_step: Step,
    /// Directions that were found not to be worth it from the threshold in force.
    no_up: bool,
    no_down: bool,
    next_rest: u32,
    /// Kind of the last period, and number of such periods running.
    running: (Kind, u32),
    /// IOs in the periods that `running` counts.
    running_ios: f64,
    windows: f64,
    /// Class of the last period: which hosts were backlogged.
    class: Option<Class>,
    /// Periods running, each of another class than the one before.
    restless: u32,
    /// Last fall of throughput at an unchanged threshold.
    fall: Option<Fall>,
    /// Whether `fall` is attributed to an outsider.
    outsider: bool,
    /// Periods running with a deviating throughput; negative for a lower one.
    strikes: i32,
    /// Sum of the relative deviations in the periods that `strikes` counts.
    struck: f64,
    /// Direction to which the last drift points. `None` once a try was given up.
    likely: Option<Step>,
    pub(super) slope: Option<Slope>,
    /// Bounds of the knee, as far as thresholds were tried.
    pub(super) knee: Knee,
    /// Relative deviation of throughput at the last drift, and the number of drifts.
    pub(super) drift: Option<f64>,
    pub(super) drifts: u32,
    pub(super) why: Why,
}

impl Search {
    /// A new search. `known`: the threshold comes from a probe or an earlier search, so that the search rests first.
    pub(super) fn new(known: bool) -> Search {
        Search {
            phase: Phase::Stays { rest: if known { REST } else { 0 } },
            history: History::default(),
            settle: SETTLE,
            next_step: Step::Up,
            no_up: false,
            no_down: false,
            next_rest: REST,
            running: (Kind::Light, 0),
            running_ios: 0.0,
            windows: 0.0,
            class: None,
            restless: 0,
            fall: None,
            outsider: false,
            strikes: 0,
            struck: 0.0,
            likely: None,
            slope: None,
            knee: Knee::default(),
            drift: None,
            drifts: 0,
            why: Why::Gathers,
        }
    }

    /// Takes in a period at `threshold`. Returns the move to make, if any.
    pub(super) fn period(
        &mut self,
        auto: &Auto,
        threshold: Threshold,
        seen: &Observation,
    ) -> Option<Move> {
        self.history.tick();
        if let Phase::Tries { all, .. } = &mut self.phase {
            *all += 1;
        }
        if let Phase::Returns { to } = self.phase {
            return self.go_back(auto, threshold, to, self.why);
        }
        let settled = self.settle == 0;
        self.settle = self.settle.saturating_sub(1);
        // In the first period of another class windows, latency and throughput are still changing: it is counted for neither.
        let class = Class::of(seen);
        if self.class.replace(class) != Some(class) {
            self.running = (Kind::Light, 0);
            self.restless += 1;
            if self.restless >= RESTLESS {
                return self.abandon(auto, threshold, Why::Restless);
            }
            return self.out_of_time(auto, threshold);
        }
        self.restless = 0;
        let kind = self.kind(auto, threshold, seen);
        if self.running.0 != kind {
            (self.running, self.running_ios) = ((kind, 0), 0.0);
        }
        self.running.1 += 1;
        self.running_ios += seen.ios;
        self.windows = seen.windows;
        if self.collapses(seen, kind) {
            return self.give_up(auto, threshold);
        }
        if !settled {
            return None;
        }
        match kind {
            Kind::Held => self.held(auto, threshold, seen),
            _ if self.running.1 < PATIENCE => None,
            Kind::Unbound | Kind::Squeezed if self.running_ios < FEW_IOS => None,
            Kind::Unbound => self.step(auto, threshold, Step::Down, Why::Unbound),
            Kind::Squeezed => self.step(auto, threshold, Step::Up, Why::Squeezed),
            Kind::Light | Kind::Elsewhere => {
                let why = if kind == Kind::Light { Why::Light } else { Why::Elsewhere };
                self.abandon(auto, threshold, why)
            }
        }
    }

    fn kind(&self, auto: &Auto, threshold: Threshold, seen: &Observation) -> Kind {
        if seen.ios <= 0.0 || !seen.in_use {
            return Kind::Light;
        }
        let threshold = threshold.secs();
        let stand = seen.windows <= STANDS * self.windows;
        let used = seen.outstanding >= USED * seen.windows;
        if seen.latency * (1.0 + auto.step) < threshold && used && stand {
            return Kind::Unbound;
        }
        if seen.latency > threshold && seen.outstanding <= 1.5 * seen.least {
            return Kind::Squeezed;
        }
        if (threshold / AT..threshold * AT).contains(&seen.latency) {
            return Kind::Held;
        }
        // Under light load latency is independent of the threshold.
        if NEAR * seen.latency < threshold { Kind::Light } else { Kind::Elsewhere }
    }

    /// Whether throughput collapses in a try of a lower threshold: the array cannot meet it.
    fn collapses(&self, seen: &Observation, kind: Kind) -> bool {
        let Phase::Tries { from, step: Step::Down, .. } = self.phase else { return false };
        let Some(base) = self.history.at(from, Class::of(seen)) else { return false };
        kind != Kind::Light
            && self.running.1 >= 2
            && self.history.rate(seen) < (1.0 - COLLAPSE) * base.rate().0
            && self.settle + 2 < SETTLE
    }

    fn held(&mut self, auto: &Auto, threshold: Threshold, seen: &Observation) -> Option<Move> {
        if self.drifts_away(threshold, seen) {
            return None;
        }
        let block = self.history.add(threshold, seen);
        if block.mixed() {
            let off = self.history.rate(seen) / block.rate().0 - 1.0;
            // The array changed during these periods, so a try is given up without a judgement.
            let back = self.back(auto, threshold, Why::Mix);
            self.drifted(off, None);
            self.why = if back.is_some() { Why::Mix } else { self.why };
            return back;
        }
        match self.phase {
            Phase::Stays { .. } if self.is_above_an_outsider(threshold) => {
                self.leave_to_the_outsider(auto, threshold)
            }
            Phase::Stays { rest: 0 } => {
                self.why = Why::Gathers;
                if self.history.enough(threshold) { self.try_next(auto, threshold) } else { None }
            }
            Phase::Stays { rest } => {
                self.phase = Phase::Stays { rest: rest - 1 };
                self.why = self.resting(auto, threshold, rest);
                None
            }
            Phase::Returns { .. } => None,
            Phase::Tries { from, step, periods, all } => {
                let pairs = self.history.pairs(from, auto.next(from, step.back()), threshold);
                let next = periods + u32::from(!pairs.is_empty());
                self.phase = Phase::Tries { from, step, periods: next, all };
                let sum = |of: fn(&Block) -> f64| pairs.iter().map(|p| of(&p.block)).sum::<f64>();
                if sum(|block| block.periods) >= FEW && sum(|block| block.ios) >= FEW_IOS {
                    self.judge(auto, threshold, &pairs, periods)
                } else {
                    self.out_of_time(auto, threshold)
                }
            }
        }
    }

    /// Gives up a try that takes too long.
    fn out_of_time(&mut self, auto: &Auto, threshold: Threshold) -> Option<Move> {
        let Phase::Tries { all: LONGEST_TRY.., .. } = self.phase else { return None };
        self.give_up(auto, threshold)
    }

    /// Whether throughput deviates from what was observed at this threshold before. Counts strikes, and makes them a drift.
    fn drifts_away(&mut self, threshold: Threshold, seen: &Observation) -> bool {
        let class = Class::of(seen);
        let Some(block) = self.history.at(threshold, class).filter(Block::enough) else {
            return false;
        };
        let (mean, deviation) = block.rate();
        let off = self.history.rate(seen) / mean - 1.0;
        if off.abs() < DRIFT.max(DRIFT_DEVIATIONS * deviation) {
            (self.strikes, self.struck) = (0, 0.0);
            return false;
        }
        let sign = if off < 0.0 { -1 } else { 1 };
        if self.strikes * sign <= 0 {
            (self.strikes, self.struck) = (0, 0.0);
        }
        self.strikes += sign;
        self.struck += off;
        if self.strikes.unsigned_abs() >= DRIFT_PERIODS {
            let off = self.struck / f64::from(self.strikes.unsigned_abs());
            self.drifted(off, Fall::new(class, threshold, mean, mean * (1.0 + off)));
        }
        true
    }

    /// Takes note of a drift: all observations are forgotten, and the next try goes where the drift points.
    fn drifted(&mut self, off: f64, fall: Option<Fall>) {
        self.drift = Some(off);
        self.drifts += 1;
        self.forget();
        self.fall = fall;
        self.settle = SETTLE;
        // A slower array needs more latency for the same number of outstanding IOs.
        self.next_step = if off < 0.0 { Step::Up } else { Step::Down };
        self.likely = Some(self.next_step);
    }

    /// Forgets all observations and conclusions.
    fn forget(&mut self) {
        self.phase = Phase::Stays { rest: 0 };
        self.history.clear();
        (self.no_up, self.no_down, self.strikes, self.likely) = (false, false, 0, None);
        (self.fall, self.outsider) = (None, false);
        self.next_rest = REST;
        self.knee = Knee::default();
        self.slope = None;
        self.why = Why::Gathers;
    }

    /// Begins a try of a direction that is not ruled out. If both are, begins to rest.
    fn try_next(&mut self, auto: &Auto, threshold: Threshold) -> Option<Move> {
        for step in [self.next_step, self.next_step.back()] {
            let known = match step {
                Step::Up => self.no_up || self.outsider,
                Step::Down => self.no_down,
            };
            let to = auto.next(threshold, step);
            if known || to == threshold {
                continue;
            }
            self.phase = Phase::Tries { from: threshold, step, periods: 0, all: 0 };
            self.settle = SETTLE;
            self.why = Why::Tries(step);
            return Some(Move { from: threshold, to, why: self.why });
        }
        // Neither direction is worth it and within bounds.
        self.phase = Phase::Stays { rest: self.next_rest };
        self.next_rest = (2 * self.next_rest).min(LONGEST_REST);
        (self.no_up, self.no_down) = (false, false);
        self.why = self.resting(auto, threshold, self.next_rest);
        None
    }

    fn resting(&self, auto: &Auto, threshold: Threshold, periods: u32) -> Why {
        let at_most = auto.next(threshold, Step::Up) == threshold;
        let more = self.slope.is_some_and(|slope| slope.value > WORTH);
        if self.outsider {
            Why::Outsider
        } else if at_most && more {
            Why::AtMost
        } else {
            Why::Rests { periods }
        }
    }

    /// Judges a try: keeps its threshold, gives it up, or waits for more periods.
    fn judge(
        &mut self,
        auto: &Auto,
        threshold: Threshold,
        pairs: &[Pair],
        periods: u32,
    ) -> Option<Move> {
        let Phase::Tries { from, step, all, .. } = self.phase else { return None };
        let up = step.is_up();
        let late = periods >= ENOUGH || all >= LONGEST_TRY;
        if pairs.iter().any(|pair| !pair.block.same_mix(&pair.from)) {
            self.history.clear();
            return self.abandon(auto, threshold, Why::Mix);
        }
        let weights = pairs.iter().map(|pair| pair.block.periods);
        let apart = pairs.iter().map(|pair| pair.block.periods * pair.block.apart(&pair.from));
        let bound = pairs.iter().all(|pair| !pair.content);
        if bound && apart.sum::<f64>() < FOLLOWED * auto.step * weights.sum::<f64>() {
            // The outstanding IOs have not followed yet: windows that bounded nobody must first shrink until they do.
            self.history.drop(threshold);
            return if late { self.give_up(auto, threshold) } else { None };
        }
        // Observations on the other side of `from` make the slope more exact.
        let slope = Slope::over(pairs);
        self.slope = Some(slope);
        let likely = self.likely == Some(step);
        let (bar, much) = match (likely, step) {
            (true, Step::Up) => (LIKELY_UP, SURE_AFTER_DRIFT),
            (true, Step::Down) => (LIKELY_DOWN, SURE_AFTER_DRIFT),
            (false, Step::Up) => (WORTH, SURE),
            (false, Step::Down) => (WORTHLESS, SURE),
        };
        let sure = (slope.value - bar).abs() > much * slope.error;
        // All steps together must not cost much either: neither the backlogged hosts, nor all hosts together.
        let of_all = self.history.loss(threshold, Block::total);
        let dear = if up {
            of_all > LOSS_BY_RISING
        } else {
            of_all.max(self.history.loss(threshold, |block| block.rate().0)) > LOSS
        };
        // A loss at the higher threshold may show only later, when windows have grown as far as it lets them.
        let above = self.history.loss(from, Block::total);
        let saved = !up && above > LOSS && of_all < above;
        let promising = saved || (slope.value > bar) == up && !dear;
        let looked = periods >= UNLIKELY;
        let clear = sure || ((likely || saved) && looked) || (late && slope.error <= CLEAR);
        if !clear || !promising {
            let hopeless = sure || late || (!promising && !likely && looked);
            return if hopeless { self.give_up(auto, threshold) } else { None };
        }
        if up && self.is_an_outsiders(threshold, pairs) {
            self.outsider = true;
            return self.leave_to_the_outsider(auto, threshold);
        }
        // The threshold before was worse, so a step back to it is ruled out.
        (self.no_up, self.no_down) = (!up, up && slope.value < STEEP);
        (self.next_step, self.next_rest) = (step, REST);
        match step {
            Step::Up => self.knee.low = Some(from),
            Step::Down => self.knee.high = Some(from),
        }
        self.try_next(auto, threshold)
    }

    /// Whether the throughput that fell returns with the threshold as it does beside an outsider.
    fn is_an_outsiders(&self, threshold: Threshold, pairs: &[Pair]) -> bool {
        let Some(fall) = self.fall else { return false };
        let pair = pairs.iter().find(|pair| fall.is_of(pair.class));
        pair.and_then(|pair| fall.is_outsiders(threshold, pair.block.rate().0)) == Some(true)
    }

    fn is_above_an_outsider(&self, threshold: Threshold) -> bool {
        self.outsider
            && self.fall.is_some_and(|fall| threshold.secs() > 1.001 * fall.threshold().secs())
    }

    /// Returns step by step to the threshold at which throughput fell, and stays there until throughput changes again.
    fn leave_to_the_outsider(&mut self, auto: &Auto, threshold: Threshold) -> Option<Move> {
        let to = auto.towards(threshold, self.fall?.threshold().min(threshold));
        self.phase = Phase::Stays { rest: 0 };
        self.knee.high = self.fall.map(|fall| fall.threshold());
        (self.settle, self.strikes, self.likely) = (SETTLE, 0, None);
        self.why = Why::Outsider;
        (to != threshold).then_some(Move { from: threshold, to, why: Why::Outsider })
    }

    /// Ends a try that is not worth it: goes back, and next tries the other direction.
    fn give_up(&mut self, auto: &Auto, threshold: Threshold) -> Option<Move> {
        let Phase::Tries { from, step, .. } = self.phase else { return None };
        let tried = Some(auto.next(from, step));
        match step {
            Step::Up => (self.no_up, self.knee.high) = (true, tried),
            Step::Down => (self.no_down, self.knee.low) = (true, tried),
        }
        (self.next_step, self.likely) = (step.back(), None);
        self.back(auto, threshold, Why::NotWorth)
    }

    /// Ends a try that cannot be judged now, for the reason `why`.
    fn abandon(&mut self, auto: &Auto, threshold: Threshold, why: Why) -> Option<Move> {
        self.why = why;
        self.back(auto, threshold, why)
    }

    /// Returns to the threshold before the try, if there is one. Its observations are kept.
    fn back(&mut self, auto: &Auto, threshold: Threshold, why: Why) -> Option<Move> {
        let Phase::Tries { from, .. } = self.phase else { return None };
        self.strikes = 0;
        self.why = why;
        self.go_back(auto, threshold, from, why)
    }

    /// Goes one step back towards `from`, where a try began.
    fn go_back(
        &mut self,
        auto: &Auto,
        threshold: Threshold,
        from: Threshold,
        why: Why,
    ) -> Option<Move> {
        let to = auto.towards(threshold, from);
        let there = (to.over(from) - 1.0).abs() < 1e-9;
        self.phase = if there { Phase::Stays { rest: 0 } } else { Phase::Returns { to: from } };
        self.settle = SETTLE;
        let to = if there { from } else { to };
        (to != threshold).then_some(Move { from: threshold, to, why })
    }

    /// Moves one step without a comparison, and forgets all observations.
    fn step(&mut self, auto: &Auto, threshold: Threshold, step: Step, why: Why) -> Option<Move> {
        self.forget();
        self.why = why;
        self.next_step = step;
        self.settle = SETTLE;
        (self.running.1, self.running_ios) = (0, 0.0);
        let to = auto.next(threshold, step);
        (to != threshold).then_some(Move { from: threshold, to, why })
    }
}
