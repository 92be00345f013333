//! Moves of the threshold, and their reasons.

use crate::units::Span;

/// State of an automatic threshold, with its reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Why {
    /// The search gathers observations before a try.
    #[default]
    Gathers,
    /// The search compares the threshold before with one a step up or down.
    Tries {
        /// Whether the step is up.
        up: bool,
    },
    /// Neither a higher nor a lower threshold was worth it. The next try comes after `periods` periods with load.
    Rests {
        /// Periods with load before the next try.
        periods: u32,
    },
    /// The last try was not worth it.
    NotWorth,
    /// The hosts ask for too little: latency under light load is independent of the knee.
    Light,
    /// The latency is above the threshold.
    Elsewhere,
    /// Windows are at their minimum, and latency stays above the threshold: no window can meet it.
    Squeezed,
    /// Other hosts are backlogged in each period: no two periods can be compared.
    Restless,
    /// Throughput fell at an unchanged threshold, and returns with a higher one as it does beside an outsider.
    Outsider,
    /// A higher threshold would be worth it, but the threshold is at its upper bound.
    AtMost,
    /// The agent has just started, and waits to hear the thresholds of the others.
    Joins,
    /// The threshold is that of the leader.
    Follows,
    /// Another host has a number configured: the threshold moves there.
    Pinned,
    /// A live host publishes no threshold: its version is older.
    Unsaid,
    /// The exchange is silent.
    Silent,
    /// A latency objective of a VM is in force in its place.
    Objective,
    /// No window depends on it: the mode is not `parda`, or estimation is `local`.
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
            Why::Squeezed => "goes up: the windows are at their least and the latency is above the threshold",
            Why::Restless => "stays: in each period other hosts want more, so that no two periods compare",
            Why::Outsider => {
                "stays: throughput had fallen without a step, and a higher threshold seemed to take \
                 it back from another load: a host outside control?"
            }
            Why::AtMost => {
                "stays at at_most, though more latency brings more throughput: the knee is \
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
    pub from: Span,
    /// Threshold after the move.
    pub to: Span,
    /// Reason of the move.
    pub why: Why,
}
