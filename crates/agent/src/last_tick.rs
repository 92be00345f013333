//! Result of a control thread's last tick.

use parda_api::Host;
use parda_control::Report;

use crate::settings::Difference;
use crate::status::ExchangeStatus;

/// Result of the last tick, for the status.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastTick {
    pub(crate) ticks: u64,
    pub(crate) report: Option<Report>,
    /// This host, as the others see it.
    pub(crate) own: Option<Host>,
    pub(crate) exchange: Option<ExchangeStatus>,
    /// Settings in which live hosts differ.
    pub(crate) differ: Vec<Difference>,
}
