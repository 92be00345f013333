//! Enforcers of volumes whose IOs do not pass through the agent.

use parda_control::{Instant, KernelHost, Report, View};

use crate::config::Work;
use crate::status::SteerStatus;

/// Enforcer of a volume whose IOs do not pass through the agent.
pub(crate) trait Outside: Send {
    /// The law, and the host's part in it.
    fn host(&mut self) -> &mut KernelHost;

    /// Ends a period: measures, ticks the law, and sets what follows from it.
    fn tick(&mut self, now: Instant, view: View) -> Report;

    /// Does what is due between two ticks. Returns when something is due again before the next tick, if anything is.
    fn between_ticks(&mut self, _now: Instant) -> Option<Instant> {
        None
    }

    /// Takes over other VMs, and returns them for the log, if they are others.
    fn set_vms(&mut self, wanted: &Work) -> Option<String>;

    /// Names and shares of the VMs, in the order of their demands.
    fn vms(&self) -> Vec<(String, u32)>;

    /// State of what is steered, as the status shows it.
    fn status(&self) -> SteerStatus;

    /// Puts back what was there before.
    fn stop(&mut self);
}
