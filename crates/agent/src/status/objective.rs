//! Status of latency objectives, which lower the threshold.

use parda_api::Host;
use parda_control::{ObjectiveState, Price};
use parda_exchange::Liveness;
use serde::{Deserialize, Serialize};

use super::DiskStatus;

/// A disk's latency objective, and its result.
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
    /// IO/s of all disks without an objective, on all hosts, while the volume's own threshold was in force. The value is the mean of up to
    /// twenty periods in which any of them could have used more.
    pub others_iops_before: Option<f64>,
    /// IO/s of all disks without an objective, with the objective in force.
    pub others_iops_now: Option<f64>,
}

impl TargetStatus {
    pub(crate) fn new(standing: &ObjectiveState) -> TargetStatus {
        let ms = |secs: f64| secs * 1e3;
        TargetStatus {
            target_ms: ms(standing.target.secs()),
            asks_ms: standing.asks.map(|asks| ms(asks.secs())),
            device_ms: standing.seen.map(|seen| ms(seen.device)).filter(|device| *device > 0.0),
            held_ms: standing.seen.map(|seen| ms(seen.held)),
            short_of_shares: standing.seen.is_some_and(|seen| seen.short),
            rests: standing.rests,
        }
    }
}

impl ObjectiveStatus {
    pub(crate) fn new(cost: &Price, disks: &[DiskStatus], peers: &[Host]) -> ObjectiveStatus {
        let ours = disks.iter().filter_map(|disk| {
            Some((disk.latency_target.as_ref()?.asks_ms?, format!("disk {}", disk.name)))
        });
        let theirs = peers.iter().filter(|peer| peer.liveness == Liveness::Live);
        let theirs = theirs.filter_map(|peer| Some((peer.asks_ms?, format!("host {}", peer.name))));
        let least = ours.chain(theirs).min_by(|one, other| one.0.total_cmp(&other.0));
        ObjectiveStatus {
            of: least.map_or_else(|| "a host that is silent now".to_owned(), |(_, of)| of),
            own_ms: cost.own.secs() * 1e3,
            others_iops_before: cost.before,
            others_iops_now: cost.now,
        }
    }
}
