//! Limits of the VMs of a view.

use parda_api::{Limit, Requests};

use crate::view::{ExplainedVm, ExplainedVolume};

impl ExplainedVolume {
    /// The limit of a VM of this host.
    #[must_use]
    pub fn limit_of(&self, vm: &ExplainedVm) -> Limit {
        let did = Requests {
            ios: vm.iops,
            others: vm.others_per_s,
            held_ms: vm.held_ms,
            limited_ms: vm.held_ms * vm.held_by.map_or(0.0, |by| by.limit),
            device_ms: vm.device_ms,
            held_now: vm.held_now > 0.0,
            limited_now: 2.0 * vm.limited_now > vm.held_now,
        };
        Limit::of(&did, self.at_window_max())
    }

    /// Whether a VM does IOs and is held. Without IOs, nothing is measured of the VM.
    #[must_use]
    pub fn holds(&self, vm: &ExplainedVm) -> bool {
        vm.iops > 0.0 && self.limit_of(vm).is_held()
    }

    /// Whether a VM of this host is held, or another host reports a VM that wants more than its slice. If neither, the threshold
    /// bounds nobody.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        let slice = |peer: &crate::ExplainedPeer| peer.limited_by == Some(Limit::Slice);
        self.vms.iter().any(|vm| self.limit_of(vm).is_held()) || self.peers.iter().any(slice)
    }
}
