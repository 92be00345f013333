//! Search of the leader for the knee: a hill climb on a utility of the threshold. U(T) = ln X(T) − [`WORTH`] · ln T for a threshold T
//! with throughput X.
//!
//! A *try* alternates between the threshold in force, the *base*, and one a step away, in blocks of [`FEW`] periods. So other changes
//! affect both sides. The try ends when the difference of U is surely positive or negative, or after [`LONG`] periods. Then the base
//! moves on, or the other direction is tried, or the search rests.

use alloc::vec::Vec;

use libm::{exp, fabs, log, sqrt};

use super::{Auto, Why};

/// Throughput that latency must bring: 10 % more latency are worth 1 % more throughput. At that slope d ln X / d ln T, an array with X
/// = peak · (1 − (s/T)³)^⅓ has 97 % of its peak.
const WORTH: f64 = 0.1;
/// Periods until a move takes effect. The other hosts hear it in one. Windows follow in two: (1 − γ)² = 4 % are left.
pub(super) const SETTLE: u32 = 3;
/// Periods of a block: throughput that scatters by 1.5 % is then known to 0.6 %. Also the number of periods after which a state without
/// comparable periods has an effect.
const FEW: u32 = 6;
/// Periods of the longest try, and of the first rest. A rest is twice as long as the one before, up to eightfold.
const LONG: u32 = 60;
/// Standard errors from which a difference is believed.
const SURE: f64 = 2.0;
/// Largest factor between latency and threshold at which latency counts as held there: half the default step.
const AT: f64 = 1.1;
/// Change of throughput at an unchanged threshold that shows another array or load. More than a step brings near the knee. The change
/// must also be four times the scatter.
const DRIFT: f64 = 0.08;
/// Factor over the threshold of the loss from which an outsider is told from a slower array: two default steps.
const HIGHER: f64 = 1.4;

/// Sums and means of a period over all hosts, from their reports. A host is *governed* if a law sets its window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observation {
    /// Logarithm of the throughput that a threshold is judged by, in IO/s ([`crate::backlog::Backlog::judged`]).
    pub throughput: f64,
    /// Number that stands for the hosts that are backlogged and for the kind of load. Only periods of one class are compared.
    pub class: u64,
    /// IO/s of all governed hosts.
    pub total: f64,
    /// Whether the hosts ask for enough that the threshold may matter.
    pub in_use: bool,
    /// Mean device latency, in seconds.
    pub latency: f64,
    /// Σ outstanding of the governed hosts, in slots.
    pub outstanding: f64,
    /// Σ windows of the governed hosts, in slots.
    pub windows: f64,
    /// Slots that the governed hosts may have outstanding however high the latency is.
    pub least: f64,
}

/// Slope of throughput over latency, both relative: 0.5 means that 10 % more latency bring 5 % more throughput.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slope {
    /// Growth of throughput over growth of latency.
    pub value: f64,
    /// Its standard error.
    pub error: f64,
}

/// Sums of ln X: number of periods, mean, and sum of squared deviations.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    n: f64,
    mean: f64,
    squares: f64,
}

impl Sums {
    fn with(self, x: f64) -> Sums {
        let (n, off) = (self.n + 1.0, x - self.mean);
        let mean = self.mean + off / n;
        Sums { n, mean, squares: self.squares + off * (x - mean) }
    }

    /// The same sums, with the weight of `most` periods at most.
    fn weighing(self, most: u32) -> Sums {
        let part = (f64::from(most) / self.n).min(1.0);
        Sums { n: part * self.n, squares: part * self.squares, ..self }
    }

    /// Standard deviation of a period.
    fn scatter(self) -> f64 {
        sqrt(self.squares / self.n)
    }
}

/// Throughput in the periods of one class.
#[derive(Clone, Copy, Debug)]
struct Cell {
    class: u64,
    /// At the base and a step away.
    sides: [Sums; 2],
}

/// A fall of throughput, in IO/s, at an unchanged threshold.
#[derive(Clone, Copy, Debug)]
struct Fall {
    class: u64,
    at: f64,
    before: f64,
    after: f64,
    /// Whether an outsider is the cause.
    outsider: bool,
}

impl Fall {
    /// Whether throughput at a higher threshold is the rest beside an outsider. An outsider has as many outstanding IOs at any latency,
    /// so its throughput falls as latency rises. A slower array leaves less.
    fn is_outsiders(&self, class: u64, threshold: f64, rate: f64) -> bool {
        let left = self.before - (self.before - self.after) * self.at / threshold;
        class == self.class && threshold >= HIGHER * self.at && rate >= 0.95 * left
    }
}

