//! Slots of all VMs at one level of the window per share: water-filling.

use crate::limit::Limit;
use crate::view::{Bounded, Holding, Peer, View};

/// Part of their slices that VMs of another host use which want less than these: it is not known, and decides
/// which part of that host's slots grows and shrinks with the level.
const USED: f64 = 0.25;

/// What a VM of this host wants and may have, in slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) wanted: f64,
    pub(crate) slice: f64,
}

/// Another host: slots that follow the level, up to any number, and slots that VMs want and no more.
#[derive(Clone, Copy, Debug)]
struct Sum {
    elastic: f64,
    wanted: f64,
    /// Slices of the VMs that want no more.
    slices: f64,
}

/// All of a cluster, as far as this host knows it. The level is the window per share relative to that of the view.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) own: Vec<Claim>,
    peers: Vec<Sum>,
    holding: Holding,
}

impl Cluster {
    /// The cluster of a view, at level 1.
    pub(crate) fn of(view: &View) -> Cluster {
        let own = view.vms.iter().map(|vm| {
            let (wanted, outstanding) = (vm.pending(), vm.outstanding());
            let held = Limit::of_vm(view, vm).is_held();
            // The slice of a VM that is held is what it has.
            let slice =
                if held { outstanding } else { vm.slice.unwrap_or(wanted).max(outstanding) };
            Claim { wanted, slice }
        });
        let own: Vec<Claim> = own.collect();
        let peers = view.peers.iter().map(Sum::of).collect();
        Cluster { own, peers, holding: view.holding }
    }

    /// Slots that each VM of this host has at a level, within the host's largest window.
    pub(crate) fn own_at(&self, level: f64) -> Vec<f64> {
        let most = match self.holding {
            Holding::Slices { window_max } => window_max.unwrap_or(f64::INFINITY),
            Holding::Window { window } => window,
            Holding::Nothing => return self.own.iter().map(|claim| claim.wanted).collect(),
        };
        let at = |level: f64| -> Vec<f64> {
            self.own.iter().map(|claim| claim.wanted.min(level * claim.slice)).collect()
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

    /// The level at which all hosts together have so many slots; the highest, if they want no more than that.
    pub(crate) fn level(&self, slots: f64) -> f64 {
        search(|level| self.all_at(level) - slots)
    }
}

impl Sum {
    fn of(peer: &Peer) -> Sum {
        let active = peer.active_shares.min(peer.shares);
        let per_share = if active > 0.0 { peer.outstanding / active } else { 0.0 };
        let elastic = match peer.bounded {
            // Some of its VMs have their slices, and others leave a part of theirs.
            Bounded::Slices | Bounded::Unsaid => {
                (peer.shares - (peer.shares - active) / (1.0 - USED)).clamp(active / 2.0, active)
            }
            Bounded::Nothing | Bounded::Window => 0.0,
        };
        Sum {
            elastic: per_share * elastic,
            wanted: per_share * (active - elastic),
            slices: per_share * (peer.shares - elastic),
        }
    }

    fn at(&self, level: f64) -> f64 {
        level * self.elastic + self.wanted.min(level * self.slices)
    }
}

/// Levels that are looked at.
const LOW: f64 = 1e-6;
const HIGH: f64 = 1e6;

/// Where a function that never falls is zero; the highest level, if it is below zero everywhere.
fn search(over: impl Fn(f64) -> f64) -> f64 {
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
