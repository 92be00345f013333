//! Finding the threshold while working: what the cluster's throughput does when the threshold moves a little.
//!
//! The law holds the latency at the threshold, so the threshold decides how many IOs are outstanding in the whole cluster. Moving it
//! by a small step is all the experiment that is needed: no load is added.
//!
//! All hosts of a volume must have one threshold, or shares mean nothing. So one of them leads, by a rule that needs no election, and
//! the others take what it publishes ([`crate::cluster::Thresholds`]).

mod auto;
mod search;
mod why;

pub use auto::Auto;
pub use search::{Observation, Slope};
pub use why::{Move, Why};

use crate::cluster::{Thresholds, Tuning};
use crate::units::Span;

use search::{SETTLE, Search};

/// What is known of the threshold, for people to see.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The threshold in force.
    pub threshold: Span,
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
    /// Threshold to go to, if the threshold is given and not searched for.
    goal: Option<Span>,
    heard: u32,
    leads: bool,
    why: Why,
    last: Option<(Move, u64)>,
    moves: u64,
}

impl Learner {
    /// Begins at a threshold. `known`: somebody knows it to be good.
    #[must_use]
    pub fn new(auto: Auto, threshold: Span, known: bool) -> Learner {
        let threshold = auto.clamp(threshold.secs());
        Learner {
            auto,
            threshold,
            search: Search::new(threshold, known),
            goal: None,
            heard: 0,
            leads: false,
            why: Why::Joins,
            last: None,
            moves: 0,
        }
    }

    /// Changes bounds and step. What was learned stays.
    pub fn set_auto(&mut self, auto: Auto) {
        self.auto = auto;
        self.threshold = auto.clamp(self.threshold);
    }

    /// The threshold in force.
    #[must_use]
    pub fn threshold(&self) -> Span {
        Span::from_secs(self.threshold)
    }

    /// What to publish of it.
    #[must_use]
    pub fn tuning(&self) -> Tuning {
        if self.heard < SETTLE { Tuning::Joining } else { Tuning::Auto }
    }

    /// What is known.
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        Estimate {
            threshold: self.threshold(),
            leads: self.leads,
            why: self.why,
            slope: self.search.slope,
            last: self.last,
            moves: self.moves,
        }
    }

    /// Says where the threshold goes while this host leads: it searches no more.
    pub fn aim(&mut self, goal: Span) {
        self.goal = Some(goal);
    }

    /// A period that says nothing of the threshold.
    pub fn stay(&mut self, why: Why) {
        self.last.iter_mut().for_each(|(_, ago)| *ago += 1);
        (self.why, self.leads) = (why, false);
    }

    /// A period in which the exchange worked: what the others have, and what all did.
    pub fn period(&mut self, others: &Thresholds, seen: Option<&Observation>) {
        self.stay(Why::Joins);
        if self.heard < SETTLE {
            // A host that starts takes what it had before, or better, what the others have: that they can only follow
            // step by step. A record counts from its first change on, so that it takes a few periods to hear all that live.
            let before = others.before.filter(|_| self.heard == 0);
            if let Some(known) = others.pinned.or(others.anyone).or(before) {
                self.threshold = self.auto.clamp(known.secs());
                self.search = Search::new(self.threshold, true);
            }
            self.heard += 1;
        } else if let Some(pinned) = others.pinned {
            self.follow(pinned, Why::Pinned);
        } else if others.unsaid {
            self.follow(self.threshold(), Why::Unsaid);
        } else if let Some(leader) = others.leader {
            self.follow(leader, Why::Follows);
        } else if let Some(goal) = self.goal {
            self.leads = true;
            self.follow(goal, Why::Beside);
        } else {
            (self.leads, self.why) = (true, Why::Light);
            if let Some(seen) = seen {
                let to = self.search.period(&self.auto, self.threshold, seen);
                self.go(to, self.search.why);
            }
        }
    }

    /// Moves where another decides. Who comes to lead later begins anew: it has not seen what its predecessor tried.
    fn follow(&mut self, goal: Span, why: Why) {
        self.go(goal.secs(), why);
        self.search = Search::new(self.threshold, true);
    }

    /// Moves towards a threshold, in seconds, by one step at most.
    fn go(&mut self, goal: f64, why: Why) {
        self.why = why;
        let from = self.threshold();
        self.threshold = self.auto.towards(self.threshold, goal);
        if self.threshold() != from {
            self.last = Some((Move { from, to: self.threshold(), why }, 0));
            self.moves += 1;
        }
    }
}
