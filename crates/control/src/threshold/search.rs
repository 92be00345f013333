//! How the host that leads looks for the knee: it tries a threshold one step away, and stays there
//! if that is worth it.

use super::block::{Block, FEW, FEW_IOS, Slope};
use super::history::{Class, History, Pair};
use super::observation::Observation;
use super::outsider::Fall;
use super::step::{Auto, Knee, Step, Threshold};
use super::why::{Move, Why};

/// A higher threshold is worth it if 10 % more outstanding IOs bring at least 1.3 % more throughput.
const WORTH: f64 = 0.13;
/// A lower one is if 10 % less outstanding IOs cost at most 0.7 %. Between the two nothing moves.
const WORTHLESS: f64 = 0.07;
/// Largest loss at which a lower threshold is still taken, as a fraction of the best throughput that was seen at
/// any threshold: of the hosts that want more, and of all hosts together.
const LOSS: f64 = 0.05;
/// Largest loss of all hosts together at which a higher threshold is still taken. From one that has come to lose more
/// than [`LOSS`] a lower threshold is taken that loses less, whatever it costs those who want more.
const LOSS_BY_RISING: f64 = 0.03;
/// After a drift, in the direction that it points in, it is enough to be on the right side of these.
const LIKELY_UP: f64 = 0.12;
const LIKELY_DOWN: f64 = 0.10;
/// By how many standard errors a slope must be off these to be believed before [`ENOUGH`] periods.
/// Fewer do in the direction that a drift points in.
const SURE: f64 = 2.0;
const SURE_AFTER_DRIFT: f64 = 1.5;
/// After these it is believed if its standard error is at most this.
const CLEAR: f64 = 0.05;
/// So steep a curve may be an array that has changed during the try: it says nothing of the way back.
const STEEP: f64 = 0.5;

/// Periods after a move that the windows take to follow, and the other hosts to hear of it.
const SETTLE: u32 = 3;
/// After so many periods of a try what does not look worth it is given up, and what a drift makes
/// likely is believed. After so many what is not clear is given up, too. What was seen is kept for the next try.
const UNLIKELY: u32 = 8;
const ENOUGH: u32 = 24;
/// After so many in which nothing compares, or in which it is not clear, a try is given up.
const LONGEST_TRY: u32 = 150;
/// What part of a step the outstanding IOs must have moved by.
const FOLLOWED: f64 = 0.4;
/// A higher threshold that moves no outstanding IOs says nothing: the slowest VM may begin to count as the
/// threshold rises, and take back what the mean over all IOs would be given. So a try goes on by so many steps more.
const FURTHER: u32 = 3;
/// Where the slowest VM counts for more than this.
const BEYOND: f64 = 1.05;
/// Throughput that falls by so much while the windows still settle: a lower threshold is beyond
/// what the array can do.
const COLLAPSE: f64 = 0.15;

/// Throughput that differs by so much, and by so many standard deviations, in so many periods
/// running, is another array's: its capacity, or what is asked of it, has changed.
const DRIFT: f64 = 0.08;
const DRIFT_DEVIATIONS: f64 = 4.0;
const DRIFT_PERIODS: u32 = 3;

/// How long it rests when neither direction is worth it, in periods: twice as long each time that
/// nothing had changed.
const REST: u32 = 60;
const LONGEST_REST: u32 = 480;

/// Periods running in which something else is wrong before it counts.
const PATIENCE: u32 = 5;

/// Latencies further from the threshold than this factor are no latencies at it.
const AT: f64 = 1.2;
/// Quotient of threshold and latency from which a period counts as light load.
const NEAR: f64 = 1.5;
/// Windows that are used to this part bound the hosts.
const USED: f64 = 0.4;
/// Windows that grow by less than this in a period stand.
const STANDS: f64 = 1.02;

/// Periods running of which none is like the one before, after which it says so.
const RESTLESS: u32 = 30;

/// What a period says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The threshold holds the array.
    Held,
    /// The hosts ask for too little.
    Light,
    /// The latency is not at the threshold: the windows are on their way, or something else loads
    /// the array.
    Elsewhere,
    /// The windows are at their most, and the latency is below the threshold.
    Unbound,
    /// The windows are at their least, and the latency is above it.
    Squeezed,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// It stays, and gathers what to compare the next try with.
    Stays { rest: u32 },
    /// It tries the threshold one step from `from`, for so many periods that compare by now, of so
    /// many in all.
    Tries { from: Threshold, step: Step, periods: u32, all: u32, further: u32 },
    /// On its way back to where a try of several steps began.
    Returns { to: Threshold },
}

/// The search.
#[derive(Clone, Debug)]
pub(super) struct Search {
    phase: Phase,
    /// What is seen at thresholds.
    history: History,
    /// Periods to skip until a move is through.
    settle: u32,
    /// The way of the next try.
    next_step: Step,
    /// What is known not to be worth it from here.
    no_up: bool,
    no_down: bool,
    next_rest: u32,
    /// What kind of period there was last, and how many running.
    running: (Kind, u32),
    /// IOs in these periods.
    running_ios: f64,
    windows: f64,
    /// How much the slowest VM counts for.
    beyond: f64,
    /// Who wanted more in the last period.
    class: Option<Class>,
    /// Periods running in which that was not who wanted more in the one before.
    restless: u32,
    /// When throughput last fell by itself.
    fall: Option<Fall>,
    /// And whether that is taken for a host outside control.
    outsider: bool,
    /// Periods running with another throughput: below zero for a lower one.
    strikes: i32,
    /// Sum of how far it was off in these.
    struck: f64,
    /// The way that the last drift points, until something is found not to be worth it.
    likely: Option<Step>,
    pub(super) slope: Option<Slope>,
    /// Between which thresholds the knee is, as far as tried.
    pub(super) knee: Knee,
    /// How much the throughput differed when it last drifted, relative, and how often it did.
    pub(super) drift: Option<f64>,
    pub(super) drifts: u32,
    pub(super) why: Why,
}

