//! Enforcement of a host's window: an agent that serves disks, or a kernel's queue that is steered.
//!
//! An enforcer of the agent measures and applies by the same two messages. Here IOs pass through it as well, in virtual time, so that it
//! is a trait of its own.

use std::fmt::Debug;

use parda_control::queue::Cost;
use parda_control::{
    Completed, Decision, Dispatch, Host, Instant, Io, IoId, Measurement, Outcome, VmConfig, VmId,
    Window,
};

/// Enforcement of a host's window: by an agent that serves disks ([`Host`]), or by a steered kernel queue
/// ([`Kernel`](crate::kernel::Kernel)). [`Host`] documents the calls.
pub(crate) trait Enforcer: Debug {
    fn set_vm(&mut self, now: Instant, vm: VmId, config: VmConfig);
    fn submit(&mut self, now: Instant, vm: VmId, io: Io, token: u64);
    fn next_dispatch(&mut self, now: Instant) -> Option<Dispatch>;
    fn complete(&mut self, now: Instant, id: IoId) -> Option<Completed>;
    fn next_wakeup(&self) -> Option<Instant>;
    fn measure(&mut self, now: Instant, into: &mut Measurement);
    fn apply(&mut self, now: Instant, decision: &Decision);

    /// Upper bound on an IO that goes to the array now.
    fn bound(&self) -> Window;

    /// Slots that a VM may have outstanding, whatever the others on its host have.
    fn slice(&self, _vm: VmId) -> f64 {
        0.0
    }

    /// Number of IOs that wait or are at the array.
    fn under_way(&self) -> usize;

    /// Starts a VM's client. A kernel's queue keeps no credit.
    fn begin(&mut self, _now: Instant, _vm: VmId) {}

    /// Slots that an IO takes. A kernel's queue counts IOs.
    fn cost(&self, _io: Io) -> Cost {
        Cost::ONE
    }

    /// Whether a VM demands its reservation and gets less.
    fn is_short(&self, _vm: VmId) -> bool {
        false
    }
}

impl Enforcer for Host {
    fn set_vm(&mut self, now: Instant, vm: VmId, config: VmConfig) {
        Host::set_vm(self, now, vm, config);
    }

    fn submit(&mut self, now: Instant, vm: VmId, io: Io, token: u64) {
        Host::submit(self, now, vm, io, token);
    }

    fn next_dispatch(&mut self, now: Instant) -> Option<Dispatch> {
        Host::next_dispatch(self, now)
    }

    fn complete(&mut self, now: Instant, id: IoId) -> Option<Completed> {
        Host::complete(self, now, id, Outcome::Done)
    }

    fn next_wakeup(&self) -> Option<Instant> {
        Host::next_wakeup(self)
    }

    fn measure(&mut self, now: Instant, into: &mut Measurement) {
        Host::measure(self, now, into);
    }

    fn apply(&mut self, now: Instant, decision: &Decision) {
        Host::apply(self, now, decision);
    }

    fn bound(&self) -> Window {
        self.grant()
    }

    fn slice(&self, vm: VmId) -> f64 {
        self.part(vm).and_then(|part| part.slice).unwrap_or_default()
    }

    fn under_way(&self) -> usize {
        self.held() + self.outstanding()
    }

    fn begin(&mut self, now: Instant, vm: VmId) {
        self.forget_credit(now, vm);
    }

    fn cost(&self, io: Io) -> Cost {
        io.cost(self.decision().costs)
    }

    fn is_short(&self, vm: VmId) -> bool {
        self.reservation(vm).is_some_and(|state| state.short)
    }
}
