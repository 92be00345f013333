//! Finds volumes that seem to lie on the same drives, as the latency of one follows the load on another. This is said, and nothing is done about it.

use std::collections::{BTreeMap, VecDeque};

use parda_control::same_drives::{Follows, Look, compare};
use parda_exchange::Liveness;

use super::quantity::rounded;
use crate::same_drives::{Found, SameDrivesStatus};
use crate::status::VolumeStatus;

/// Seconds that are compared: an hour.
const HOUR: usize = 3600;

/// Longest period of a volume that is compared. Rounds further apart hide how latency follows load.
const LONGEST_PERIOD_S: f64 = 2.0;

/// Looks at all volumes each second, and compares one pair of them.
pub(crate) struct Watch {
    /// Most seconds that are compared.
    longest: usize,
    /// The last seconds of each volume that can be compared.
    looks: BTreeMap<String, VecDeque<Look>>,
    /// Number of looks since the start.
    second: usize,
    found: Found,
}

impl Default for Watch {
    fn default() -> Watch {
        Watch { longest: HOUR, looks: BTreeMap::new(), second: 0, found: Found::default() }
    }
}

impl Watch {
    /// Takes in a second. Returns what is found, if that has changed.
    pub(crate) fn look(&mut self, volumes: &[VolumeStatus]) -> Option<&Found> {
        self.second += 1;
        let comparable = |volume: &&VolumeStatus| {
            let period = volume.exchange.as_ref().and_then(|exchange| exchange.period_s);
            volume.fault.is_none() && period.is_none_or(|period| period <= LONGEST_PERIOD_S)
        };
        let compared: Vec<_> = volumes.iter().filter(comparable).collect();
        // A volume that was away begins anew, so that looks at the same place are of the same second.
        self.looks.retain(|name, _| compared.iter().any(|volume| volume.name == *name));
        for volume in &compared {
            let looks = self.looks.entry(volume.name.clone()).or_default();
            looks.push_back(look(volume));
            if looks.len() > self.longest {
                looks.pop_front();
            }
        }
        let gone = self.forget(volumes);
        let new = pair(compared.len(), self.second)
            .is_some_and(|(one, other)| self.compare(compared[one], compared[other]));
        (gone || new).then_some(&self.found)
    }

    /// Compares two volumes. Returns whether something is found that was not known.
    fn compare(&mut self, one: &VolumeStatus, other: &VolumeStatus) -> bool {
        if one.pool.is_some() && one.pool == other.pool {
            return false;
        }
        let (Some(a), Some(b)) = (self.looks.get(&one.name), self.looks.get(&other.name)) else {
            return false;
        };
        let last = |looks: &VecDeque<Look>, other: &VecDeque<Look>| {
            let from = looks.len() - looks.len().min(other.len());
            looks.range(from..).copied().collect::<Vec<_>>()
        };
        let [forth, back] = compare(&last(a, b), &last(b, a));
        let whole = a.len().min(b.len()) == self.longest;
        let forth = self.take(&one.name, &other.name, forth, whole);
        let back = self.take(&other.name, &one.name, back, whole);
        forth || back
    }

    /// Takes in what was found of the latency of one volume and the load on another. What was sure once is said once, and stays until the volumes
    /// are of one pool or a whole hour has no evidence of it.
    fn take(&mut self, volume: &str, load: &str, follows: Option<Follows>, whole: bool) -> bool {
        if whole && !follows.as_ref().is_some_and(Follows::still_holds) {
            return self.withdraw(volume, load);
        }
        let Some(follows) = follows.filter(Follows::is_sure) else { return false };
        let found = self.found.entry(volume.to_owned()).or_default();
        let status = status(load, &follows);
        if let Some(known) = found.iter_mut().find(|known| known.volume == load) {
            *known = status;
            return true;
        }
        tracing::info!(
            volume,
            other = load,
            correlation = status.correlation,
            errors = status.errors,
            rise_ms = status.rise_ms,
            compared = status.compared,
            event = "same_drives",
            "latency follows the load on volume {load}: both seem to lie on the same drives. If they do, declare a pool \
             (docs/pools.md)"
        );
        found.push(status);
        true
    }

    /// Lets go of what the last hour does not show any more.
    fn withdraw(&mut self, volume: &str, load: &str) -> bool {
        let Some(found) = self.found.get_mut(volume) else { return false };
        let Some(at) = found.iter().position(|known| known.volume == load) else { return false };
        found.remove(at);
        if found.is_empty() {
            self.found.remove(volume);
        }
        tracing::info!(
            volume,
            other = load,
            event = "same_drives_no_more",
            "latency did not follow the load on volume {load} in the last hour: nothing says any more that both lie on the same drives"
        );
        true
    }

    /// Lets go of what is of volumes that are gone or of one pool now.
    fn forget(&mut self, volumes: &[VolumeStatus]) -> bool {
        let volume = |name: &str| volumes.iter().find(|volume| volume.name == name);
        let mut changed = false;
        self.found.retain(|name, found| {
            let before = found.len();
            let own = volume(name);
            found.retain(|other| match (own, volume(&other.volume)) {
                (Some(own), Some(other)) => own.pool.is_none() || own.pool != other.pool,
                _ => false,
            });
            changed |= found.len() != before;
            !found.is_empty()
        });
        changed
    }
}

