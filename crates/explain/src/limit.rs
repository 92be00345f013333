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

/// Requests of a VM in an interval, as numbers or as rates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Requests {
    /// Reads and writes that were completed.
    pub ios: f64,
    /// Flushes, trims and other requests.
    pub others: f64,
    /// Mean held time of reads and writes, in milliseconds.
    pub held_ms: f64,
    /// Mean time of reads and writes at the array, in milliseconds.
    pub device_ms: f64,
    /// Whether IOs are held at the end of the interval.
    pub held_now: bool,
}

impl Limit {
    /// The limit of a VM. `at_window_max`: whether its host is at its largest window ([`is_full`](crate::is_full)).
    #[must_use]
    pub fn of(did: &Requests, at_window_max: bool) -> Limit {
        let Requests { ios, others, held_ms, device_ms, held_now } = *did;
        match ios > 0.0 {
            false if held_now => Limit::Starved,
            false if others > 0.0 => Limit::OtherRequests,
            false => Limit::NothingDone,
            true if held_ms <= HELD * (held_ms + device_ms) => Limit::OwnDepth,
            true if at_window_max => Limit::WindowMax,
            true => Limit::Slice,
        }
    }

    /// The limit of a VM of this host.
    #[must_use]
    pub fn of_vm(view: &View, vm: &Vm) -> Limit {
        let did = Requests {
            ios: vm.iops,
            others: vm.others_per_s,
            held_ms: vm.held_ms,
            device_ms: vm.device_ms,
            held_now: vm.held_now > 0.0,
        };
        Limit::of(&did, view.at_window_max())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vm_is_limited_by_what_holds_its_ios() {
        let of = |ios, others, held_ms, device_ms, held_now| {
            let did = Requests { ios, others, held_ms, device_ms, held_now };
            [false, true].map(|at_window_max| Limit::of(&did, at_window_max))
        };
        assert_eq!(of(0.0, 0.0, 0.0, 0.0, false), [Limit::NothingDone; 2]);
        assert_eq!(of(0.0, 9.0, 0.0, 0.0, false), [Limit::OtherRequests; 2]);
        assert_eq!(of(0.0, 9.0, 0.0, 0.0, true), [Limit::Starved; 2]);
        assert_eq!(of(9.0, 0.0, 0.6, 9.4, true), [Limit::Slice, Limit::WindowMax]);
        for (held_ms, device_ms) in [(0.4, 9.6), (0.5, 9.5)] {
            assert_eq!(of(9.0, 0.0, held_ms, device_ms, true), [Limit::OwnDepth; 2]);
        }
    }
}
