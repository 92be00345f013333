//! Events that only the difference of two looks shows.

use std::collections::HashMap;

use parda_api::Host;
use parda_exchange::Liveness;

use super::quantity::rounded;
use crate::status::{DiskStatus, VolumeStatus};

/// Looks without an IO out of turn after which such an IO is logged again.
const QUIET: u32 = 60;

/// State of a volume at the last look, and the events already logged.
#[derive(Debug, Default)]
pub(super) struct Watch {
    hosts: HashMap<String, Liveness>,
    objective: Option<String>,
    disks: HashMap<String, Seen>,
    /// Tenants that are short of their reservation.
    short: Vec<String>,
}

#[derive(Debug, Default)]
struct Seen {
    overdue: u64,
    /// Looks since IOs went out of turn last, if that was logged.
    held: Option<u32>,
    short: bool,
    reservation_short: bool,
}

impl Watch {
    /// Logs what is new. `keys`: those of the volume's disks.
    pub(super) fn look(&mut self, volume: &VolumeStatus, keys: &[String]) {
        let name = &volume.name;
        let peers = volume.exchange.as_ref().map_or(&[][..], |exchange| &exchange.peers);
        self.hosts(name, peers);
        let objective = volume.objective.as_ref().map(|objective| objective.of.clone());
        match (&self.objective, &objective) {
            (before, Some(of)) if before.as_ref() != Some(of) => tracing::info!(
                volume = name,
                threshold_ms = rounded(volume.latency_threshold_ms),
                event = "objective_in_force",
                "the latency objective of {of} is in force"
            ),
            (Some(_), None) => tracing::info!(
                volume = name,
                event = "objective_over",
                "no latency objective is in force any more"
            ),
            _ => {}
        }
        self.objective = objective;
        let short = volume.tenants.iter().filter(|tenant| tenant.short);
        for tenant in short.clone().filter(|tenant| !self.short.contains(&tenant.name)) {
            tracing::warn!(
                volume = name,
                tenant = tenant.name,
                iops = tenant.iops,
                event = "reservation_short",
                "tenant {} does not have its reservation: more is reserved than the array does",
                tenant.name
            );
        }
        self.short = short.map(|tenant| tenant.name.clone()).collect();
        let mut before = std::mem::take(&mut self.disks);
        self.disks.reserve(keys.len());
        for (key, disk) in keys.iter().zip(&volume.disks) {
            let before = before.remove_entry(key);
            let (key, seen) = before.unwrap_or_else(|| (key.clone(), Seen::default()));
            self.disks.insert(key, seen.look(name, disk));
        }
    }

    fn hosts(&mut self, volume: &str, peers: &[Host]) {
        for Host { name: host, liveness, .. } in peers {
            // A host that was started anew is unproven at first: its state from before still counts.
            if *liveness == Liveness::Unproven && self.hosts.contains_key(host) {
                continue;
            }
            let before = self.hosts.insert(host.clone(), *liveness);
            match (before, *liveness) {
                (None | Some(Liveness::Unproven), Liveness::Live) => {
                    tracing::info!(volume, host, event = "host_appeared", "host {host} is live");
                }
                (Some(Liveness::Live), Liveness::Stale | Liveness::Gone) => tracing::warn!(
                    volume,
                    host,
                    event = "host_silent",
                    "host {host} is silent, and did not say goodbye"
                ),
                (Some(Liveness::Live | Liveness::Stale | Liveness::Unproven), Liveness::Left) => {
                    tracing::info!(volume, host, event = "host_left", "host {host} has left");
                }
                (Some(Liveness::Stale | Liveness::Gone | Liveness::Left), Liveness::Live) => {
                    tracing::info!(volume, host, event = "host_returned", "host {host} is back");
                }
                _ => {}
            }
        }
        self.hosts.retain(|host, _| peers.iter().any(|peer| peer.name == *host));
    }
}