fn status(volume: &str, follows: &Follows) -> SameDrivesStatus {
    SameDrivesStatus {
        volume: volume.to_owned(),
        correlation: rounded(follows.correlation),
        errors: rounded(follows.errors),
        rise_ms: rounded(follows.rise * 1e3),
        compared: follows.compared,
    }
}

/// The pair of so many volumes whose turn it is.
fn pair(volumes: usize, turn: usize) -> Option<(usize, usize)> {
    let pairs = volumes * volumes.saturating_sub(1) / 2;
    let mut nth = turn.checked_rem(pairs)?;
    for one in 0..volumes {
        let others = volumes - one - 1;
        if nth < others {
            return Some((one, one + 1 + nth));
        }
        nth -= others;
    }
    None
}

/// What all hosts say of a volume.
fn look(volume: &VolumeStatus) -> Look {
    let peers = volume.exchange.iter().flat_map(|exchange| &exchange.peers);
    let hosts = peers.filter(|peer| peer.liveness == Liveness::Live).chain(&volume.own);
    let (mut ios, mut waits, mut bytes, mut outstanding) = (0.0, 0.0, 0.0, 0.0);
    for host in hosts {
        let (iops, latency) = (host.iops.unwrap_or_default(), host.latency_ms.unwrap_or_default());
        ios += iops;
        waits += iops * latency / 1e3;
        bytes += host.bytes_per_s.unwrap_or_default();
        outstanding += host.outstanding;
    }
    let of_an_io = |sum: f64| (ios > 0.0).then(|| sum / ios);
    Look { latency: of_an_io(waits), outstanding, size: of_an_io(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A volume with so many outstanding IOs that take so long.
    fn volume(name: &str, pool: Option<&str>, outstanding: f64, latency_ms: f64) -> VolumeStatus {
        serde_json::from_value(serde_json::json!({
            "name": name, "pool": pool, "mode": "parda", "latency_threshold_ms": 30.0,
            "cluster_latency_ms": null, "source": "local", "window": null, "beta": 0.0,
            "shares": 0, "active_shares": 0.0, "outstanding": outstanding, "held": 0, "connections": 0,
            "ticks": 0, "exchange": null, "disks": [],
            "own": { "host": "h", "liveness": "live", "age_s": 0.0, "window": null, "shares": 1,
                     "latency_ms": latency_ms, "iops": 1000.0, "bytes_per_s": 8e6, "outstanding": outstanding },
        }))
        .unwrap()
    }

    /// What is found after so many seconds in which the load of b comes and goes, and a's latency follows it or not.
    fn found(
        watch: &mut Watch,
        seconds: u32,
        follows: f64,
        pools: [Option<&str>; 2],
    ) -> Vec<String> {
        let mut random = fastrand::Rng::with_seed(14);
        let mut names = Vec::new();
        for second in 0..seconds {
            let load = if (second / 7) % 2 == 0 { 2.0 } else { 30.0 } + random.f64();
            let own = 8.0 + 4.0 * random.f64();
            let latency = own + follows * load + random.f64();
            let volumes = [
                volume("a", pools[0], own, latency),
                volume("b", pools[1], load, 5.0 + random.f64()),
                volume("c", None, 1.0 + random.f64(), 5.0 + random.f64()),
            ];
            if let Some(found) = watch.look(&volumes) {
                let of = |(name, found): (&String, &Vec<SameDrivesStatus>)| {
                    found.iter().map(|other| format!("{name} {}", other.volume)).collect::<Vec<_>>()
                };
                names = found.iter().flat_map(of).collect();
            }
        }
        names
    }

    #[test]
    fn a_volume_whose_latency_follows_anothers_load_is_found_until_both_are_of_a_pool() {
        let mut watch = Watch::default();
        assert!(found(&mut watch, 200, 0.5, [None, None]).is_empty(), "too few changes");
        assert_eq!(found(&mut watch, 600, 0.5, [None, None]), ["a b"]);
        let rise = watch.found["a"][0].rise_ms;
        assert!((0.4..0.6).contains(&rise), "{rise} ms an IO");
        assert!(
            found(&mut watch, 600, 0.5, [Some("p"), Some("p")]).is_empty()
                && watch.found.is_empty()
        );
    }

    #[test]
    fn what_was_found_is_withdrawn_when_an_hour_does_not_show_it() {
        let mut watch = Watch { longest: 600, ..Watch::default() };
        assert_eq!(found(&mut watch, 590, 0.5, [None, None]), ["a b"]);
        found(&mut watch, 100, 0.0, [None, None]);
        assert!(watch.found.contains_key("a"), "most of the time still shows it");
        found(&mut watch, 600, 0.0, [None, None]);
        assert!(watch.found.is_empty());
        assert_eq!(found(&mut watch, 600, 0.5, [None, None]), ["a b"], "and may be found again");
    }

    #[test]
    fn a_volume_whose_latency_does_not_follow_is_not_found() {
        assert!(found(&mut Watch::default(), 2000, 0.0, [None, None]).is_empty());
    }

    #[test]
    fn all_pairs_have_their_turn() {
        assert_eq!((pair(0, 3), pair(1, 3)), (None, None));
        let mut pairs: Vec<_> = (6..12).filter_map(|turn| pair(4, turn)).collect();
        pairs.sort_unstable();
        assert_eq!(pairs, [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]);
    }
}
