//! Load on the array that is not under control.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Load on the array that is not under control, or an array that became slower: nothing says which.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Outsider {
    /// Outstanding IOs of an outsider that would explain it, counted in IOs like those of the hosts.
    pub outstanding: f64,
    /// Part of all outstanding IOs that such an outsider has, from 0 to 1.
    pub part: f64,
    /// Mean latency of all hosts' IOs in the last period, in milliseconds.
    pub latency_ms: f64,
    /// The usual latency with as many outstanding IOs, in milliseconds.
    pub usual_ms: f64,
    /// Periods for which the latency has been above that.
    pub periods: u32,
    /// Factor by which the array would be slower, if that explained it.
    pub factor: f64,
}
