//! Search of the leader for the knee: a hill climb on the utility
//!
//! ```text
//! U(T) = ln X(T) − WORTH · ln T
//! ```
//!
//! of a threshold T with throughput X. It alternates between the threshold in force, the *base*, and one a *step* away, in blocks of
//! [`FEW`] periods, until the difference of U is surely positive or negative, or [`LONG`] periods have passed. Then the base
//! moves, or the other direction is tried, or the search rests.

use alloc::vec::Vec;

use libm::{fabs, log, sqrt};

use super::auto::Auto;
use super::why::Why;

/// Throughput that latency must bring: 10 % more latency are worth 1 % more throughput. An array with X = peak · (1 − (s/T)³)^⅓
/// has 93 % of its peak where the slope d ln X / d ln T is so low.
const WORTH: f64 = 0.1;
/// Periods in which the other hosts hear of a move (one) and windows follow (two: γ² = 4 % are left).
pub(super) const SETTLE: u32 = 3;
/// Periods of a block, and of a state other than comparable that has an effect: throughput that scatters by 1.5 % is known to 0.6 %.
const FEW: u32 = 6;
/// Periods after which a try is given up, and the first rest, which doubles up to eightfold while nothing is found: tries take at
/// most half of the time.
const LONG: u32 = 60;
/// Standard errors from which a difference is believed.
const SURE: f64 = 2.0;
/// Largest factor between latency and threshold at which latency counts as held at the threshold: the default step.
const AT: f64 = 1.2;
/// Factor over the threshold at which throughput fell, from which on an outsider is told from a slower array.
const HIGHER: f64 = 1.4;

/// Sums and means of a period over all hosts, from their reports. A host is *governed* if a law sets its window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observation {
    /// IO/s of the backlogged hosts, as a mean in which the gain of one does not make up for the loss of another
    /// ([`crate::backlog::Backlog::rate`]); of all governed hosts if none is backlogged.
    pub rate: f64,
    /// IO/s of all hosts that are heard and not backlogged.
    pub light_rate: f64,
    /// Fraction of all outstanding IOs that belongs to the hosts of `light_rate`.
    pub light: f64,
    /// Number that stands for who is backlogged and the kind of load. Only periods of one class are compared.
    pub class: u64,
    /// Whether any governed host is backlogged.
    pub wants: bool,
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
    /// Outstanding IOs of an outsider that would explain a fall of throughput, 0 while there is none, and `None` if it is unknown
    /// ([`crate::outsider`]).
    pub outsider: Option<f64>,
}

/// Slope of throughput over latency, both relative: 0.5 means that 10 % more latency bring 5 % more throughput.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slope {
    /// The slope.
    pub value: f64,
    /// Its standard error.
    pub error: f64,
}

/// Relation of latency, threshold and windows in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Latency is at the threshold, or below it with windows in use: throughput follows from the threshold.
    Held,
    /// The hosts ask for too little to reach the threshold.
    Light,
    /// Latency is above the threshold: windows are still changing, or an outsider loads the array.
    Elsewhere,
    /// Latency is above the threshold, and windows are at their minimum.
    Squeezed,
}

/// Sums of ln X in the periods of one class, at the base and a step away.
#[derive(Clone, Copy, Debug)]
struct Cell {
    class: u64,
    /// Weight of the hosts that are not backlogged, as first seen, so that a change of it does not look like one of throughput.
    light: f64,
    /// Number, mean, and sum of squared deviations.
    sums: [(f64, f64, f64); 2],
}

/// A fall of throughput that an outsider or a slower array explains.
#[derive(Clone, Copy, Debug)]
struct Fall {
    at: f64,
    outsider: f64,
    /// Whether it is attributed to an outsider.
    known: bool,
}

/// State of the search.
#[derive(Clone, Debug)]
pub(super) struct Search {
    base: f64,
    /// Direction of the try, and whether the threshold is a step away from the base (1) or at the base (0).
    up: bool,
    side: usize,
    /// Whether the other direction is known not to be worth it.
    last_way: bool,
    cells: Vec<Cell>,
    /// Comparable periods of the block, and all periods of the try.
    block: u32,
    age: u32,
    /// Periods that are skipped after a move.
    settle: u32,
    rest: u32,
    next_rest: u32,
    /// Kind of the last period, and the number of such periods running.
    running: (Kind, u32),
    class: u64,
    /// Outstanding IOs of an outsider that would explain the throughput, as last seen on each side.
    outsider: [f64; 2],
    fall: Option<Fall>,
    pub(super) slope: Option<Slope>,
    pub(super) why: Why,
}