impl Seen {
    fn look(mut self, volume: &str, disk: &DiskStatus) -> Seen {
        let name = &disk.name;
        if disk.overdue > self.overdue && self.held.is_none() {
            tracing::warn!(
                volume,
                disk = name,
                ios = disk.overdue - self.overdue,
                event = "held_too_long",
                "IOs went out of turn, as the disk had been held for hold_max: it has few shares \
                 beside the others"
            );
        }
        self.held = match self.held {
            _ if disk.overdue > self.overdue => Some(0),
            Some(looks) if looks < QUIET => Some(looks + 1),
            _ => None,
        };
        self.overdue = disk.overdue;
        let short = disk.latency_target.as_ref().is_some_and(|target| target.short_of_shares);
        if short && !self.short {
            tracing::warn!(
                volume,
                disk = name,
                event = "objective_missed",
                "the disk misses its latency_target as it is held: give it more shares"
            );
        }
        self.short = short;
        let reservation = disk.reservation.filter(|reservation| reservation.short);
        if let Some(reservation) = reservation.filter(|_| !self.reservation_short) {
            tracing::warn!(
                volume,
                disk = name,
                iops = reservation.iops,
                event = "reservation_short",
                "the disk does not have its reservation of {} IO/s: more is reserved than the array does",
                reservation.reserved_iops
            );
        }
        self.reservation_short = reservation.is_some();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::tests::recorded;
    use crate::history::disk_keys;

    /// Kinds of events of these looks.
    fn said(looks: &[serde_json::Value]) -> Vec<String> {
        let mut watch = Watch::default();
        let recorder = recorded(|| {
            for look in looks {
                let mut volume = serde_json::json!({
                    "name": "array", "mode": "parda", "latency_threshold_ms": 30.0,
                    "cluster_latency_ms": null, "source": "local", "window": null, "beta": 0.0,
                    "shares": 0, "active_shares": 0.0, "outstanding": 0.0, "held": 0,
                    "connections": 0, "ticks": 0, "exchange": null, "disks": [],
                });
                for (key, value) in look.as_object().unwrap() {
                    volume[key] = value.clone();
                }
                let volume: VolumeStatus = serde_json::from_value(volume).unwrap();
                watch.look(&volume, &disk_keys(&volume.disks));
            }
        });
        recorder.answer(Default::default()).events.into_iter().map(|event| event.kind).collect()
    }

    fn host(liveness: &str) -> serde_json::Value {
        serde_json::json!({ "exchange": {
            "place": "e", "fault": null, "failures": 0, "ignored": 0, "duplicate_hosts": 0,
            "peers": [{ "host": "b", "liveness": liveness, "age_s": 0.1, "window": null,
                        "shares": 1, "latency_ms": null }],
        } })
    }

    #[test]
    fn a_host_comes_is_silent_returns_and_leaves() {
        let looks = ["unproven", "live", "live", "stale", "gone", "live", "left", "live"].map(host);
        let kinds = ["appeared", "silent", "returned", "left", "returned"];
        assert_eq!(said(&looks), kinds.map(|kind| format!("host_{kind}")));
    }

    #[test]
    fn a_host_that_is_looked_at_while_its_new_run_is_unproven_returns() {
        let looks = ["live", "stale", "unproven", "live", "unproven", "live"].map(host);
        let kinds = ["appeared", "silent", "returned"];
        assert_eq!(said(&looks), kinds.map(|kind| format!("host_{kind}")));
    }

    #[test]
    fn an_objective_is_said_when_it_begins_and_ends() {
        let objective = |of: &str| {
            serde_json::json!({ "objective": {
                "of": of, "own_ms": 30.0, "others_iops_before": null, "others_iops_now": null,
            } })
        };
        let looks = [objective("disk db"), objective("disk db"), serde_json::json!({})];
        assert_eq!(said(&looks), ["objective_in_force", "objective_over"]);
    }

    #[test]
    fn a_disk_that_is_held_is_said_once_and_again_after_a_pause() {
        let disk = |overdue: u64| {
            let none = serde_json::json!({ "ios": 0, "bytes": 0 });
            let latency = serde_json::json!({ "buckets": [] });
            serde_json::json!({ "disks": [{
                "name": "vm", "shares": 1, "errors": 0, "others": 0, "overdue": overdue,
                "reads": none, "writes": none, "held": latency, "device": latency, "total": latency,
            }] })
        };
        let often: Vec<_> = (0..50).map(disk).collect();
        assert_eq!(said(&often), ["held_too_long"]);
        let mut apart = vec![disk(1)];
        apart.extend(vec![disk(1); QUIET as usize + 1]);
        apart.push(disk(2));
        assert_eq!(said(&apart), ["held_too_long", "held_too_long"]);
    }
}
