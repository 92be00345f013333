//! Detection of load outside control, by missing throughput, and by the effect of smaller windows.
//!
//! A busy array completes X₀ IO/s at the threshold. Where the hosts complete X, X₀ − X is missing. Either an outsider uses it, or the array
//! has become slower. By Little's law such an outsider keeps
//!
//! ```text
//! Q = (X₀ − X) · L
//! ```
//!
//! IOs outstanding, counted in IOs of the hosts' kind. At one latency the two cases are indistinguishable. At two latencies they differ:
//! larger windows bring latency alone on a slower array, and throughput beside an outsider. So the hosts try the windows that they need
//! beside Q. They keep them for at least half of the throughput expected beside an outsider.
//!
//! Without any windows hosts whose VMs have P IOs pending would have P / (P + Q) of the array. They need N outstanding for `KEPT` of that:
//!
//! ```text
//! N / (N + Q) = KEPT · P / (P + Q),    N = KEPT · P · Q / ((1 − KEPT) · P + Q)
//! ```
//!
//! Where settled windows do not meet the threshold, an outsider was there from the start, or the threshold is too low. The same trial tells
//! these apart. Larger windows that bring more throughput than latency are below the knee of the array (Kleinrock's power), and smaller
//! windows would only lose throughput.

mod loads;
#[cfg(test)]
mod tests;

use libm::{fabs, log, sqrt};

use self::loads::{Line, Load};

/// Fraction of the throughput without control that hosts keep beside an outsider. Nine tenths, with room for an array that serves longer
/// queues faster.
const KEPT: f64 = 0.95;
/// Most periods in the mean of the usual throughput, and the number after which the mean is known.
const OVER: f64 = 60.0;
const KNOWN: f64 = 10.0;
/// Part of the usual throughput that must be missing, and for how many periods.
const MISSING: f64 = 0.15;
const TELLS: u32 = 4;
/// Fraction of all outstanding IOs below which a detected outsider is gone.
const GONE: f64 = 0.05;
/// Periods of a trial: windows follow in three, and latency in one.
const TRIAL: u32 = 3;
/// Settled periods after which a trial is made where the threshold is not met.
const SUSPECT: f64 = 3.0;
/// Factor over the threshold from which settled windows do not meet it.
const SQUEEZED: f64 = 1.25;
/// Least and longest rest after such a trial that showed nothing, in periods.
const RESTS: (u32, u32) = (60, 960);
/// Factor on throughput from which the cost of a threshold is worth a line.
const COSTS: f64 = 1.0 / 0.9;
/// Size of an outsider beside which hosts need all that is pending.
const ALL: f64 = 1e9;
/// Change of the outstanding IOs, as a logarithm, from which a trial shows something.
const SHOWS: f64 = 0.15;
/// Change of a settled load in a period, as a logarithm.
const STILL: f64 = 0.08;
/// Least width, as a fraction of the outstanding IOs at the threshold: a few loads show a smaller one by chance.
const LEAST_WIDTH: f64 = 0.25;
/// Factor by which outstanding IOs grow in such a trial, at least.
const GROWS: f64 = 1.4;
/// Periods after which missing throughput counts as permanent: the array is another one.
pub(crate) const ADOPTS: u32 = 3600;
/// Part of the threshold below which latency does not show that the array is busy.
const BUSY: f64 = 0.8;
/// Weight of a new period in the size of an outsider.
const FOLLOWS: f64 = 0.3;
/// Largest change of the part of reads, and of the logarithm of the mean size, within one kind of load.
const READS: f64 = 0.15;
const SIZE: f64 = 0.3;

/// The operator's choice about an outsider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutsiderPolicy {
    /// Hosts under control keep their part of the array, above the threshold.
    #[default]
    Compete,
    /// The threshold holds, as in the papers: hosts under control make room.
    Hold,
}

/// Load of all hosts that are heard in a period, with and without control.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoadsSeen {
    /// IOs per second of all these hosts.
    pub rate: f64,
    /// Mean number of their outstanding IOs.
    pub outstanding: f64,
    /// Mean number of their pending IOs: held and outstanding.
    pub pending: f64,
    /// Part of the IOs that are reads, from 0 to 1.
    pub reads: f64,
    /// Mean size of an IO, in bytes.
    pub size: f64,
    /// The volume's own threshold, in seconds.
    pub threshold: f64,
    /// Whether hosts have larger windows than the threshold asks for, on trial or beside an outsider.
    pub raised: bool,
    /// Whether the hosts answer an outsider: else nothing is tried.
    pub answers: bool,
}

