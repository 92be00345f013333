//! Finding the threshold while working: what the cluster's throughput does when the threshold moves
//! a little.
//!
//! The law holds the latency at the threshold, so the threshold decides how many IOs are outstanding
//! in the whole cluster. Moving it by a small step is all the experiment that is needed: no load is
//! added. Where 10 % more latency bring next to no throughput, the threshold is beyond the knee;
//! where they bring as much throughput, it is far below.
//!
//! All hosts of a volume must have one threshold, or shares mean nothing. So one of them leads, by a
//! rule that needs no election, and the others take what it publishes ([`crate::cluster::Thresholds`]).

mod block;
mod history;
mod observation;
mod outsider;
mod search;
mod step;
mod why;

pub use block::Slope;
pub use observation::Observation;
pub use step::{Auto, Knee, Step, Threshold};
pub use why::{Move, Why};

use crate::cluster::{Thresholds, Tuning};
use crate::units::Span;

use search::Search;

/// What is known of the threshold, for people to see.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The threshold in force.
    pub threshold: Span,
    /// Whether this host is the one that searches the threshold.
    pub leads: bool,
    /// Current step of the search, or the reason why the threshold does not move.
    pub why: Why,
    /// Bounds of the knee, as far as thresholds were tried since the last drift.
    pub knee: Knee,
    /// Slope of throughput over outstanding IOs, as last measured.
    pub slope: Option<Slope>,
    /// Relative change of throughput at the last drift.
    pub drift: Option<f64>,
    /// Drifts of the array since the search began.
    pub drifts: u32,
    /// The last move, and how many periods ago it was.
    pub last: Option<(Move, u64)>,
    /// Moves of the threshold since the search began.
    pub moves: u64,
}

/// Periods with a working exchange after which a host that starts has heard of all that live: a
/// record counts from its first change on.
const JOINED: u32 = 3;

/// Finds the threshold of one host at one volume.
#[derive(Clone, Debug)]
pub struct Learner {
    auto: Auto,
    threshold: Threshold,
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
        Learner {
            auto,
            threshold: auto.clamp(Threshold::from_secs(threshold.secs())),
            search: Search::new(known),
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
        self.threshold.span()
    }

    /// What to publish of it.
    #[must_use]
    pub fn tuning(&self) -> Tuning {
        if self.heard < JOINED { Tuning::Joining } else { Tuning::Auto }
    }

    /// What is known.
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        let search = &self.search;
        Estimate {
            threshold: self.threshold(),
            leads: self.leads,
            why: self.why,
            knee: search.knee,
            slope: search.slope,
            drift: search.drift,
            drifts: search.drifts,
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
        if self.heard < JOINED {
            self.join(others);
            self.heard += 1;
            return;
        }
        if let Some(pinned) = others.pinned {
            self.go_towards(pinned, Why::Pinned);
        } else if others.unsaid {
            self.why = Why::Unsaid;
        } else if let Some(leader) = others.leader {
            self.go_towards(leader, Why::Follows);
        } else if let Some(goal) = self.goal {
            self.leads = true;
            self.go_towards(goal, Why::Beside);
        } else {
            self.leads = true;
            let found = seen.and_then(|s| self.search.period(&self.auto, self.threshold, s));
            self.why = if seen.is_none() { Why::Light } else { self.search.why };
            if let Some(Move { to, why, .. }) = found {
                self.go(to, why);
            }
            return;
        }
        // Who comes to lead later begins anew: it has not seen what its predecessor tried.
        self.search = Search::new(true);
    }

    /// A host that starts takes what it had before, or better, what the others have: that they can
    /// only follow step by step.
    fn join(&mut self, others: &Thresholds) {
        let known = others.pinned.or(others.anyone).or(others.before.filter(|_| self.heard == 0));
        if let Some(known) = known {
            self.threshold = self.auto.clamp(Threshold::from_secs(known.secs()));
            self.search = Search::new(true);
        }
    }

    fn go_towards(&mut self, goal: Span, why: Why) {
        let goal = Threshold::from_secs(goal.secs());
        self.go(self.auto.towards(self.threshold, goal), why);
    }

    fn go(&mut self, to: Threshold, why: Why) {
        self.why = why;
        if to == self.threshold {
            return;
        }
        self.last = Some((Move { from: self.threshold, to, why }, 0));
        self.moves += 1;
        self.threshold = to;
    }
}
