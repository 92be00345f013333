//! Load on the array that is not under control: whether there is some, and how much.
//!
//! By Little's law N outstanding IOs of which X are completed a second take L = N / X each. As long as what is asked of an array stays
//! alike, L follows from N, by a curve that is learned while working (`known`). Where L is above the curve for longer than chance
//! explains, the array has changed, or somebody else uses it. At one N both look the same. They part as N changes, and N changes at
//! once, as the law holds L at its threshold: an outsider's Q outstanding IOs shift the curve, L = f(N + Q), and an array that became k times
//! slower stretches it, L = k · f(N). So the latencies after the change are foretold from its first periods in both ways, and the way
//! that is nearer gains (`episode`).
//!
//! What cannot be told apart is [`State::Slower`]: the array became slower, or somebody else uses it.

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

/// Kinds of load under which the array is remembered.
const KINDS: usize = 4;

/// Standard deviations above the usual that are no news. What is more is added up, from period to period.
const DRIFT: f64 = 0.75;
/// The sum from which on it is no chance, and the most that it is.
const SURE: f64 = 8.0;
const MOST: f64 = 40.0;
/// The most that one period adds.
const CAPPED: f64 = 4.0;
/// Periods after which a slower array is the usual one.
const ADOPTS: u32 = 120;

/// Watches an array for load that is not under control.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    kinds: Vec<Known>,
    /// That of the last period.
    kind: usize,
    /// Sums of what was above the usual, and below, in standard deviations.
    above: f64,
    below: f64,
    episode: Episode,
    /// Periods that were watched.
    clock: u64,
    finding: Finding,
    /// Memory for the next curve: a period allocates nothing.
    room: Vec<Point>,
}

impl Watch {
    /// What is found of the array now.
    #[must_use]
    pub fn finding(&self) -> Finding {
        self.finding
    }

    /// Latency, over the usual one of `alone` seconds, at which ours have this part of the outstanding IOs that they have there while they
    /// are alone. `None` where there is no outsider, or if it leaves them more.
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

    /// A period in which not all hosts were heard: what those did that were not is load, too, and nothing is found.
    pub fn pause(&mut self) {
        self.begin_anew();
        self.finding = Finding::default();
    }

    fn begin_anew(&mut self) {
        (self.above, self.below, self.episode) = (0.0, 0.0, Episode::default());
    }

    /// Takes in a period.
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
            // Faster than it was, or slower for so long.
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

    /// The kind of load that this period is of. A new one takes the place of that which was not seen for longest.
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
