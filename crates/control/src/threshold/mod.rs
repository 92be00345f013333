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
mod outsider;
mod search;

pub use block::Slope;

use crate::cluster::{Thresholds, Tuning};
use crate::units::Span;

use search::Search;

/// What a host is told about finding the threshold by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Auto {
    /// The threshold to begin at, where somebody knows one: an operator, or a probe.
    pub start: Option<Span>,
    /// It never goes below this.
    pub at_least: Span,
    /// Nor above this.
    pub at_most: Span,
    /// By what part it moves at most in one period, such as 0.2.
    pub step: f64,
}

impl Default for Auto {
    fn default() -> Auto {
        Auto {
            start: None,
            at_least: Span::from_micros(100),
            at_most: Span::from_millis(100),
            step: 0.2,
        }
    }
}

impl Auto {
    fn clamp(&self, secs: f64) -> f64 {
        secs.clamp(self.at_least.secs(), self.at_most.secs())
    }

    /// One step from here, within bounds.
    fn next(&self, secs: f64, up: bool) -> f64 {
        self.clamp(if up { secs * (1.0 + self.step) } else { secs / (1.0 + self.step) })
    }

    /// As far towards `goal` as one step goes.
    fn towards(&self, secs: f64, goal: f64) -> f64 {
        let goal = self.clamp(goal);
        goal.clamp(secs / (1.0 + self.step), secs * (1.0 + self.step))
    }
}

/// What all hosts together did in a period, by what they publish.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observation {
    /// IO/s of the hosts that want more than they have, as a mean that nobody's gain makes up for
    /// another's loss in ([`crate::backlog::Backlog::rate`]).
    pub rate: f64,
    /// IO/s of all hosts whose windows a law governs, just added up.
    pub total: f64,
    /// IO/s of all others that are heard.
    pub light_rate: f64,
    /// What part of all that is outstanding is theirs.
    pub light: f64,
    /// Which hosts want more: only periods with the same ones are compared.
    pub who: u64,
    /// What part of their shares they used, in eighths: all, if they wanted more all the time.
    pub used: u8,
    /// IOs that the latency is a mean of.
    pub ios: f64,
    /// Mean device latency, in seconds.
    pub latency: f64,
    /// How many times the mean over all IOs that is, as the slowest VM counts ([`crate::slowest`]).
    pub beyond: f64,
    /// Σ outstanding of the governed hosts, in slots.
    pub outstanding: f64,
    /// Σ of their windows.
    pub windows: f64,
    /// Whether any of them came near to using its own.
    pub in_use: bool,
    /// What they may have outstanding however high the latency.
    pub least: f64,
    /// Mean size of an IO, in bytes.
    pub size: f64,
    /// What part of the IOs reads, from 0 to 1.
    pub reads: f64,
}

/// What the threshold is doing, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Too little is known yet to try something.
    Gathers,
    /// It tries the next step up or down.
    Tries {
        /// Up.
        up: bool,
    },
    /// Neither up nor down was worth it: it looks again after so many periods with load.
    Rests {
        /// How many.
        periods: u32,
    },
    /// What was tried was not worth it.
    NotWorth,
    /// The hosts ask for too little: the latency then says nothing of the knee.
    Light,
    /// The latency is not at the threshold.
    Elsewhere,
    /// The windows are at their most and the latency stays below: the threshold bounds nobody.
    Unbound,
    /// The windows are at their least and the latency stays above: no window can meet it.
    Squeezed,
    /// What is asked of the array changed while it tried.
    Mix,
    /// Other hosts want more in each period: there is nothing to compare.
    Restless,
    /// Throughput fell by itself, and a higher threshold brings back as much of it as it would from
    /// a host outside control.
    Outsider,
    /// Throughput is worth more, but the threshold is at its most.
    AtMost,
    /// It has just started, and first hears what the others have.
    Joins,
    /// It takes the threshold of the host that leads.
    Follows,
    /// Another host has a number: this one goes there.
    Pinned,
    /// A live host does not say what its threshold is: its version is older.
    Unsaid,
    /// The exchange is silent.
    Silent,
    /// The objective of a VM is in force in its place.
    Objective,
    /// No window follows from it: the mode is not `parda`, or the latency is one's own only.
    Idle,
}

