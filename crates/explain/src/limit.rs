//! The reason why a VM does no more IOs than it does.

use serde::{Deserialize, Serialize};

use crate::view::{Bounded, View, Vm};

/// Held time as a fraction of latency, above which a VM is limited by its slice or its host's window.
pub const HELD: f64 = 0.05;

/// The reason why a VM does no more IOs than it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// It completed no request.
    NothingDone,
    /// It completed no read or write, and some of them are held.
    Starved,
    /// It did only flushes, trims and other requests, which shares do not divide.
    OtherRequests,
    /// Its IOs are held, as it wants more than its slice.
    Slice,
    /// Its IOs are held, as its host is at its largest window.
    WindowMax,
    /// Its IOs are not held: it keeps no more of them pending.
    OwnDepth,
}

impl Limit {
    /// The limit of a VM that is not starved, from its numbers of IOs and of other requests, its mean held time and its mean device
    /// latency.
    #[must_use]
    pub fn of(ios: f64, others: f64, held_ms: f64, device_ms: f64, at_window_max: bool) -> Limit {
        if ios <= 0.0 {
            if others <= 0.0 { Limit::NothingDone } else { Limit::OtherRequests }
        } else if held_ms <= HELD * (held_ms + device_ms) {
            Limit::OwnDepth
        } else if at_window_max {
            Limit::WindowMax
        } else {
            Limit::Slice
        }
    }

    /// The limit of a VM of this host.
    #[must_use]
    pub fn of_vm(view: &View, vm: &Vm) -> Limit {
        if vm.iops <= 0.0 && vm.held_now > 0.0 {
            return Limit::Starved;
        }
        Limit::of(vm.iops, vm.others_per_s, vm.held_ms, vm.device_ms, view.at_window_max())
    }

    /// The limit in the words of `parda status`.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Limit::NothingDone => "nothing done",
            Limit::OtherRequests => "flushes, trims",
            Limit::Slice | Limit::Starved => "its slice",
            Limit::WindowMax => "window_max",
            Limit::OwnDepth => "its own depth",
        }
    }

    /// Whether the VM is held beyond [`HELD`].
    #[must_use]
    pub fn is_held(self) -> bool {
        matches!(self, Limit::Slice | Limit::WindowMax)
    }
}

impl View {
    /// Whether a VM of this host is held, or another host says that one of its own wants more than its slice. Where nobody is, the
    /// threshold bounds nobody.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        let held = |vm| matches!(Limit::of_vm(self, vm), limit if limit.is_held() || limit == Limit::Starved);
        self.vms.iter().any(held) || self.peers.iter().any(|peer| peer.bounded == Bounded::Slices)
    }
}
