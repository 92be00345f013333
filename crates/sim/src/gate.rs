//! What holds a host's IOs back.

use parda_control::queue::Cost;
use parda_control::{
    Completed, Config, ConfigError, Dispatch, Host, Instant, Io, IoId, Outcome, Report, Span, View,
    VmConfig, VmId, Window,
};

use crate::kernel::Kernel;

/// What holds a host's IOs back: an agent that serves disks, or the kernel's queue of a device that
/// one steers. What each call does, [`Host`] says.
#[derive(Debug)]
pub(crate) enum Gate {
    Agent(Box<Host>),
    Kernel(Box<Kernel>),
}

impl Gate {
    pub(crate) fn set_vm(&mut self, vm: VmId, config: VmConfig) {
        match self {
            Gate::Agent(host) => {
                host.set_vm(vm, config);
            }
            Gate::Kernel(kernel) => kernel.set_shares(vm, config.shares),
        }
    }

    pub(crate) fn set_config(
        &mut self,
        now: Instant,
        config: Config,
        period: Span,
    ) -> Result<(), ConfigError> {
        match self {
            Gate::Agent(host) => host.set_config(now, config),
            Gate::Kernel(kernel) => kernel.set_config(config, period),
        }
    }

    /// The slots that an IO takes. A kernel's queue counts IOs.
    pub(crate) fn cost(&self, io: Io) -> Cost {
        match self {
            Gate::Agent(host) => io.cost(host.settings().slot_size),
            Gate::Kernel(_) => Cost::ONE,
        }
    }

    pub(crate) fn submit(&mut self, now: Instant, vm: VmId, io: Io, token: u64) {
        match self {
            Gate::Agent(host) => host.submit(now, vm, io, token),
            Gate::Kernel(kernel) => kernel.submit(now, vm, io, token),
        }
    }

    pub(crate) fn next_dispatch(&mut self, now: Instant) -> Option<Dispatch> {
        match self {
            Gate::Agent(host) => host.next_dispatch(now),
            Gate::Kernel(kernel) => kernel.next_dispatch(now),
        }
    }

    pub(crate) fn complete(&mut self, now: Instant, id: IoId) -> Option<Completed> {
        match self {
            Gate::Agent(host) => host.complete(now, id, Outcome::Done),
            Gate::Kernel(kernel) => kernel.complete(now, id),
        }
    }

    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        match self {
            Gate::Agent(host) => host.next_wakeup(),
            Gate::Kernel(kernel) => kernel.next_wakeup(),
        }
    }

    pub(crate) fn tick(&mut self, now: Instant, view: View) -> Report {
        match self {
            Gate::Agent(host) => host.tick(now, view),
            Gate::Kernel(kernel) => kernel.tick(now, view),
        }
    }

    /// The window that the law found.
    pub(crate) fn window(&self) -> Window {
        match self {
            Gate::Agent(host) => host.window(),
            Gate::Kernel(kernel) => kernel.window(),
        }
    }

    /// The threshold in force.
    pub(crate) fn threshold(&self) -> Span {
        match self {
            Gate::Agent(host) => host.threshold(),
            Gate::Kernel(kernel) => kernel.threshold(),
        }
    }

    /// What bounds an IO that goes to the array now.
    pub(crate) fn bound(&self) -> Window {
        match self {
            Gate::Agent(host) => host.grant(),
            Gate::Kernel(kernel) => kernel.bound(),
        }
    }

    pub(crate) fn held(&self) -> usize {
        match self {
            Gate::Agent(host) => host.held(),
            Gate::Kernel(kernel) => kernel.held(),
        }
    }

    pub(crate) fn outstanding(&self) -> usize {
        match self {
            Gate::Agent(host) => host.outstanding(),
            Gate::Kernel(kernel) => kernel.issued(),
        }
    }
}
