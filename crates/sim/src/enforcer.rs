//! Enforcement of a host's window: an agent that serves disks, or a kernel's queue that is steered.

use parda_control::queue::Cost;
use parda_control::{
    Completed, Config, ConfigError, Dispatch, Governor, Host, Instant, Io, IoId, Outcome, Report,
    TenantPart, View, VmConfig, VmId, Window,
};

use crate::kernel::Kernel;

/// What holds a host's IOs back: an agent that serves disks, or the kernel's queue of a device that
/// one steers. What each call does, [`Host`] says.
#[derive(Debug)]
pub(crate) enum Enforcer {
    Host(Box<Host>),
    Kernel(Box<Kernel>),
}

impl Enforcer {
    pub(crate) fn set_vm(&mut self, now: Instant, vm: VmId, config: VmConfig) {
        match self {
            Enforcer::Host(host) => {
                host.set_vm(now, vm, config);
            }
            Enforcer::Kernel(kernel) => kernel.set_shares(vm, config.shares),
        }
    }

    /// A VM's client begins. The kernel's queue keeps no credit.
    pub(crate) fn begin(&mut self, now: Instant, vm: VmId) {
        match self {
            Enforcer::Host(host) => {
                host.forget_credit(now, vm);
            }
            Enforcer::Kernel(_) => {}
        }
    }

    pub(crate) fn set_config(&mut self, now: Instant, config: Config) -> Result<(), ConfigError> {
        match self {
            Enforcer::Host(host) => host.set_config(now, config),
            Enforcer::Kernel(kernel) => kernel.set_config(config),
        }
    }

    /// The slots that an IO takes. A kernel's queue counts IOs.
    pub(crate) fn cost(&self, io: Io) -> Cost {
        match self {
            Enforcer::Host(host) => io.cost(host.governor().settings().costs),
            Enforcer::Kernel(_) => Cost::ONE,
        }
    }

    pub(crate) fn submit(&mut self, now: Instant, vm: VmId, io: Io, token: u64) {
        match self {
            Enforcer::Host(host) => host.submit(now, vm, io, token),
            Enforcer::Kernel(kernel) => kernel.submit(now, vm, io, token),
        }
    }

    pub(crate) fn next_dispatch(&mut self, now: Instant) -> Option<Dispatch> {
        match self {
            Enforcer::Host(host) => host.next_dispatch(now),
            Enforcer::Kernel(kernel) => kernel.next_dispatch(now),
        }
    }

    pub(crate) fn complete(&mut self, now: Instant, id: IoId) -> Option<Completed> {
        match self {
            Enforcer::Host(host) => host.complete(now, id, Outcome::Done),
            Enforcer::Kernel(kernel) => kernel.complete(now, id),
        }
    }

    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        match self {
            Enforcer::Host(host) => host.next_wakeup(),
            Enforcer::Kernel(kernel) => kernel.next_wakeup(),
        }
    }

    /// `tenants`: what the others say of them. Answers what this host says.
    pub(crate) fn tick(
        &mut self,
        now: Instant,
        view: View,
        tenants: Option<Vec<TenantPart>>,
    ) -> (Report, Vec<TenantPart>) {
        match self {
            Enforcer::Host(host) => {
                host.hear_tenants(tenants);
                (host.tick(now, view), host.tenant_parts().collect())
            }
            Enforcer::Kernel(kernel) => (kernel.tick(now, view), Vec::new()),
        }
    }

    pub(crate) fn governor(&self) -> &Governor {
        match self {
            Enforcer::Host(host) => host.governor(),
            Enforcer::Kernel(kernel) => kernel.governor(),
        }
    }

    /// Whether a VM asks for its reservation and has less.
    pub(crate) fn is_short(&self, vm: VmId) -> bool {
        match self {
            Enforcer::Host(host) => host.reservation(vm).is_some_and(|state| state.short),
            Enforcer::Kernel(_) => false,
        }
    }

    /// What bounds an IO that goes to the array now.
    pub(crate) fn bound(&self) -> Window {
        match self {
            Enforcer::Host(host) => host.grant(),
            Enforcer::Kernel(kernel) => kernel.bound(),
        }
    }

    /// IOs that wait or are at the array.
    pub(crate) fn under_way(&self) -> usize {
        match self {
            Enforcer::Host(host) => host.held() + host.outstanding(),
            Enforcer::Kernel(kernel) => kernel.under_way(),
        }
    }
}
