//! Detection of outsiders: load on the array that is not under control.
//!
//! By Little's law each of N outstanding IOs takes L = N / X, with X completed IOs per second. While the load is of one kind, L follows
//! from N by a curve f, which is learned while working (`known`). If L is above the curve for longer than chance explains, the array
//! became slower, or an outsider uses it. At one N both look the same. They differ as N changes, and N does change at once, as the law
//! holds L at its threshold: an outsider's Q outstanding IOs shift the curve, L = f(N + Q); an array that became k times slower
//! stretches it, L = k · f(N). So the first periods of a change predict later latencies in both ways, and the evidence is for the way
//! that is nearer (`episode`).
//!
//! Where the two cannot be told apart the state is [`State::Slower`]. `docs/control.md` has the equations.

mod answer;
mod curve;
mod episode;
mod finding;
mod known;

pub use answer::Answer;
pub use finding::{Finding, Seen, State};

use alloc::vec::Vec;

use self::curve::Point;

use libm::log;

use episode::Episode;
use known::Known;

/// Number of kinds of load whose curves are kept.
const KINDS: usize = 4;

/// Standard deviations above the usual latency that do not count. The rest is summed over periods.
const DRIFT: f64 = 0.75;
/// The sum from which on a deviation is no chance, and the largest sum.
const SURE: f64 = 8.0;
const MOST: f64 = 40.0;
/// Largest deviation of one period, in standard deviations.
const CAPPED: f64 = 4.0;
/// Periods after which a slower array is the usual one.
const ADOPTS: u32 = 120;

/// Looks for load on an array that is not under control, period by period.
#[derive(Clone, Debug, Default)]
pub struct Detector {
    kinds: Vec<Known>,
    /// Index of the last period's kind of load.
    kind: usize,
    /// Sums of deviations above the usual latency, and below it, in standard deviations.
    above: f64,
    below: f64,
    episode: Episode,
    /// Number of periods so far.
    clock: u64,
    finding: Finding,
    /// Memory for the next curve, so that a period allocates nothing.
    room: Vec<Point>,
}

impl Detector {
    /// The finding of the last period.
    #[must_use]
    pub fn finding(&self) -> Finding {
        self.finding
    }

    /// Factor on the latency `alone`, in seconds, at which hosts under control keep this part of the outstanding IOs that they have at
    /// `alone` without the outsider. `None` if there is no outsider, or the factor is at most 1.
    #[must_use]
    pub fn beside(&self, alone: f64, part: f64) -> Option<f64> {
        if self.finding.state != State::Outsider {
            return None;
        }
        let curve = self.kinds.get(self.kind)?.curve(Vec::new())?;
        let ours = part * curve.outstanding(alone);
        let factor = curve.at(ours + self.finding.outstanding) / alone;
        (factor > 1.0).then_some(factor)
    }

    /// Ends a period in which not all hosts were heard: the load of the others would look like an outsider's. The state is unknown.
    pub fn pause(&mut self) {
        self.begin_anew();
        self.finding = Finding::default();
    }

    fn begin_anew(&mut self) {
        (self.above, self.below, self.episode) = (0.0, 0.0, Episode::default());
    }

    /// Ends a period in which all hosts were heard.
    pub fn period(&mut self, seen: &Seen) {
        if !(seen.rate > 0.0 && seen.outstanding > 0.0) {
            return;
        }
        self.clock += 1;
        self.kind = self.kind(seen);
        let known = &mut self.kinds[self.kind];
        known.used = self.clock;
        let Some(curve) = known.curve(core::mem::take(&mut self.room)) else {
            known.add(seen);
            return self.pause();
        };
        let latency = seen.latency();
        let usual = curve.at(seen.outstanding);
        let (off, noise) = (log(latency / usual), known.noise(seen));
        let step = (off / noise).clamp(-CAPPED, CAPPED);
        self.above = (self.above + step - DRIFT).clamp(0.0, MOST);
        self.below = (self.below - step - DRIFT).max(0.0);
        let goes_on = self.above > 0.0;
        if !goes_on || !self.episode.period(&curve, seen, noise, seen.early || known.is_restless())
        {
            (self.above, self.episode) = (0.0, Episode::default());
        }
        if self.below >= SURE || (self.episode.periods() > ADOPTS && !self.episode.is_outsider()) {
            // The array became faster, or has been slower for so long that this is the usual latency now.
            *known = Known::new(seen);
            self.begin_anew();
        }
        let known = &mut self.kinds[self.kind];
        if self.above == 0.0 {
            known.add(seen);
            known.learn_noise(seen, off);
        }
        let state = if self.above < SURE { State::Usual } else { self.episode.state() };
        self.finding = Finding { state, latency, usual, ..self.episode.finding(seen, noise) };
        self.room = curve.into_room();
    }

    /// Index of the period's kind of load. A new kind replaces the kind that was not seen for longest.
    fn kind(&mut self, seen: &Seen) -> usize {
        let like = |kind: &usize| self.kinds.get(*kind).is_some_and(|known| known.is_like(seen));
        let same = Some(self.kind).filter(like);
        if let Some(kind) = same.or_else(|| (0..self.kinds.len()).find(like)) {
            return kind;
        }
        let new = Known::new(seen);
        if self.kinds.len() < KINDS {
            self.kinds.push(new);
            return self.kinds.len() - 1;
        }
        let oldest = (0..KINDS).min_by_key(|kind| self.kinds[*kind].used).unwrap_or(0);
        self.kinds[oldest] = new;
        oldest
    }
}

#[cfg(test)]
mod tests;