/// State of the search.
#[derive(Clone, Debug, Default)]
pub(super) struct Search {
    base: f64,
    /// Direction of the try, and whether it is the last one before a rest.
    up: bool,
    last_try: bool,
    /// Whether the threshold is at the base (0) or a step away (1).
    side: usize,
    cells: Vec<Cell>,
    /// Throughput of all hosts in the periods of all classes, at the base and a step away.
    all: [Sums; 2],
    /// Comparable periods of the block, and all periods of the try.
    block: u32,
    age: u32,
    /// Periods that are skipped after a move.
    settle: u32,
    rest: u32,
    next_rest: u32,
    /// Class of the last period.
    class: u64,
    /// Periods running that cannot be compared, and those with another throughput than before: negative if it is lower.
    off: u32,
    strikes: i32,
    fall: Option<Fall>,
    pub(super) slope: Option<Slope>,
    pub(super) why: Why,
}

impl Search {
    /// A new search at a threshold. `known`: it comes from a probe or an earlier search, so that the search rests first.
    pub(super) fn new(base: f64, known: bool) -> Search {
        let rest = if known { LONG } else { 0 };
        Search { base, up: true, settle: SETTLE, rest, next_rest: LONG, ..Search::default() }
    }

    /// Takes in a period at the threshold `now`. Returns the threshold to go to.
    pub(super) fn period(&mut self, auto: &Auto, now: f64, seen: &Observation) -> f64 {
        self.base = auto.clamp(self.base);
        let off = incomparable(now, seen);
        self.off = if off.is_some() { self.off + 1 } else { 0 };
        // In the first period of another class windows, latency and throughput are still changing.
        let same = core::mem::replace(&mut self.class, seen.class) == seen.class;
        let settled = self.settle == 0;
        self.settle = self.settle.saturating_sub(1);
        self.age += 1;
        match off {
            None if settled && same => self.compared(auto, now, seen),
            None if self.age >= LONG && self.rest == 0 => self.judge(auto),
            None => {}
            Some(why) if self.off.is_multiple_of(FEW) => self.interrupt(auto, now, why),
            Some(_) => {}
        }
        let goal = if self.side == 0 { self.base } else { auto.next(self.base, self.up) };
        if goal != now {
            self.settle = SETTLE;
        }
        goal
    }

    /// Ends a try without comparable periods. The search begins again once the load is back.
    fn interrupt(&mut self, auto: &Auto, now: f64, why: Why) {
        if why != Why::Squeezed {
            self.back();
            self.why = why;
        } else if self.side == 1 && !self.up {
            self.give_up(Why::NotWorth);
        } else {
            self.begin(auto.next(now, true), true, why);
        }
    }

    fn compared(&mut self, auto: &Auto, now: f64, seen: &Observation) {
        let place = self.place(seen);
        let cell = &mut self.cells[place];
        let (x, known) = (seen.throughput, cell.sides[self.side]);
        if known.n >= f64::from(FEW) && fabs(x - known.mean) > DRIFT.max(4.0 * known.scatter()) {
            let sign = if x < known.mean { -1 } else { 1 };
            self.strikes = sign + if self.strikes * sign > 0 { self.strikes } else { 0 };
            if self.strikes.unsigned_abs() >= SETTLE {
                let (before, after) = (exp(known.mean), exp(x));
                self.drifted(Fall { class: seen.class, at: now, before, after, outsider: false });
            }
            return;
        }
        self.strikes = 0;
        cell.sides[self.side] = known.weighing(LONG).with(x);
        let mean = cell.sides[self.side].mean;
        self.all[self.side] = self.all[self.side].with(log(seen.total.max(1e-3)));
        if self.rest > 0 {
            (self.rest, self.age) = (self.rest - 1, 0);
            let outsider = self.fall.is_some_and(|fall| fall.outsider);
            let more = self.slope.is_some_and(|slope| slope.value > WORTH);
            let at_most = more && auto.next(self.base, true) == self.base;
            self.why = match (outsider, at_most) {
                (true, _) => Why::Outsider,
                (false, true) => Why::AtMost,
                (false, false) => Why::Rests { periods: self.rest },
            };
            if self.rest == 0 {
                self.fall = self.fall.filter(|fall| !fall.outsider);
                self.back();
            }
        } else {
            self.block += 1;
            match &mut self.fall {
                _ if self.block < FEW => {}
                Some(fall) if fall.is_outsiders(seen.class, now, exp(mean)) => {
                    fall.outsider = true;
                    let at = fall.at;
                    self.begin(at, false, Why::Outsider);
                    // After that long, the detector of outsiders takes the loss for a slower array.
                    self.rest = crate::outsider::ADOPTS;
                }
                _ => self.judge(auto),
            }
        }
    }