impl LoadsSeen {
    fn latency(&self) -> f64 {
        self.outstanding / self.rate
    }
}

/// State of the array, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum OutsiderSign {
    /// Too little is known of the array under this kind of load, or it is not busy.
    #[default]
    Unknown,
    /// Throughput is as usual.
    Usual,
    /// The array became slower, or an outsider uses it.
    Slower,
    /// An outsider uses it: larger windows brought throughput.
    Outsider,
    /// Windows at the threshold are below the knee of the array. The threshold is too low, or an outsider was there from the start.
    BelowKnee,
}

/// State of the array, with the measurements behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Finding {
    /// State of the array.
    pub state: OutsiderSign,
    /// Mean latency of the last period, in seconds.
    pub latency: f64,
    /// The usual latency with as many outstanding IOs, in seconds.
    pub usual: f64,
    /// Periods for which throughput has been below the usual.
    pub periods: u32,
    /// Outstanding IOs of an outsider that would explain it, counted in IOs like ours.
    pub outstanding: f64,
    /// Part of all outstanding IOs that such an outsider has, from 0 to 1.
    pub part: f64,
    /// Factor by which the array would be slower, if that explained it.
    pub factor: f64,
    /// Cost of the threshold, where it is more than a tenth of the throughput.
    pub cost: Option<CostOfThreshold>,
}

/// Throughput that a threshold costs: estimated, as latency is taken for a line over the outstanding IOs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostOfThreshold {
    /// Latency without it, in seconds.
    pub latency: f64,
    /// Throughput at that latency, relative to the throughput at the threshold.
    pub factor: f64,
}

/// Larger windows, on trial.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// The load before it began.
    before: Load,
    /// Size of the outsider that is assumed. Infinite while nothing is known of the array.
    size: f64,
    /// Size of the outsider whose windows are tried.
    beside: f64,
    periods: u32,
}

/// Looks for load on an array that is not under control, period by period.
#[derive(Clone, Copy, Debug, Default)]
pub struct Detector {
    /// The usual throughput X₀ in IO/s, and the number of periods that it is a mean of.
    usual: f64,
    weight: f64,
    /// Present throughput of the array, as trials have shown, and the mean latency at it.
    capacity: f64,
    at: f64,
    /// Kind of load of this throughput.
    reads: f64,
    size: f64,
    threshold: f64,
    /// Periods in which throughput was below the usual, and below the capacity.
    periods: u32,
    missed: u32,
    /// Mean size of an outsider that would explain the loss.
    outstanding: f64,
    /// The load of the last period.
    last: Load,
    /// The load when throughput began to be missing.
    since: Load,
    line: Line,
    width: Option<f64>,
    trial: Option<Trial>,
    /// Periods for which an outsider that a trial has shown is taken to return.
    shown: u32,
    /// The usual latency where a trial has shown that the threshold is below the knee, in seconds.
    level: Option<f64>,
    /// Periods before the next such trial, and the length of the next rest.
    rest: u32,
    next_rest: u32,
    finding: Finding,
}

impl Detector {
    /// The finding of the last period.
    #[must_use]
    pub fn finding(&self) -> Finding {
        self.finding
    }

    /// Outstanding IOs of an outsider beside which hosts keep their part, as IOs of the hosts' kind; 0 without an outsider.
    #[must_use]
    pub fn beside(&self) -> f64 {
        match self.trial {
            Some(trial) => trial.beside,
            None if self.is_shown() => self.outstanding,
            None => 0.0,
        }
    }

    fn is_shown(&self) -> bool {
        self.level.is_some() || (self.shown > 0 && self.missed > 0)
    }

    /// Ends a period without a usable measurement. Some host was not heard, whose load would look like an outsider's, or the array was not
    /// busy.
    pub fn pause(&mut self) {
        (self.periods, self.missed, self.trial, self.level) = (0, 0, None, None);
        self.finding = Finding::default();
    }

