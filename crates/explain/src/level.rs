//! Slots of all VMs at a window per share: water-filling.
//!
//! A *level* is a window per share, relative to that of the view. At level 2 every slice is twice as large.

use parda_api::Limit;

use crate::view::{ExplainedPeer, ExplainedVm, ExplainedVolume, Holding, VmTenant};

/// Used fraction of the slices of another host's VMs that want less than their slices. An assumption, as the exchange has sums
/// only. The fraction decides how many of that host's slots grow and shrink with the level.
const USED: f64 = 0.25;

/// Demand of a VM of this host, in slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    /// Slots that it would use, however large its slice is.
    pub(crate) wanted: f64,
    /// Its slice at level 1.
    pub(crate) slice: f64,
    /// Most slots that the VM's limit allows, at any level.
    pub(crate) most: f64,
}

/// Demand of another host, in slots at level 1.
#[derive(Clone, Copy, Debug)]
struct PeerDemand {
    /// Slices of VMs that use as much as they are given.
    elastic: f64,
    /// Slots that the other VMs want, however large their slices are.
    wanted: f64,
    /// Slices of those other VMs.
    slices: f64,
}

/// Demand of the whole cluster, as far as this host has reports of it.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) own: Vec<Claim>,
    peers: Vec<PeerDemand>,
    holding: Holding,
}

impl Cluster {
    /// The cluster of a view, at level 1.
    pub(crate) fn of(view: &ExplainedVolume) -> Cluster {
        let own = view.vms.iter().map(|vm| {
            let (wanted, outstanding) = (vm.pending(), vm.outstanding());
            let held = view.holds(vm);
            // A held VM uses its whole slice, and its outstanding IOs are measured better than the slice.
            let slice =
                if held { outstanding } else { vm.slice.unwrap_or(wanted).max(outstanding) };
            let most = match vm.limit.as_ref().and_then(|limit| limit.iops) {
                // The measured outstanding IOs are those that its limit allows.
                _ if view.limit_of(vm) == Limit::Configured => outstanding,
                Some(iops) => vm.slots_of(iops).max(outstanding),
                None => f64::INFINITY,
            };
            Claim { wanted, slice, most }
        });
        let own: Vec<Claim> = own.collect();
        let peers = view.peers.iter().map(PeerDemand::of).collect();
        Cluster { own, peers, holding: view.holding }
    }

    /// Gives a tenant another limit, in IO/s on all hosts. The VMs that it holds, or would hold, have more or less in proportion.
    pub(crate) fn limit_tenant(&mut self, view: &ExplainedVolume, tenant: &VmTenant, iops: f64) {
        let of = |vm: &ExplainedVm| vm.tenant.as_ref().is_some_and(|it| it.name == tenant.name);
        for (vm, claim) in view.vms.iter().zip(&mut self.own).filter(|(vm, _)| of(vm)) {
            let own = vm.limit.as_ref().and_then(|limit| limit.iops);
            let held = own.is_none() && view.limit_of(vm) == Limit::Configured;
            let most = vm.outstanding() * iops / tenant.iops;
            if held {
                claim.most = most;
            } else if iops < tenant.iops {
                claim.most = claim.most.min(most);
            }
        }
    }

    /// Slots that each VM of this host has at a level, within the host's largest window.
    pub(crate) fn own_at(&self, level: f64) -> Vec<f64> {
        let most = match self.holding {
            Holding::Slices { window_max } => window_max.unwrap_or(f64::INFINITY),
            Holding::Window { window } => window,
            Holding::Nothing => return self.own.iter().map(|claim| claim.wanted).collect(),
        };
        let at = |level: f64| -> Vec<f64> {
            let own = self.own.iter();
            own.map(|claim| claim.wanted.min(level * claim.slice).min(claim.most)).collect()
        };
        let level = if matches!(self.holding, Holding::Window { .. }) { HIGH } else { level };
        if at(level).iter().sum::<f64>() <= most {
            return at(level);
        }
        at(search(|level| at(level).iter().sum::<f64>() - most))
    }

    /// Slots of all hosts at a level.
    pub(crate) fn all_at(&self, level: f64) -> f64 {
        let own: f64 = self.own_at(level).iter().sum();
        own + self.peers.iter().map(|peer| peer.at(level)).sum::<f64>()
    }

    /// Slots of all hosts if nothing but their largest windows and what their VMs want bounds them.
    pub(crate) fn most(&self) -> f64 {
        self.all_at(HIGH)
    }

    /// The level at which all hosts together have `slots`; the highest level, if they want fewer than that.
    pub(crate) fn level(&self, slots: f64) -> f64 {
        search(|level| self.all_at(level) - slots)
    }
}

impl PeerDemand {
    fn of(peer: &ExplainedPeer) -> PeerDemand {
        let active = peer.active_shares.min(peer.shares);
        let per_share = if active > 0.0 { peer.outstanding / active } else { 0.0 };
        let elastic = match peer.limited_by {
            // Some of its VMs use their whole slices, the others the fraction `USED` of theirs.
            Some(Limit::Slice) | None => {
                (peer.shares - (peer.shares - active) / (1.0 - USED)).clamp(active / 2.0, active)
            }
            Some(_) => 0.0,
        };
        PeerDemand {
            elastic: per_share * elastic,
            wanted: per_share * (active - elastic),
            slices: per_share * (peer.shares - elastic),
        }
    }

    fn at(&self, level: f64) -> f64 {
        level * self.elastic + self.wanted.min(level * self.slices)
    }
}

/// Lowest and highest level of the search.
const LOW: f64 = 1e-6;
const HIGH: f64 = 1e6;

/// The level at which `over`, a function that never falls, is zero, by bisection; [`HIGH`], if it is negative everywhere.
pub(crate) fn search(over: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (LOW, HIGH);
    if over(high) <= 1e-9 {
        return high;
    }
    for _ in 0..80 {
        let middle = (low * high).sqrt();
        if over(middle) < 0.0 { low = middle } else { high = middle }
    }
    (low * high).sqrt()
}