impl Search {
    /// A new search at a threshold. `known`: it comes from a probe or an earlier search, so that the search rests first.
    pub(super) fn new(base: f64, known: bool) -> Search {
        Search {
            base,
            up: true,
            side: 0,
            last_way: false,
            cells: Vec::new(),
            block: 0,
            age: 0,
            settle: SETTLE,
            rest: if known { LONG } else { 0 },
            next_rest: LONG,
            running: (Kind::Light, 0),
            class: 0,
            outsider: [0.0; 2],
            fall: None,
            slope: None,
            why: Why::Gathers,
        }
    }

    /// Takes in a period at the threshold `now`. Returns the threshold to go to.
    pub(super) fn period(&mut self, auto: &Auto, now: f64, seen: &Observation) -> f64 {
        self.base = auto.clamp(self.base);
        self.hear_outsider(seen);
        self.judge_period(auto, now, seen);
        let goal = if self.side == 0 { self.base } else { auto.next(self.base, self.up) };
        if goal != now {
            self.settle = SETTLE;
        }
        goal
    }

    /// Begins anew where the array became another: slower or faster, or with another load beside ours.
    fn hear_outsider(&mut self, seen: &Observation) {
        match (seen.outsider, self.fall) {
            (Some(outsider), None) if outsider > 0.0 => {
                self.fall = Some(Fall { at: self.base, outsider, known: false });
                self.begin(self.base, true);
            }
            (Some(0.0), Some(Fall { at, .. })) => {
                self.fall = None;
                self.begin(at, false);
            }
            _ => {}
        }
    }

    fn judge_period(&mut self, auto: &Auto, now: f64, seen: &Observation) {
        let same = core::mem::replace(&mut self.class, seen.class) == seen.class;
        let kind = kind(now, seen);
        self.running = (kind, if kind == self.running.0 { self.running.1 + 1 } else { 1 });
        let settled = self.settle == 0;
        self.settle = self.settle.saturating_sub(1);
        self.age += u32::from(self.side == 1 || !self.cells.is_empty());
        if kind != Kind::Held {
            if self.running.1 >= FEW {
                self.cannot_compare(auto, kind);
            }
        } else if settled && same {
            self.held(auto, seen);
        } else if self.age >= LONG && self.rest == 0 {
            self.judge(auto);
        }
    }

    fn cannot_compare(&mut self, auto: &Auto, kind: Kind) {
        self.running.1 = 0;
        match kind {
            Kind::Squeezed if self.side == 1 && !self.up => self.give_up(),
            Kind::Squeezed => {
                let now = if self.side == 0 { self.base } else { auto.next(self.base, self.up) };
                self.begin(auto.next(now, true), true);
                self.why = Why::Squeezed;
            }
            _ => {
                // The same try is made once the load is back.
                (self.side, self.block, self.age) = (0, 0, 0);
                self.cells.clear();
                self.why = if kind == Kind::Light { Why::Light } else { Why::Elsewhere };
            }
        }
    }

    fn held(&mut self, auto: &Auto, seen: &Observation) {
        if self.fall.is_some_and(|fall| fall.known) {
            self.why = Why::Outsider;
            return;
        }
        if self.rest > 0 {
            self.rest -= 1;
            let more = self.slope.is_some_and(|slope| slope.value > WORTH);
            self.why = if more && auto.next(self.base, true) == self.base {
                Why::AtMost
            } else {
                Why::Rests { periods: self.rest }
            };
            return;
        }
        self.add(seen);
        self.outsider[self.side] = seen.outsider.unwrap_or_default();
        self.block += 1;
        if self.block < FEW && self.age < LONG {
            self.why = if self.side == 0 { Why::Gathers } else { self.why };
            return;
        }
        let first = self.cells.iter().all(|cell| cell.sums[1].0 == 0.0);
        if first && self.side == 0 && !seen.wants {
            self.begin(auto.next(self.base, false), false);
            self.why = Why::Unbound;
        } else if first && self.side == 0 {
            if let Some(fall) = self.fall.as_mut().filter(|fall| fall.at == self.base) {
                fall.outsider = self.outsider[0];
            }
            self.alternate(auto);
        } else {
            self.judge(auto);
        }
    }

