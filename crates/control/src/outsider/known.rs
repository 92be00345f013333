//! Latency of the array against outstanding IOs, learned under one kind of load.

use alloc::vec::Vec;

use libm::{fabs, floor, log, sqrt};

use super::curve::{Curve, Point};
use super::finding::Seen;

/// Periods after which there is a curve.
const FEW: f64 = 12.0;
/// Width of a class of outstanding IOs, in natural logarithm.
const WIDTH: f64 = 0.1;
/// Most periods in the mean of a class; older ones fade. Classes that are not seen do not fade.
const KEPT: f64 = 40.0;
/// Least weight of a class that is a point of the curve.
const LEAST: f64 = 0.3;
/// Number of IOs whose mean deviates by chance as much as the latency of an array does by itself.
const IOS: f64 = 400.0;
/// Relative deviation of latency: before it is learned, the least, the most that one period counts for, and the weight of a new period.
const NOISE: f64 = 0.06;
const LEAST_NOISE: f64 = 0.02;
const MOST_NOISE: f64 = 0.2;
const LEARNS: f64 = 0.05;
/// Largest difference between periods of one kind, in the part of reads and in the logarithm of the mean size.
const READS: f64 = 0.1;
const SIZE: f64 = 0.15;
/// The same by chance, for a period of one IO; less by the root of the number of IOs.
const CHANCE: f64 = 1.5;
/// Slope of latency below all outstanding IOs that were seen, as a part of the slope that was seen.
const FALLS: f64 = 0.75;
/// Number of periods over which the slope is measured.
const REMEMBERS: f64 = 200.0;
/// Weight of a new period in a kind's part of reads and mean size.
const FOLLOWS: f64 = 0.02;

/// Means of the periods with about the same outstanding IOs.
#[derive(Clone, Copy, Debug)]
struct Class {
    at: i32,
    mean: Point,
}

/// A kind of load, and the array's latency under it.
#[derive(Clone, Debug)]
pub(super) struct Known {
    reads: f64,
    size: f64,
    periods: f64,
    /// Classes in the order of their outstanding IOs.
    classes: Vec<Class>,
    /// Mean square of the relative deviation of latency from the curve, for a period of many IOs.
    noise: f64,
    /// Outstanding IOs of the last period, and the mean square of their relative change from period to period.
    last: f64,
    moves: f64,
    slope: Slope,
    /// Number of the last period of this kind.
    pub(super) used: u64,
}

impl Known {
    pub(super) fn new(seen: &Seen) -> Known {
        Known {
            reads: seen.reads,
            size: seen.size,
            periods: 0.0,
            classes: Vec::new(),
            noise: NOISE * NOISE,
            last: 0.0,
            moves: 0.0,
            slope: Slope::default(),
            used: 0,
        }
    }

    /// Whether a period is of this kind.
    pub(super) fn is_like(&self, seen: &Seen) -> bool {
        let chance = CHANCE / sqrt(seen.ios.max(1.0));
        fabs(self.reads - seen.reads) < READS + chance
            && fabs(log(self.size / seen.size)) < SIZE + chance
    }

    pub(super) fn add(&mut self, seen: &Seen) {
        let at = floor(log(seen.outstanding) / WIDTH) as i32;
        let Seen { outstanding, .. } = *seen;
        let moved = if self.last > 0.0 { log(outstanding / self.last) } else { 0.0 };
        self.moves += LEARNS * ((moved * moved).min(1.0) - self.moves);
        self.last = outstanding;
        self.slope.add(log(outstanding), log(seen.latency()), weight(seen));
        let period = Point { outstanding, latency: seen.latency(), weight: weight(seen) };
        match self.classes.binary_search_by_key(&at, |class| class.at) {
            Err(place) => self.classes.insert(place, Class { at, mean: period }),
            Ok(place) => {
                let mean = &mut self.classes[place].mean;
                *mean = mean.with(period);
                mean.weight = mean.weight.min(KEPT);
            }
        }
        self.reads += FOLLOWS * (seen.reads - self.reads);
        self.size += FOLLOWS * (seen.size - self.size);
        self.periods += 1.0;
    }

    /// Whether outstanding IOs go up and down much from period to period. The mean of a period then says little about its latency.
    pub(super) fn is_restless(&self) -> bool {
        self.moves > RESTLESS * RESTLESS
    }

    /// The curve through the classes. `room`: memory of an earlier curve. `None` while too few periods are known.
    pub(super) fn curve(&self, room: Vec<Point>) -> Option<Curve> {
        if self.periods < FEW {
            return None;
        }
        let classes = self.classes.iter().map(|class| class.mean);
        let falls = FALLS * self.slope.least(sqrt(self.noise));
        Curve::new(room, classes.filter(|mean| mean.weight >= LEAST), falls)
    }

    /// Relative standard deviation of a period's latency by chance.
    pub(super) fn noise(&self, seen: &Seen) -> f64 {
        sqrt(self.noise.max(LEAST_NOISE * LEAST_NOISE) / weight(seen))
    }

    pub(super) fn learn_noise(&mut self, seen: &Seen, off: f64) {
        self.noise +=
            LEARNS * ((off * off * weight(seen)).min(MOST_NOISE * MOST_NOISE) - self.noise);
    }
}

/// Relative change of outstanding IOs from period to period from which on a load is restless.
const RESTLESS: f64 = 0.15;

/// Slope of ln latency over ln outstanding IOs, by least squares over the last periods.
#[derive(Clone, Copy, Debug, Default)]
struct Slope {
    weight: f64,
    n: f64,
    l: f64,
    nn: f64,
    nl: f64,
}

impl Slope {
    fn add(&mut self, n: f64, l: f64, weight: f64) {
        let keep = if self.weight > REMEMBERS { REMEMBERS / self.weight } else { 1.0 };
        // Sums of squares about the means, to avoid cancellation.
        let all = keep * self.weight + weight;
        let (from_n, from_l) = (n - self.n, l - self.l);
        let part = weight / all;
        let both = keep * self.weight * part;
        self.nn = keep * self.nn + both * from_n * from_n;
        self.nl = keep * self.nl + both * from_n * from_l;
        self.n += part * from_n;
        self.l += part * from_l;
        self.weight = all;
    }

    /// Lower bound of the slope: two standard errors below it, at least 0.
    fn least(&self, noise: f64) -> f64 {
        if self.nn <= 0.0 {
            return 0.0;
        }
        (self.nl / self.nn - 2.0 * noise / sqrt(self.nn)).clamp(0.0, 1.0)
    }
}

/// Weight of a period, from 0 to 1 for a period of many IOs.
fn weight(seen: &Seen) -> f64 {
    seen.ios / (seen.ios + IOS)
}
