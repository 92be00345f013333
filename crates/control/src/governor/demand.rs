//! Demand of a host's VMs in a period, and the figures that the law takes from it.

use crate::cluster::Bounded;
use crate::rate::Throughput;
use crate::tenant::TenantId;
use crate::units::Shares;

/// Part of its slice that a VM must have pending beyond the slice to count as one that could use more.
const LIMITED: f64 = 0.05;

/// Part of its largest window from which on a host has no use for a larger λ.
const FULL: f64 = 0.98;

/// What a VM wanted in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VmDemand {
    /// Shares of its own.
    pub own: Shares,
    /// Tenant whose VM it is.
    pub tenant: Option<TenantId>,
    /// Whether it did IO or wanted to. Of a tenant's VMs alone.
    pub active: bool,
    /// Slots that it would have outstanding for its reservation if nothing were short.
    pub reserved: f64,
    /// Shares of the VM while all VMs want theirs.
    pub shares: f64,
    /// Shares that it counts with: more while others of its tenant leave theirs.
    pub counts: f64,
    /// Mean of the shares that its slice took: more than that while a reservation was its floor.
    pub taken: f64,
    /// Mean number of its pending IOs, held and outstanding, in slots.
    pub pending: f64,
    /// Mean of the pending IOs up to the VM's slice of the window, in slots. What is pending beyond the slice does not use the array.
    pub used: f64,
    /// Slots per second that it completed, where that is known.
    pub rate: Option<f64>,
}

impl VmDemand {
    /// Demand of a VM of which only the mean over the period is known. What a burst had pending beyond the
    /// VM's slice then makes up for the time in which it had nothing. `counts` and `awake`: the shares that the VM counts with, and those
    /// while all VMs want theirs. `window_per_share`: [`Governor::window_per_share`](super::Governor::window_per_share).
    #[must_use]
    pub fn of_mean((counts, awake): (f64, f64), pending: f64, window_per_share: f64) -> VmDemand {
        let used = pending.min(window_per_share * counts);
        VmDemand { shares: awake, counts, taken: counts, pending, used, ..VmDemand::default() }
    }

    /// Whether it could use more than its slice.
    pub(crate) fn is_limited(&self) -> bool {
        self.pending > (1.0 + LIMITED) * self.used
    }

    /// Part of the period in which it could use more than its slice, at most: in that part it uses the whole slice.
    pub(crate) fn limited_part(&self, window_per_share: f64) -> f64 {
        let slice = window_per_share * self.taken;
        match self.is_limited() {
            false => 0.0,
            true if self.used < slice => self.used / slice,
            true => 1.0,
        }
    }
}

/// Sum of the VMs' shares.
pub(super) fn all_shares(vms: &[VmDemand]) -> f64 {
    // Not `sum()`: of no numbers that is -0.0, and the window per share would be minus infinity.
    vms.iter().fold(0.0, |sum, vm| sum + vm.shares)
}

/// A host's shares, as its VMs use them.
pub(super) struct Used {
    /// Shares that count for λ: each VM's in proportion to the part of its slice that it used.
    pub(super) active: f64,
    /// Shares by what the VMs had pending, at most their own.
    pub(super) wanted: f64,
    /// Whether a VM had its whole slice pending.
    pub(super) at_slice: bool,
}

/// The shares that VMs used. `weight`: factor on their shares.
pub(super) fn used_shares(vms: &[VmDemand], weight: f64, window_per_share: f64) -> Used {
    let mut all = Used { active: 0.0, wanted: 0.0, at_slice: false };
    for vm in vms {
        let shares = weight * vm.shares;
        all.active += (vm.used / window_per_share).min(weight * vm.taken);
        // A client that comes and goes needs, when it is there, the window for what it brings.
        let pending = vm.pending / window_per_share;
        let slice = shares.max(weight * vm.taken);
        all.wanted += pending.min(slice);
        all.at_slice |= pending >= slice;
    }
    all
}

/// Factor on the shares that VMs used at which they count with the shares that they have `now`. Where the factor of a tenant falls,
/// windows are not to follow from the shares of before.
pub(crate) fn reweighed(vms: &[VmDemand], now: impl Iterator<Item = f64>) -> f64 {
    let (before, after) = vms.iter().zip(now).fold((0.0, 0.0), |(before, after), (vm, now)| {
        (before + vm.used, after + vm.used * (now / vm.counts))
    });
    if before > 0.0 { after / before } else { 1.0 }
}

/// What holds the host back: its largest window, the slice of a VM, or nothing.
pub(super) fn bounded(vms: &[VmDemand], window_max: f64) -> Bounded {
    let used = vms.iter().fold(0.0, |sum, vm| sum + vm.used);
    if used >= FULL * window_max {
        Bounded::Window
    } else if vms.iter().any(VmDemand::is_limited) {
        Bounded::Slices
    } else {
        Bounded::Nothing
    }
}

/// Throughput of the VMs that could use more than their slices, if `slices` hold the host back; and of those that have more per share
/// than `mean`, whatever they want: it is not theirs to keep.
pub(super) fn saturated(vms: &[VmDemand], slices: bool, mean: f64) -> Throughput {
    vms.iter().fold(Throughput::default(), |sum, vm| {
        let (Some(rate), shares) = (vm.rate, vm.counts) else { return sum };
        if (slices && vm.is_limited()) || rate > mean * shares {
            return sum.plus(Throughput { rate, shares });
        }
        sum
    })
}
