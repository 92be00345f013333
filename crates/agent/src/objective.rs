//! Status of disks with a latency objective.

use parda_api::Host;
use parda_control::{ObjectiveState, Price};
use parda_exchange::Liveness;

use crate::status::{DiskStatus, ObjectiveStatus, TargetStatus};

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
