//! The mechanisms of the law, each with a switch for ablations. The failures without a mechanism justify it.
//!
//! Switches exist with the feature `ablation` only, which the simulator's tests use. Without it all mechanisms are on, at no cost.

/// A mechanism that a simulation can omit. Features with a setting of their own (the cluster's mean, shares of throughput, the size model)
/// have no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// Windows grow only while a VM could use more ([`crate::law`]).
    GrowthInUse,
    /// Windows grow at most twofold in a period ([`crate::law`]).
    RiseBound,
    /// An array that recovers is used at once as it was before ([`crate::law`]).
    Recovery,
    /// VMs that want more grow for those that do not ([`crate::cluster`]).
    Filling,
    /// A host that joins takes its peers' window per share ([`crate::law`]).
    Joining,
    /// The cluster keeps `cluster_min` outstanding ([`crate::law`]).
    ClusterMin,
    /// Windows stay as large as hosts need beside an outsider ([`crate::outsider`]).
    Outsider,
    /// Absent hosts stand in the sums (`absent.rs`).
    Absent,
    /// A host that hears no others corrects its latency by the usual ratio (`absent.rs`).
    AbsentRatio,
    /// Absent hosts count for less while latency is low (`absent.rs`).
    AbsentDead,
    /// A host is believed as far as it pulls as it always did ([`crate::belief`]).
    Belief,
    /// Settings are voted for ([`crate::settings`]).
    Votes,
    /// A VM whose slice is less than an IO saves up ([`crate::slices`]).
    Savings,
    /// The gate keeps the time average of a fraction ([`crate::gate`]).
    Fractions,
    /// A debt of the gate is paid while nothing is pending ([`crate::gate`]).
    DebtWhileIdle,
    /// A debt of the gate is bounded ([`crate::gate`]).
    DebtBound,
    /// A VM within its grant waits for no turn ([`crate::host`]).
    OwnGrant,
    /// A flow keeps its arrears, up to a few IOs ([`crate::queue`]).
    Owed,
    /// An IO goes out of turn after `hold_max` ([`crate::queue`]).
    HoldMax,
    /// Rounds are as rare as the array's IOs ask for ([`crate::rhythm`]).
    Rhythm,
    /// An array that is slow does not make rounds rarer ([`crate::rhythm`]).
    RhythmSick,
    /// Rounds are nearer for a while when latency is off the threshold ([`crate::rhythm`]).
    RhythmHaste,
    /// An objective that cannot be met rests ([`crate::objective`]).
    ObjectiveRests,
}

impl Mechanism {
    /// All mechanisms, in the order of docs/control.md.
    pub const ALL: [Mechanism; 23] = [
        Mechanism::GrowthInUse,
        Mechanism::RiseBound,
        Mechanism::Recovery,
        Mechanism::Filling,
        Mechanism::Joining,
        Mechanism::ClusterMin,
        Mechanism::Outsider,
        Mechanism::Absent,
        Mechanism::AbsentRatio,
        Mechanism::AbsentDead,
        Mechanism::Belief,
        Mechanism::Votes,
        Mechanism::Savings,
        Mechanism::Fractions,
        Mechanism::DebtWhileIdle,
        Mechanism::DebtBound,
        Mechanism::OwnGrant,
        Mechanism::Owed,
        Mechanism::HoldMax,
        Mechanism::Rhythm,
        Mechanism::RhythmSick,
        Mechanism::RhythmHaste,
        Mechanism::ObjectiveRests,
    ];
}

#[cfg(feature = "ablation")]
mod switch {
    use core::sync::atomic::{AtomicU8, Ordering};

    use super::Mechanism;

    static OFF: AtomicU8 = AtomicU8::new(u8::MAX);

    /// Switches one mechanism off, and all others on, in this process.
    pub fn switch_off(mechanism: Option<Mechanism>) {
        OFF.store(mechanism.map_or(u8::MAX, |mechanism| mechanism as u8), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn on(mechanism: Mechanism) -> bool {
        OFF.load(Ordering::Relaxed) != mechanism as u8
    }
}

#[cfg(feature = "ablation")]
pub(crate) use switch::on;
#[cfg(feature = "ablation")]
pub use switch::switch_off;

/// Whether a mechanism is on.
#[cfg(not(feature = "ablation"))]
pub(crate) const fn on(_: Mechanism) -> bool {
    true
}