    /// Adds a period to the cell of its class.
    fn add(&mut self, seen: &Observation) {
        let known = self.cells.iter().position(|cell| cell.class == seen.class);
        let place = known.unwrap_or_else(|| {
            let light = if seen.light_rate > 0.0 { seen.light } else { 0.0 };
            self.cells.push(Cell { class: seen.class, light, sums: Default::default() });
            self.cells.len() - 1
        });
        let Cell { light, sums, .. } = &mut self.cells[place];
        let ln = |rate: f64| log(rate.max(1e-3));
        let u = (1.0 - *light) * ln(seen.rate) + *light * ln(seen.light_rate);
        let (n, mean, squares) = &mut sums[self.side];
        *n += 1.0;
        let off = u - *mean;
        *mean += off / *n;
        *squares += off * (u - *mean);
    }

    /// Difference of ln X between both thresholds, within classes, with its standard error.
    fn compare(&self) -> Option<(f64, f64)> {
        let (mut gain, mut weight, mut squares, mut free) = (0.0, 0.0, 0.0, 0.0);
        for Cell { sums: [(n, mean, sq), (m, other, sp)], .. } in &self.cells {
            if *n > 0.0 && *m > 0.0 {
                let both = n * m / (n + m);
                gain += both * (other - mean);
                weight += both;
                squares += sq + sp;
                free += n + m - 2.0;
            }
        }
        // A few periods may be alike by chance: 0.3 % at least, and about the factor of Student's t.
        let scatter = sqrt(squares / free).max(0.003) * (1.25 + 4.0 / free);
        (free >= f64::from(FEW)).then(|| (gain / weight, scatter / sqrt(weight)))
    }

    fn judge(&mut self, auto: &Auto) {
        let step = log(auto.next(self.base, self.up) / self.base);
        let found = self.compare();
        if let Some((gain, error)) = found {
            self.slope = Some(Slope { value: gain / step, error: error / fabs(step) });
            let better = gain - WORTH * step;
            if fabs(better) > SURE * error {
                return if better > 0.0 { self.keep(auto) } else { self.give_up() };
            }
            // What is nearly as good either way costs little either way.
            if self.age >= LONG && better > 0.0 && error <= WORTH * fabs(step) {
                return self.keep(auto);
            }
        }
        if self.age >= LONG {
            self.give_up();
            self.why = if found.is_none() { Why::Restless } else { self.why };
        } else if self.block >= FEW {
            self.alternate(auto);
        }
    }

    /// Goes to the other side, unless there is none within bounds.
    fn alternate(&mut self, auto: &Auto) {
        if auto.next(self.base, self.up) == self.base {
            return self.give_up();
        }
        (self.side, self.block) = (1 - self.side, 0);
        self.why = Why::Tries { up: self.up };
    }

    /// Begins a search from another base, or the same, up or down first.
    fn begin(&mut self, base: f64, up: bool) {
        (self.base, self.up, self.last_way) = (base, up, false);
        (self.side, self.block, self.age, self.settle) = (0, 0, 0, SETTLE);
        (self.rest, self.next_rest) = (0, LONG);
        self.cells.clear();
        self.why = Why::Gathers;
    }

    /// Makes the threshold that was tried the base, and goes on in the same direction.
    fn keep(&mut self, auto: &Auto) {
        self.base = auto.next(self.base, self.up);
        if let Some(Fall { at, outsider, known }) = &mut self.fall
            && self.base >= HIGHER * *at
            && self.outsider[1] <= 1.1 * *outsider
        {
            // An outsider has as many outstanding IOs at any latency. A slower array looks like one that has ever more.
            *known = true;
            let at = *at;
            return self.begin(at, false);
        }
        (self.side, self.age, self.last_way, self.next_rest) = (0, 0, true, LONG);
        for cell in &mut self.cells {
            cell.sums = [cell.sums[1], Default::default()];
        }
        self.cells.retain(|cell| cell.sums[0].0 > 0.0);
        self.alternate(auto);
    }

    /// Returns to the base. Tries the other direction next, or rests if neither is worth it.
    fn give_up(&mut self) {
        (self.side, self.block, self.age) = (0, 0, 0);
        self.cells.clear();
        (self.up, self.last_way) = (!self.up, !self.last_way);
        if !self.last_way {
            self.rest = self.next_rest;
            self.next_rest = (2 * self.next_rest).min(8 * LONG);
        }
        self.why = Why::NotWorth;
    }
}

fn kind(now: f64, seen: &Observation) -> Kind {
    if !seen.in_use || seen.rate <= 0.0 {
        Kind::Light
    } else if seen.latency > AT * now {
        if seen.outstanding <= 1.5 * seen.least { Kind::Squeezed } else { Kind::Elsewhere }
    } else if AT * seen.latency >= now || seen.outstanding >= 0.4 * seen.windows {
        Kind::Held
    } else {
        Kind::Light
    }
}
