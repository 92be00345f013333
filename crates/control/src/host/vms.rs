//! VMs come and go, and have other parts.

use super::part::{VmConfig, VmId, VmPart};
use super::{Host, Rule, Vm};
use crate::queue::{Cost, FlowId};
use crate::slices::{Slice, SliceBounds};
use crate::units::Instant;

/// Bounds of a VM's slice before the first are computed.
const NOTHING: SliceBounds = SliceBounds { window_per_share: 0.0, bind: true };

impl Host {
    /// Adds a VM, which has no IOs yet.
    pub fn add_vm(&mut self, now: Instant, vm: VmConfig) -> VmId {
        let FlowId(flow) = self.queue.add_flow(vm.shares, Cost::slots(vm.burst));
        let slice = Slice::new(now, vm.shares, vm.burst, NOTHING);
        let id = self.vms.insert(Vm {
            shares: vm.shares,
            ios: 0,
            at_array: 0.0,
            removed: false,
            slice,
            guarantees: None,
            done: 0.0,
        });
        self.guarantee(now, VmId(id), &vm);
        // Both are added and removed together, so that both ids are the same.
        debug_assert_eq!(id, flow);
        self.vms_changed = true;
        self.changed = true;
        VmId(id)
    }

    /// Removes a VM. Its shares count no more from now on. What it has held is still dispatched in
    /// its turn, what it has outstanding still completes, and its id is not used again before all of
    /// that is done. Until then it may submit what follows on that, and nothing afterwards. `false`
    /// if there is no such VM.
    pub fn remove_vm(&mut self, id: VmId) -> bool {
        let Some(vm) = self.vm_mut(id) else { return false };
        vm.removed = true;
        // Its last IOs are not to take as long as a limit may say.
        self.free(self.called, id);
        self.vms_changed = true;
        self.changed = true;
        self.bury(id);
        true
    }

    /// Forgets a VM that was removed, once nothing of it is left.
    pub(super) fn bury(&mut self, id: VmId) {
        if let Some(vm) = self.vms.get(id.0).filter(|vm| vm.removed && vm.ios == 0) {
            if let Some(aside) = vm.guarantees.as_ref().and_then(|own| own.aside) {
                self.limits.leave(self.called, aside).for_each(drop);
            }
            self.vms.remove(id.0);
            self.queue.remove_flow(FlowId(id.0));
        }
    }

    /// Whether VMs came or went since the last measurement.
    #[must_use]
    pub fn vms_changed(&self) -> bool {
        self.vms_changed
    }

    fn vm_mut(&mut self, id: VmId) -> Option<&mut Vm> {
        self.vms.get_mut(id.0).filter(|vm| !vm.removed)
    }

    /// The VMs, in the order in which [`Outlook`](crate::Outlook) has them.
    pub fn vms(&self) -> impl Iterator<Item = VmId> {
        self.vms.iter().filter(|(_, vm)| !vm.removed).map(|(id, _)| VmId(id))
    }

    /// Changes a VM's part, from its next dispatch on. `false` if there is no such VM.
    pub fn set_vm(&mut self, now: Instant, id: VmId, config: VmConfig) -> bool {
        let Some(vm) = self.vm_mut(id) else { return false };
        vm.shares = config.shares;
        vm.slice.burst = config.burst;
        self.changed = true;
        self.queue.set_burst(FlowId(id.0), Cost::slots(config.burst));
        self.guarantee(now, id, &config);
        true
    }

    /// Takes from a VM the credit that it gathered while idle: its client has just begun, here or after it moved from another
    /// host, on which it may have spent its credit. `false` if there is no such VM.
    pub fn forget_credit(&mut self, now: Instant, id: VmId) -> bool {
        let Some(vm) = self.vm_mut(id) else { return false };
        vm.slice.forget_credit(now);
        self.queue.forget_credit(FlowId(id.0));
        true
    }

    /// What a VM may take now. `None` if there is no such VM.
    #[must_use]
    pub fn part(&self, id: VmId) -> Option<VmPart> {
        let vm = self.vms.get(id.0).filter(|vm| !vm.removed)?;
        let slice = matches!(self.rule, Rule::Slices { .. }).then(|| vm.slice.slice());
        let aside = vm.guarantees.as_ref().and_then(|own| own.aside);
        let limited = aside.map_or(0, |aside| self.limits.limited(self.called, aside));
        let aside = aside.map_or(0, |aside| self.limits.waiting(aside));
        let held = self.queue.waiting(FlowId(id.0)) + aside;
        Some(VmPart { shares: vm.shares, slice, held, limited })
    }
}
