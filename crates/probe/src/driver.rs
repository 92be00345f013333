//! The trait that every kind of target implements: drive one load, return its recording.

use std::fmt::Debug;

use crate::load::ProbeLoad;
use crate::recording::Recording;
use crate::steady::Steadiness;

/// Time and precision allowed for a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeAllowance {
    /// Shortest time, in seconds of the target's own clock.
    pub least_s: f64,
    /// Longest time, in seconds of the target's own clock.
    pub most_s: f64,
    /// Precision at which a load may end early. Half the width of the 95 % confidence interval of throughput and of
    /// mean latency, relative to them.
    pub precision: f64,
}

/// A load that was driven.
#[derive(Debug)]
pub struct Driven {
    /// Counters of the load, from its beginning on.
    pub recording: Recording,
    /// End of the warm-up, and whether the rest is steady.
    pub verdict: Steadiness,
    /// Time in seconds for which the target's tool had no processor. No part of the load's time.
    pub silent_s: f64,
}

/// State of a load that is being driven.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// Time for which the load has run, in seconds of the target's own clock.
    pub load_s: f64,
    /// Time since the program that drives the load last answered, in seconds. 0 for a driver within this process.
    pub silent_s: f64,
}

/// Called several times a second. Returns whether to stop.
pub type Watch<'a> = &'a mut dyn FnMut(Moment) -> bool;

/// A driver: it puts load on a target, and counts what completes.
pub trait LoadDriver: Debug {
    /// Keeps a load on the target for as long as the allowance says. Offsets and kinds of IOs follow from the seed.
    ///
    /// # Errors
    /// The target failed, in words.
    fn drive(
        &mut self,
        load: &ProbeLoad,
        seed: u64,
        allowance: &TimeAllowance,
        watch: Watch<'_>,
    ) -> Result<Driven, String>;
}
