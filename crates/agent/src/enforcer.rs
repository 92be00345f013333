//! Enforcement of a volume's window: in our own ring, in the kernel's queue, or by QEMU's throttles.

use std::time::Duration;

use parda_block::Drained;
use parda_control::{Decision, Measurement, Period, Span, Window};

use crate::config::{self, Work};
use crate::served::{Served, Shared};
use crate::start_error::{StartError, no_thread};
use crate::status::{Detail, SteerStatus, VolumeStatus};
use crate::steered::Steered;
use crate::throttled::Throttled;

/// Enforcer of a volume. It measures once per period, and works by the last decision of the law.
pub(crate) trait Enforcer: Send {
    /// Ends a period. `None` while there is nothing to measure. `into`: an earlier measurement, whose memory may be used again.
    fn measure(&mut self, into: Measurement) -> Option<Measurement>;

    /// Works by this decision from now on: after a measurement, or as the law or its tenants were changed.
    fn apply(&mut self, decision: &Decision);

    /// Does what is due between two ticks.
    fn between_ticks(&mut self) -> Between {
        Between::Nothing
    }

    /// Takes over what it is to enforce from now on: disks, or VMs.
    fn want(&mut self, wanted: &config::Volume);

    /// Its own fields of the status. Returns names and shares of the VMs in the order of the last measurement, for the forecast of observe
    /// mode; none if they have changed since.
    fn state(
        &mut self,
        status: &mut VolumeStatus,
        config: &config::Volume,
        detail: Detail,
    ) -> Vec<(String, u32)>;

    /// Number of IOs that were done or are under way, where they pass through this host. `None` once it has ended.
    fn served(&mut self) -> Option<u64> {
        None
    }

    /// Answers what is in flight, or puts back what was set before. `None` if it was not running any more.
    fn stop(self: Box<Self>, within: Duration) -> Option<Drained>;
}

/// Result of a look between two ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Between {
    /// Nothing is due before the next tick.
    Nothing,
    /// Something is due after this time.
    Wait(Span),
    /// The array said that it is full: the window is to be this at most.
    Full(Window),
}

/// The enforcer of a volume's work, with the law that it is under. `settled` is called when all that it is to serve was tried once.
pub(crate) fn start(
    config: &config::Volume,
    shared: &Shared,
    settled: impl FnOnce() + Send + 'static,
) -> Result<(Period, Box<dyn Enforcer>), StartError> {
    let tenants = parda_config::tenants(&config.tenants);
    let law = match &config.work {
        Work::Serve(_) => Period::new,
        Work::Steer(_) | Work::Qemu(_) => Period::counting_ios,
    };
    let mut period = law(config.law.clone())?;
    period.set_tenants(&tenants);
    let decision = period.decision();
    let enforcer: Box<dyn Enforcer> = match &config.work {
        Work::Serve(_) => {
            let served = Served::start(config, decision, shared, settled)?;
            return Ok((period, Box::new(served)));
        }
        Work::Steer(steer) => Box::new(Steered::start(&config.name, steer, decision)?),
        Work::Qemu(qemu) => {
            Box::new(Throttled::start(&config.name, qemu, decision).map_err(no_thread)?)
        }
    };
    settled();
    Ok((period, enforcer))
}

/// Fields of the status of a volume whose IOs do not pass through the agent. Returns `vms`, their names and shares.
pub(crate) fn describe(
    steer: SteerStatus,
    vms: Vec<(String, u32)>,
    status: &mut VolumeStatus,
) -> Vec<(String, u32)> {
    status.shares = vms.iter().fold(0, |sum, (_, shares)| sum.saturating_add(*shares));
    status.held = (steer.pending - status.outstanding).max(0.0) as u64;
    status.steer = Some(steer);
    vms
}
