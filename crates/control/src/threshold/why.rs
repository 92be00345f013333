//! Moves of the threshold, and their reasons.

use super::step::{Step, Threshold};

/// What the threshold is doing, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Too little is known yet to try something.
    Gathers,
    /// It tries the next step up or down.
    Tries(Step),
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
    /// It is as high as an outsider makes it, by the operator's choice ([`crate::outsider::Answer`]).
    Beside,
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
            Why::Tries(Step::Up) => "tries one step up",
            Why::Tries(Step::Down) => "tries one step down",
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
            Why::Beside => "follows the outsider that uses the array, within the bounds given",
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

/// A move of the threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Move {
    /// Threshold before the move.
    pub from: Threshold,
    /// Threshold after the move.
    pub to: Threshold,
    /// Reason of the move.
    pub why: Why,
}
