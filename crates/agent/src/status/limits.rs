//! Status of what lowers the threshold: latency objectives.

use serde::{Deserialize, Serialize};

/// A disk's latency objective, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetStatus {
    /// Largest mean time that its IOs may take at the array, in milliseconds.
    pub target_ms: f64,
    /// The threshold that it asks for, in milliseconds. None while it does little or nothing, or rests.
    pub asks_ms: Option<f64>,
    /// Mean time of its IOs at the array in its last period with IO, in milliseconds.
    pub device_ms: Option<f64>,
    /// Mean time that these IOs were held, in milliseconds.
    pub held_ms: Option<f64>,
    /// Its IOs are held for longer than the objective: its shares are the limit, and no threshold can help it.
    pub short_of_shares: bool,
    /// The array could not meet the objective, which is tried again later.
    #[serde(default)]
    pub rests: bool,
}

/// An objective that is in force in place of the volume's own threshold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObjectiveStatus {
    /// Owner of the objective: a disk of this host, or another host.
    pub of: String,
    /// The volume's own threshold, in milliseconds.
    pub own_ms: f64,
    /// IO/s of all that ask for nothing, on all hosts, while the volume's own was in force: the mean of the
    /// last twenty periods in which somebody could have used more.
    pub others_iops_before: Option<f64>,
    /// IO/s of all that ask for nothing, with the objective in force.
    pub others_iops_now: Option<f64>,
}
