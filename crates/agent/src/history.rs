//! The last hour of all volumes, second by second, in bounded memory.
//!
//! A thread of its own looks at the agent once a second, on whole seconds of the host's clock. A value takes two bytes; a minute in which a
//! disk did nothing takes a few bytes in all. Values of a second without a look are not known.

mod answer;
mod quantity;
mod recent;
mod sampler;
mod series;
mod watch;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use parda_exchange::Liveness;

use crate::events::now_ms;
use crate::locked::locked;
use crate::status::{Status, VolumeStatus};
use quantity::packed;
use recent::Before;
use series::Series;
use watch::Watch;

pub(crate) use quantity::{rounded, short};
pub(crate) use recent::Recent;
pub use recent::{disk_keys, vm_keys};
pub(crate) use sampler::Sampler;

/// Time for which a second's values are kept, in seconds.
const HOUR: u64 = 3600;

/// The last hour of all volumes, as far as it is known.
pub(crate) struct History {
    calendar: Calendar,
    volumes: Mutex<BTreeMap<String, Kept>>,
}

/// The last hour of a volume.
#[derive(Default)]
struct Kept {
    volume: Series<8>,
    /// Disks, or VMs of a steered device.
    disks: BTreeMap<String, Series<6>>,
    hosts: BTreeMap<String, Series<3>>,
    before: Before,
    recent: Recent,
    watch: Watch,
}

impl History {
    pub(crate) fn new() -> History {
        History { calendar: Calendar::new(), volumes: Mutex::default() }
    }

    /// Activity of a volume in the last second.
    pub(crate) fn recent(&self, volume: &str) -> Recent {
        locked(&self.volumes).get(volume).map(|kept| kept.recent.clone()).unwrap_or_default()
    }

    /// Adds the values of a second that has just ended. `seconds`: time since the look before.
    fn take(&self, second: u64, seconds: f64, status: &Status) {
        let mut volumes = locked(&self.volumes);
        for volume in &status.volumes {
            volumes.entry(volume.name.clone()).or_default().take(second, seconds, volume);
        }
        let since = second.saturating_sub(HOUR);
        volumes.retain(|name, kept| {
            kept.disks.retain(|_, series| !series.is_over(since));
            kept.hosts.retain(|_, series| !series.is_over(since));
            !kept.volume.is_over(since) || status.volumes.iter().any(|v| v.name == *name)
        });
    }
}

impl Kept {
    fn take(&mut self, second: u64, seconds: f64, now: &VolumeStatus) {
        let keys = disk_keys(&now.disks);
        self.recent = self.before.recent(now, &keys, seconds);
        self.watch.look(now, &keys);
        let rates = self.recent.all;
        let runs = now.fault.is_none();
        let values = [
            now.window.filter(|_| runs),
            now.cluster_latency_ms.filter(|_| runs),
            now.own.as_ref().filter(|_| runs).and_then(|own| own.latency_ms),
            Some(now.latency_threshold_ms),
            rates.map(|rates| rates.iops),
            rates.map(|rates| rates.bytes),
            runs.then_some(now.outstanding),
            runs.then_some(now.held as f64),
        ];
        self.volume.push(second, values.map(packed));
        for (key, disk) in keys.into_iter().zip(&now.disks) {
            // A disk that was there at no look before has no rates yet.
            let did = self.recent.disks.get(&key).copied().unwrap_or_default();
            let slice = now.at_most(disk).filter(|_| did.device_ms.is_some());
            let (iops, bytes, held) = (did.iops, did.bytes_per_s, did.held_ms);
            // An idle disk has none outstanding.
            let values = [iops, bytes, did.device_ms, held, did.outstanding, slice];
            self.disks.entry(key).or_default().push(second, values.map(packed));
        }
        let vms = now.steer.as_ref().map_or(&[][..], |steer| &steer.vms);
        for (key, vm) in vm_keys(vms).into_iter().zip(vms) {
            let rates = self.recent.vms.get(&key);
            let (iops, bytes) = (rates.map(|rates| rates.iops), rates.map(|rates| rates.bytes));
            let values = [iops, bytes, None, None, Some(vm.pending), None];
            self.disks.entry(key).or_default().push(second, values.map(packed));
        }
        let peers = now.exchange.iter().flat_map(|exchange| &exchange.peers);
        for peer in peers.filter(|peer| peer.liveness == Liveness::Live) {
            let values = [peer.window, peer.latency_ms, peer.iops].map(packed);
            self.hosts.entry(peer.name.clone()).or_default().push(second, values);
        }
    }
}

/// Seconds since 1970 that neither jump nor go back. When the host's clock is set, [`Calendar::correction`] is the difference.
struct Calendar {
    started: Instant,
    started_ms: u64,
}

impl Calendar {
    fn new() -> Calendar {
        Calendar { started: Instant::now(), started_ms: now_ms() }
    }

    /// Milliseconds of this calendar.
    fn now(&self) -> u64 {
        let passed = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.started_ms.saturating_add(passed)
    }

    /// Time until the next whole second.
    fn until_next_second(&self) -> Duration {
        Duration::from_millis(1000 - self.now() % 1000)
    }

    /// Whole seconds that the host's clock is ahead of this calendar.
    fn correction(&self) -> i64 {
        let ahead = i128::from(now_ms()) - i128::from(self.now());
        i64::try_from((ahead + 500).div_euclid(1000)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