impl core::fmt::Display for Why {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Why::Gathers => "measures throughput here, to compare the next step with",
            Why::Tries { up: true } => "tries one step up",
            Why::Tries { up: false } => "tries one step down",
            Why::Rests { periods } => {
                return write!(
                    f,
                    "rests: neither up nor down was worth it; looks again after {periods} periods \
                     with load"
                );
            }
            Why::NotWorth => "went back: the last step was not worth it",
            Why::Light => "stays: the hosts ask for too little to see the knee",
            Why::Elsewhere => "stays: the latency is not at the threshold",
            Why::Unbound => "goes down: the windows are at their most and the latency is below the threshold",
            Why::Squeezed => "goes up: the windows are at their least and the latency is above the threshold",
            Why::Mix => "went back: the hosts' load changed during the try",
            Why::Restless => "stays: in each period other hosts want more, so that no two periods compare",
            Why::Outsider => {
                "stays: throughput had fallen without a step, and a higher threshold seemed to take \
                 it back from another load: a host outside control?"
            }
            Why::AtMost => {
                "stays at at_most, though more outstanding IOs bring more throughput: the knee is \
                 higher, or the gain is the loss of a host outside control"
            }
            Why::Joins => "joins: listens to the other hosts' thresholds first",
            Why::Follows => "follows the host that leads",
            Why::Pinned => "goes to the number that another host has configured",
            Why::Unsaid => "stays: a live host does not say its threshold (an older version?)",
            Why::Silent => "stays: the exchange is silent",
            Why::Objective => "stays: the latency objective of a VM is in force in place of this threshold",
            Why::Idle => "stays: in this mode no window follows from the threshold",
        })
    }
}

/// A move of the threshold, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Move {
    /// Threshold before the move.
    pub from: f64,
    /// Threshold after the move.
    pub to: f64,
    /// Reason of the move.
    pub why: Why,
}

/// What is known of the threshold, for people to see.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The threshold in force.
    pub threshold: Span,
    /// Whether this host is the one that searches the threshold.
    pub leads: bool,
    /// Current step of the search, or the reason why the threshold does not move.
    pub why: Why,
    /// Between which thresholds the knee is, in seconds, as far as it has been tried since the last
    /// drift.
    pub knee: (Option<f64>, Option<f64>),
    /// By what part throughput changes with latency, as last measured.
    pub slope: Option<Slope>,
    /// By what part the throughput at the threshold changed when it last did so by itself.
    pub drift: Option<f64>,
    /// How often it did.
    pub drifts: u32,
    /// The last move, and how many periods ago it was.
    pub last: Option<(Move, u64)>,
    /// How many there were.
    pub moves: u64,
}

/// Periods with a working exchange after which a host that starts has heard of all that live: a
/// record counts from its first change on.
const JOINED: u32 = 3;

/// Finds the threshold of one host at one volume.
#[derive(Clone, Debug)]
pub struct Learner {
    auto: Auto,
    threshold: f64,
    search: Search,
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
            threshold: auto.clamp(threshold.secs()),
            search: Search::new(known),
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
            self.go(self.auto.towards(self.threshold, pinned.secs()), Why::Pinned);
        } else if others.unsaid {
            self.why = Why::Unsaid;
        } else if let Some(leader) = others.leader {
            self.go(self.auto.towards(self.threshold, leader.secs()), Why::Follows);
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
            self.threshold = self.auto.clamp(known.secs());
            self.search = Search::new(true);
        }
    }

    fn go(&mut self, to: f64, why: Why) {
        self.why = why;
        if to == self.threshold {
            return;
        }
        self.last = Some((Move { from: self.threshold, to, why }, 0));
        self.moves += 1;
        self.threshold = to;
    }
}