    /// Ends a period in which all hosts were heard.
    pub fn period(&mut self, seen: &LoadsSeen) {
        let latency = seen.latency();
        // A period of few IOs is chance.
        let chance = 2.0 / sqrt(seen.rate);
        let still = STILL.max(chance);
        let near = |now: f64, before: f64| fabs(log(now / before)) < still;
        let settled =
            near(seen.outstanding, self.last.outstanding) && near(seen.rate, self.last.rate);
        self.last = Load::of(seen);
        self.rest = self.rest.saturating_sub(1);
        if seen.rate <= 0.0 {
            return self.pause();
        }
        let busy = latency >= BUSY * seen.threshold;
        let alike = fabs(seen.reads - self.reads) < READS.max(chance)
            && fabs(log(seen.size / self.size)) < SIZE
            && fabs(log(seen.threshold / self.threshold)) < SIZE;
        let left = self.level.is_some_and(|level| latency < (1.0 - MISSING) * level);
        if !alike || left || (self.periods > ADOPTS && self.shown == 0) {
            self.begin(seen);
        }
        if !busy && self.level.is_none() && self.trial.is_none() {
            self.compare(seen);
            return self.pause();
        }
        let squeezed = latency > SQUEEZED * seen.threshold && self.rest == 0;
        let found = self.shown > 0 || self.level.is_some();
        if seen.raised && !found && self.trial.is_none() {
            // Trials of others are no evidence about the array. A host that misses throughput, or misses the threshold with settled
            // windows, joins them.
            if self.missed > 0 {
                self.tries(seen, self.outstanding);
            } else if squeezed && (1.0..KNOWN).contains(&self.weight) {
                self.tries(seen, f64::INFINITY);
            }
            return self.find(seen);
        }
        if let Some(level) = &mut self.level {
            *level += FOLLOWS * (latency - *level);
        } else if self.trial.is_some() {
            self.goes_on(seen);
        } else if self.weight < KNOWN && !settled {
            // Windows follow a load that came or went.
            self.compare(seen);
        } else if self.weight < KNOWN {
            self.learn(seen);
            if squeezed && self.weight >= SUSPECT {
                self.tries(seen, f64::INFINITY);
            }
        } else if !self.misses(seen) {
            self.learn(seen);
            (self.missed, self.shown) = (0, self.shown.saturating_sub(1));
        } else {
            self.missed += 1;
            // The first period is partly one of before.
            if self.missed == 2 {
                self.since = Load::of(seen);
            }
        }
        let below = seen.rate < (1.0 - MISSING) * self.usual;
        self.periods = if below && self.weight >= KNOWN { self.periods + 1 } else { 0 };
        if self.level.is_some() {
            // Beside an outsider of this size, nine tenths of the pending IOs suffice, and so they do beside any other.
            self.outstanding = 2.0 * seen.pending;
        } else {
            let now = self.beyond(seen);
            let follows = if self.missed <= 1 { 1.0 } else { FOLLOWS };
            self.outstanding += follows * (now - self.outstanding);
        }
        if self.missed >= TELLS && self.rest == 0 && !self.is_shown() && self.trial.is_none() {
            match self.since.tells(seen, self.width(), self.outstanding) {
                Some(false) => self.adopt(),
                _ => self.tries(seen, self.outstanding),
            }
        }
        self.find(seen);
    }

    /// Begins anew, under another kind of load. An outsider that is there stays.
    fn begin(&mut self, seen: &LoadsSeen) {
        let LoadsSeen { reads, size, threshold, rate, .. } = *seen;
        let Detector { rest, next_rest, shown, outstanding, last, width, .. } = *self;
        let mut new = Detector {
            reads,
            size,
            threshold,
            rest,
            next_rest,
            last,
            width,
            ..Detector::default()
        };
        if self.level.is_none() && self.is_shown() {
            let capacity = rate + outstanding / seen.latency();
            let (weight, missed) = (KNOWN, TELLS);
            let (usual, at) = (capacity, seen.latency());
            new = Detector { usual, capacity, at, weight, missed, shown, outstanding, ..new };
        }
        *self = new;
    }

    fn least_width(&self) -> f64 {
        LEAST_WIDTH * self.usual * self.at
    }

    /// Outstanding IOs at the array beyond those of the hosts, by its latency.
    fn beyond(&self, seen: &LoadsSeen) -> f64 {
        let width = self.width.unwrap_or(0.0).min(self.least_width());
        let over = seen.latency() / self.at - 1.0;
        (self.capacity * seen.latency() + width * over - seen.outstanding).max(0.0)
    }

    /// Whether throughput is missing. Hosts that keep their part beside an outsider have more outstanding, and miss less.
    fn misses(&self, seen: &LoadsSeen) -> bool {
        let least = if self.is_shown() { GONE } else { MISSING };
        let beyond = self.beyond(seen);
        beyond > least * (beyond + seen.outstanding)
    }

