//! Enforcement of a volume's window: in our own ring, in the kernel's queue, or by QEMU's throttles.

use std::time::Duration;

use parda_block::DrainedVolume;
use parda_control::{Decision, Measurement, Span, Window};

use crate::config;
use crate::status::{Detail, SteerStatus, VolumeStatus};

/// Enforcer of a volume. The enforcer measures once per period, and works by the last decision of the law.
pub(crate) trait Enforcer: Send {
    /// Ends a period. `None` while there is nothing to measure. `into`: an earlier measurement, whose memory may be used again.
    fn measure(&mut self, into: Measurement) -> Option<Measurement>;

    /// Works by this decision from now on: after a measurement, or as the law or its tenants were changed.
    fn apply(&mut self, decision: &Decision);

    /// Performs the work that is due between two ticks.
    fn between_ticks(&mut self) -> Between {
        Between::Nothing
    }

    /// Takes over the disks or VMs to enforce from now on.
    fn want(&mut self, wanted: &config::Volume);

    /// Its own fields of the status. Returns names and shares of the VMs in the order of the last measurement, for the forecast of observe
    /// mode. The list is empty if they have changed since.
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

    /// Answers the IOs in flight, or restores the previous settings. `None` if it was not running any more.
    fn stop(self: Box<Self>, within: Duration) -> Option<DrainedVolume>;
}

/// Result of a look between two ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Between {
    /// Nothing is due before the next tick.
    Nothing,
    /// Something is due after this time.
    Wait(Span),
    /// The array reported that it is full: this is the largest window from now on.
    Full(Window),
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