impl Search {
    /// `known`: the threshold is known to be good, from a probe or from before. It then rests first.
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
            beyond: 1.0,
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

    /// Takes in a period at `threshold`. Answers with a move, if one is to be made.
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
        // Of a period in which others want more than in the one before, what is said belongs to
        // neither: windows, latency and throughput are on their way.
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
        self.beyond = seen.beyond;
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
        // With light load the latency says nothing about the threshold.
        if NEAR * seen.latency < threshold { Kind::Light } else { Kind::Elsewhere }
    }

    /// A lower threshold that the array cannot do takes most of the throughput with it at once.
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
            // Where it tried something, what was seen there says nothing of being there.
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
            Phase::Tries { from, step, periods, all, further } => {
                let pairs = self.history.pairs(from, auto.next(from, step.back()), threshold);
                let next = periods + u32::from(!pairs.is_empty());
                self.phase = Phase::Tries { from, step, periods: next, all, further };
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

    /// Whether the throughput is no longer what it was at this threshold.
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

    /// The array, or what is asked of it, has changed.
    fn drifted(&mut self, off: f64, fall: Option<Fall>) {
        self.drift = Some(off);
        self.drifts += 1;
        self.forget();
        self.fall = fall;
        self.settle = SETTLE;
        // An array that does less takes longer for each IO.
        self.next_step = if off < 0.0 { Step::Up } else { Step::Down };
        self.likely = Some(self.next_step);
    }

    /// What was learned is no longer so.
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

    /// Tries a step from here, if there is one to try.
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
            self.phase = Phase::Tries { from: threshold, step, periods: 0, all: 0, further: 0 };
            self.settle = SETTLE;
            self.why = Why::Tries(step);
            return Some(Move { from: threshold, to, why: self.why });
        }
        // Neither is worth it, or is within bounds.
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

    /// Whether what was tried is worth it.
    fn judge(
        &mut self,
        auto: &Auto,
        threshold: Threshold,
        pairs: &[Pair],
        periods: u32,
    ) -> Option<Move> {
        let Phase::Tries { from, step, all, further, .. } = self.phase else { return None };
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
            // The windows have not followed yet: windows that bounded nobody have a long way to go.
            self.history.drop(threshold);
            let to = auto.next(threshold, Step::Up);
            let more = further < FURTHER && periods >= UNLIKELY && self.beyond > BEYOND;
            if up && more && to != threshold {
                self.phase = Phase::Tries { from, step, periods: 0, all: 0, further: further + 1 };
                self.settle = SETTLE;
                return Some(Move { from: threshold, to, why: self.why });
            }
            return if late { self.give_up(auto, threshold) } else { None };
        }
        // What is known of the other side makes the slope surer, and one of the threshold in question.
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
        // Nor must all steps together cost much: neither what those who want more have for their
        // shares, nor what all have.
        let of_all = self.history.loss(threshold, Block::total);
        let dear = if up {
            of_all > LOSS_BY_RISING
        } else {
            of_all.max(self.history.loss(threshold, |block| block.rate().0)) > LOSS
        };
        // The loss may show only when windows have come to where a higher threshold lets them go.
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
        // What is known of the way back: it was not worth being there.
        (self.no_up, self.no_down) = (!up, up && slope.value < STEEP);
        (self.next_step, self.next_rest) = (step, REST);
        match step {
            Step::Up => self.knee.low = Some(from),
            Step::Down => self.knee.high = Some(from),
        }
        self.try_next(auto, threshold)
    }

    /// Whether throughput that fell by itself comes back as it would from a host outside control.
    fn is_an_outsiders(&self, threshold: Threshold, pairs: &[Pair]) -> bool {
        let Some(fall) = self.fall else { return false };
        let pair = pairs.iter().find(|pair| fall.is_of(pair.class));
        pair.and_then(|pair| fall.is_outsiders(threshold, pair.block.rate().0)) == Some(true)
    }

    fn is_above_an_outsider(&self, threshold: Threshold) -> bool {
        self.outsider
            && self.fall.is_some_and(|fall| threshold.secs() > 1.001 * fall.threshold().secs())
    }

    /// Back to where throughput fell, step by step, and to stay there until it changes again.
    fn leave_to_the_outsider(&mut self, auto: &Auto, threshold: Threshold) -> Option<Move> {
        let to = auto.towards(threshold, self.fall?.threshold().min(threshold));
        self.phase = Phase::Stays { rest: 0 };
        self.knee.high = self.fall.map(|fall| fall.threshold());
        (self.settle, self.strikes, self.likely) = (SETTLE, 0, None);
        self.why = Why::Outsider;
        (to != threshold).then_some(Move { from: threshold, to, why: Why::Outsider })
    }

    /// What was tried is not worth it: back, and the other way next.
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

    /// Nothing can be learned now: back to where it was, if it tried something.
    fn abandon(&mut self, auto: &Auto, threshold: Threshold, why: Why) -> Option<Move> {
        self.why = why;
        self.back(auto, threshold, why)
    }

    /// Where it was before a try, and with what was seen there.
    fn back(&mut self, auto: &Auto, threshold: Threshold, why: Why) -> Option<Move> {
        let Phase::Tries { from, .. } = self.phase else { return None };
        self.strikes = 0;
        self.why = why;
        self.go_back(auto, threshold, from, why)
    }

    /// To where a try began, by one step in a period.
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

    /// A step that needs no comparison.
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