    /// Begins anew after a change of throughput. After a fall the first step is up; after its return the base is the threshold of the
    /// fall.
    fn drifted(&mut self, change: Fall) {
        let fell = change.after < change.before;
        let base = self.fall.filter(|_| !fell).map_or(self.base, |fall| fall.at);
        self.fall = fell.then_some(change);
        self.begin(base, fell, Why::Gathers);
    }

    /// Place of the cell of a period's class.
    fn place(&mut self, seen: &Observation) -> usize {
        let known = self.cells.iter().position(|cell| cell.class == seen.class);
        known.unwrap_or_else(|| {
            if self.cells.len() >= LONG as usize {
                self.cells.remove(0);
            }
            self.cells.push(Cell { class: seen.class, sides: Default::default() });
            self.cells.len() - 1
        })
    }

    /// Difference of ln X between both sides, within classes, and its standard error. If a step decides which hosts are backlogged,
    /// each side has one class. Then the throughput of all hosts is compared.
    fn gain(&self) -> Option<(f64, f64)> {
        let both = |sides: &&[Sums; 2]| sides[0].n > 0.0 && sides[1].n > 0.0;
        let alike = self.cells.iter().map(|cell| &cell.sides).filter(both);
        let none_alike = self.cells.len() == 2 && alike.clone().next().is_none();
        let (mut gain, mut weight, mut squares, mut free) = (0.0, 0.0, 0.0, 0.0);
        for [one, other] in alike.chain(Some(&self.all).filter(|_| none_alike)) {
            let both = one.n * other.n / (one.n + other.n);
            gain += both * (other.mean - one.mean);
            weight += both;
            squares += one.squares + other.squares;
            free += one.n + other.n - 2.0;
        }
        // A few periods may be alike by chance: 0.3 % at least, times about the factor of Student's t.
        let scatter = sqrt(squares / free).max(0.003) * (1.25 + 4.0 / free);
        (free >= f64::from(FEW)).then(|| (gain / weight, scatter / sqrt(weight)))
    }

    /// Keeps the threshold that is tried, gives it up, or goes on.
    fn judge(&mut self, auto: &Auto) {
        let late = self.age >= LONG;
        let step = log(auto.next(self.base, self.up) / self.base);
        let Some((gain, error)) = self.gain() else {
            return if late { self.give_up(Why::Restless) } else { self.alternate(auto) };
        };
        self.slope = Some(Slope { value: gain / step, error: error / fabs(step) });
        let better = gain - WORTH * step;
        // A late, small gain is accepted without certainty: an error costs little.
        let seems = late && better > 0.0 && error <= WORTH * fabs(step);
        if better > SURE * error || seems {
            self.base = auto.next(self.base, self.up);
            self.all.swap(0, 1);
            self.cells.iter_mut().for_each(|cell| cell.sides.swap(0, 1));
            self.back();
            (self.last_try, self.next_rest) = (true, LONG);
            self.alternate(auto);
        } else if late || better < -SURE * error {
            self.give_up(Why::NotWorth);
        } else {
            self.alternate(auto);
        }
    }

    /// Goes to the other side, if that is within bounds.
    fn alternate(&mut self, auto: &Auto) {
        if auto.next(self.base, self.up) == self.base {
            return self.give_up(Why::NotWorth);
        }
        (self.side, self.block) = (1 - self.side, 0);
        self.why = Why::Tries { up: self.up };
    }

    /// Returns to the base. Tries the other direction next, or rests if that was not worth it either.
    fn give_up(&mut self, why: Why) {
        self.back();
        (self.up, self.why) = (!self.up, why);
        if self.last_try {
            self.rest = self.next_rest;
            self.next_rest = (2 * self.rest).min(8 * LONG);
        }
        self.last_try = !self.last_try;
    }

    /// Returns to the base. Its measurements keep the weight of one block.
    fn back(&mut self) {
        (self.side, self.block, self.age) = (0, 0, 0);
        for sides in self.cells.iter_mut().map(|cell| &mut cell.sides).chain([&mut self.all]) {
            *sides = [sides[0].weighing(FEW), Sums::default()];
        }
        self.cells.retain(|cell| cell.sides[0].n > 1.0);
    }

    /// Begins a search at a base.
    fn begin(&mut self, base: f64, up: bool, why: Why) {
        let Search { fall, slope, class, .. } = *self;
        *self = Search { up, fall, slope, class, why, ..Search::new(base, false) };
    }
}

/// Reason why a period is no evidence of throughput at the threshold `now`, if any.
fn incomparable(now: f64, seen: &Observation) -> Option<Why> {
    if !seen.in_use {
        Some(Why::Light)
    } else if seen.latency > AT * now {
        let least = seen.outstanding <= 1.5 * seen.least;
        Some(if least { Why::Squeezed } else { Why::Elsewhere })
    } else if AT * seen.latency < now && seen.outstanding < 0.4 * seen.windows {
        Some(Why::Light)
    } else {
        None
    }
}
