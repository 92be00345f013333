//! Search of the threshold in production: the effect of small moves of the threshold on the cluster's throughput.
//!
//! The law holds the latency at the threshold, so the threshold decides the outstanding IOs of the whole cluster. A small move of it
//! is a sufficient experiment: no load is added.
//!
//! All hosts of a volume must have one threshold, or shares mean nothing. So one of them leads, by a rule without an election, and
//! the others take its published value ([`crate::cluster::Thresholds`]).

mod search;
mod why;

pub use search::{Observation, Slope};
pub use why::{Move, Why};

use crate::cluster::{Thresholds, Tuning};
use crate::units::Span;

use search::{SETTLE, Search};

/// Settings of the search for the threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Auto {
    /// Threshold to begin with, if one is known from an operator or a probe.
    pub start: Option<Span>,
    /// Lower bound of the threshold.
    pub at_least: Span,
    /// Upper bound of the threshold.
    pub at_most: Span,
    /// Largest relative change in one period, such as 0.2.
    pub step: f64,
}

impl Default for Auto {
    fn default() -> Auto {
        let (at_least, at_most) = (Span::from_micros(100), Span::from_millis(100));
        Auto { start: None, at_least, at_most, step: 0.2 }
    }
}

impl Auto {
    /// The nearest threshold within bounds, in seconds.
    fn clamp(&self, secs: f64) -> f64 {
        secs.clamp(self.at_least.secs(), self.at_most.secs())
    }

    /// One step up or down, within bounds.
    fn next(&self, secs: f64, up: bool) -> f64 {
        self.clamp(if up { secs * (1.0 + self.step) } else { secs / (1.0 + self.step) })
    }

    /// A threshold moved towards `goal`, within bounds, by one step at most.
    fn towards(&self, secs: f64, goal: f64) -> f64 {
        self.clamp(goal).clamp(secs / (1.0 + self.step), secs * (1.0 + self.step))
    }
}

/// State of the search, for reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Whether this host is the one that searches the threshold.
    pub leads: bool,
    /// Current step of the search, or the reason why the threshold does not move.
    pub why: Why,
    /// Slope of throughput over latency, as last measured.
    pub slope: Option<Slope>,
    /// The last move, and how many periods ago it was.
    pub last: Option<(Move, u64)>,
    /// Moves of the threshold since the search began.
    pub moves: u64,
}

/// Finds the threshold of one host at one volume.
#[derive(Clone, Debug)]
pub struct Learner {
    auto: Auto,
    /// In seconds. With whole nanoseconds a step up and the step back would not end where they began.
    threshold: f64,
    search: Search,
    heard: u32,
    estimate: Estimate,
}

impl Learner {
    /// Begins at a threshold. `known`: somebody knows it to be good.
    #[must_use]
    pub fn new(auto: Auto, threshold: Span, known: bool) -> Learner {
        let threshold = auto.clamp(threshold.secs());
        let search = Search::new(threshold, known);
        let estimate =
            Estimate { leads: false, why: Why::Joins, slope: None, last: None, moves: 0 };
        Learner { auto, threshold, search, heard: 0, estimate }
    }

    /// Changes bounds and step. The search keeps its state.
    pub fn set_auto(&mut self, auto: Auto) {
        (self.auto, self.threshold) = (auto, auto.clamp(self.threshold));
    }

    /// The threshold in force.
    #[must_use]
    pub fn threshold(&self) -> Span {
        Span::from_secs(self.threshold)
    }

    /// Tuning state to publish.
    #[must_use]
    pub fn tuning(&self) -> Tuning {
        if self.heard < SETTLE { Tuning::Joining } else { Tuning::Auto }
    }

    /// State of the search.
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        Estimate { slope: self.search.slope, ..self.estimate }
    }

    /// Ends a period without evidence about the threshold.
    pub fn stay(&mut self, why: Why) {
        self.estimate.last.iter_mut().for_each(|(_, ago)| *ago += 1);
        (self.estimate.why, self.estimate.leads) = (why, false);
    }

    /// Ends a period in which the exchange worked, with the thresholds of the others and the observation of all hosts.
    pub fn period(&mut self, others: &Thresholds, seen: Option<&Observation>) {
        self.stay(Why::Joins);
        let leads = others.pinned.or(others.leader).is_none() && !others.unsaid;
        if self.heard < SETTLE {
            // A starting host takes its earlier threshold, or better, that of the others, who could only follow in steps. A record
            // counts from its first change on, so that all live hosts are heard after a few periods.
            let before = others.before.filter(|_| self.heard == 0);
            if let Some(known) = others.pinned.or(others.anyone).or(before) {
                self.threshold = self.auto.clamp(known.secs());
                self.search = Search::new(self.threshold, true);
            }
            self.heard += 1;
        } else if leads {
            (self.estimate.leads, self.estimate.why) = (true, Why::Light);
            if let Some(seen) = seen {
                let goal = self.search.period(&self.auto, self.threshold, seen);
                self.go(goal, self.search.why);
            }
        } else {
            let (goal, why) = match *others {
                Thresholds { pinned: Some(pinned), .. } => (pinned, Why::Pinned),
                Thresholds { unsaid: true, .. } => (self.threshold(), Why::Unsaid),
                Thresholds { leader, .. } => (leader.unwrap_or(self.threshold()), Why::Follows),
            };
            self.go(goal.secs(), why);
            // A host that comes to lead later begins anew: it has not seen the trials of its predecessor.
            self.search = Search::new(self.threshold, true);
        }
    }

    /// Moves towards a threshold, in seconds, by one step at most.
    fn go(&mut self, goal: f64, why: Why) {
        self.estimate.why = why;
        let from = self.threshold();
        self.threshold = self.auto.towards(self.threshold, goal);
        let to = self.threshold();
        if from != to {
            self.estimate.last = Some((Move { from, to, why }, 0));
            self.estimate.moves += 1;
        }
    }
}
