//! What keeps a VM from doing more IOs.

use serde::{Deserialize, Serialize};

use crate::view::{View, Vm};

/// Part of its IOs' time for which a VM is held before that is what limits it.
pub const HELD: f64 = 0.05;

/// What keeps a VM from doing more IOs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// It completed no request.
    NothingDone,
    /// It did flushes, trims and other requests alone, which shares do not divide.
    OtherRequests,
    /// Its IOs are held: it wants more than its slice.
    Slice,
    /// Its IOs are held, as its host has all that the largest window allows.
    WindowMax,
    /// It is not held: it asks for no more IOs at a time, and each takes as long as the array takes.
    OwnDepth,
}

impl Limit {
    /// What limits a VM with so many IOs and other requests, held and at the array for so long.
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
        Limit::of(vm.iops, vm.others_per_s, vm.held_ms, vm.device_ms, view.at_window_max())
    }

    /// The limit in the words of `parda status`.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Limit::NothingDone => "nothing done",
            Limit::OtherRequests => "flushes, trims",
            Limit::Slice => "its slice",
            Limit::WindowMax => "window_max",
            Limit::OwnDepth => "its own depth",
        }
    }

    /// Whether IOs are held.
    #[must_use]
    pub fn is_held(self) -> bool {
        matches!(self, Limit::Slice | Limit::WindowMax)
    }
}
