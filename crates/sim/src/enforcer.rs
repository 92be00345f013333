//! Enforcement of a host's window: an agent that serves disks, or a kernel's queue that is steered.

use std::fmt::Debug;

use parda_control::queue::Cost;
use parda_control::{
    Completed, Config, ConfigError, Dispatch, Governor, Host, Instant, Io, IoId, Outcome, Report,
    TenantPart, View, VmConfig, VmId, Window,
};

/// Enforcement of a host's window: by an agent that serves disks ([`Host`]), or by a steered kernel queue
/// ([`Kernel`](crate::kernel::Kernel)). [`Host`] documents the calls.
pub(crate) trait Enforcer: Debug {
    fn set_vm(&mut self, now: Instant, vm: VmId, config: VmConfig);
    fn set_config(&mut self, now: Instant, config: Config) -> Result<(), ConfigError>;
    fn submit(&mut self, now: Instant, vm: VmId, io: Io, token: u64);
    fn next_dispatch(&mut self, now: Instant) -> Option<Dispatch>;
    fn complete(&mut self, now: Instant, id: IoId) -> Option<Completed>;
    fn next_wakeup(&self) -> Option<Instant>;
    fn governor(&self) -> &Governor;

    /// Ticks the law. `tenants`: parts of the other hosts. The result includes this host's own.
    fn tick(
        &mut self,
        now: Instant,
        view: View,
        tenants: Option<Vec<TenantPart>>,
    ) -> (Report, Vec<TenantPart>);

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

    fn set_config(&mut self, now: Instant, config: Config) -> Result<(), ConfigError> {
        Host::set_config(self, now, config)
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

    fn governor(&self) -> &Governor {
        Host::governor(self)
    }

    fn tick(
        &mut self,
        now: Instant,
        view: View,
        tenants: Option<Vec<TenantPart>>,
    ) -> (Report, Vec<TenantPart>) {
        self.hear_tenants(tenants);
        (Host::tick(self, now, view), self.tenant_parts().collect())
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
        io.cost(Host::governor(self).settings().costs)
    }

    fn is_short(&self, vm: VmId) -> bool {
        self.reservation(vm).is_some_and(|state| state.short)
    }
}