    /// Outstanding IOs that the array serves without a queue. If unknown: the number before the loss.
    fn width(&self) -> f64 {
        let since = self.trial.map_or(self.since, |trial| trial.before);
        let width = self.width.unwrap_or(since.outstanding);
        width.max(self.least_width())
    }

    fn learn(&mut self, seen: &LoadsSeen) {
        let rate = seen.rate;
        self.weight = (self.weight + 1.0).min(OVER);
        self.capacity += (rate - self.capacity) / self.weight;
        self.at += (seen.latency() - self.at) / self.weight;
        if rate >= (1.0 - MISSING) * self.usual {
            self.usual += (rate - self.usual) / self.weight;
            self.capacity = self.usual;
            self.compare(seen);
        }
    }

    /// Takes in a load without an outsider.
    fn compare(&mut self, seen: &LoadsSeen) {
        self.line.add(seen);
        self.width = self.line.width().or(self.width);
    }

    /// Begins a trial of the windows that are needed beside an outsider of this size.
    fn tries(&mut self, seen: &LoadsSeen, size: f64) {
        let most = self.width().max(GROWS * seen.outstanding);
        let beside = match size.is_finite() {
            true => size,
            // Size of the outsider beside which `most` IOs are needed.
            false if KEPT * seen.pending > most => {
                most * (1.0 - KEPT) * seen.pending / (KEPT * seen.pending - most)
            }
            false => ALL,
        };
        let before = Load::of(seen);
        self.trial = seen.answers.then_some(Trial { before, size, beside, periods: 0 });
    }

    fn goes_on(&mut self, seen: &LoadsSeen) {
        let Some(trial) = &mut self.trial else { return };
        trial.periods += 1;
        if trial.periods < TRIAL {
            return;
        }
        let (trial, width) = (*trial, self.width());
        self.trial = None;
        let Some(shows) = trial.before.tells(seen, width, trial.size) else {
            // The hosts had what they need.
            self.rest = RESTS.0;
            return;
        };
        if trial.size.is_infinite() {
            self.level = shows.then_some(seen.latency());
            self.next_rest = if shows { 0 } else { (2 * self.next_rest).clamp(RESTS.0, RESTS.1) };
            self.rest = self.next_rest;
        } else if shows {
            (self.shown, self.missed) = (OVER as u32, TELLS);
        } else {
            self.adopt();
        }
    }

    /// The array has become slower: its throughput is learned anew.
    fn adopt(&mut self) {
        (self.capacity, self.at, self.weight, self.missed) = (0.0, 0.0, 0.0, 0);
    }

    /// Cost of the threshold, by the line of latency.
    fn cost(&self, seen: &LoadsSeen) -> Option<CostOfThreshold> {
        let (n, pending, width) = (seen.outstanding, seen.pending, self.width?);
        let latency = seen.latency() * (pending + width) / (n + width);
        let factor = pending / n * (n + width) / (pending + width);
        Some(CostOfThreshold { latency, factor }).filter(|_| factor > COSTS && !self.is_shown())
    }

    fn find(&mut self, seen: &LoadsSeen) {
        let state = match self.periods.max(self.missed) {
            _ if self.level.is_some() => OutsiderSign::BelowKnee,
            _ if self.is_shown() => OutsiderSign::Outsider,
            _ if self.weight < KNOWN => OutsiderSign::Unknown,
            periods if periods < TELLS => OutsiderSign::Usual,
            _ => OutsiderSign::Slower,
        };
        let usual = match self.level {
            Some(latency) => seen.rate + self.outstanding / latency,
            None => self.usual,
        };
        self.finding = Finding {
            state,
            latency: seen.latency(),
            usual: seen.outstanding / usual,
            periods: self.periods,
            outstanding: self.outstanding,
            part: self.outstanding / (self.outstanding + seen.outstanding),
            factor: usual / seen.rate,
            cost: self.cost(seen),
        };
    }
}

/// Outstanding IOs that hosts need beside an outsider of the size `beside`. They keep `KEPT` of their throughput without windows, at
/// `pending` IOs.
#[must_use]
pub fn needed(pending: f64, beside: f64) -> f64 {
    let needed = KEPT * pending * beside / ((1.0 - KEPT) * pending + beside);
    if needed.is_finite() { needed } else { 0.0 }
}
