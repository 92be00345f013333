//! Looks at an agent, second by second, and the view of a volume that is computed from them.

use std::collections::BTreeMap;
use std::time::Duration;

use parda_agent::latency::Latency;
use parda_agent::status::{DiskStatus, HeldByStatus, Status, VolumeStatus};
use parda_api::{Host, Limit, Outsider, Tenant};
use parda_control::ModeName;
use parda_exchange::Liveness;
use parda_explain::{
    ExplainedPeer, ExplainedVm, ExplainedVolume, HeldParts, Holding, VmLimit, VmTenant, spread,
};
use parda_terminal::Failure;

use crate::limits::{self, Did};
use crate::status::recent::{Recent, mean};

/// Smallest and largest number of looks after the first.
const LOOKS: std::ops::RangeInclusive<u64> = 4..=60;

/// Fraction of a host's IOs that are assumed to be faster than the service time, where no probe was given.
const FASTEST: f64 = 0.05;

/// All looks at a volume.
pub(crate) struct Looks {
    host: String,
    recent: Recent,
    volume: usize,
    /// The volume at each look after the first, without distributions.
    states: Vec<VolumeStatus>,
    /// For each look after the first, each disk at its index in the status.
    disks: Vec<Vec<Look>>,
}

/// A disk at a look.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// Mean pending IOs since the look before.
    pending: f64,
    /// Slots that it may have outstanding.
    slice: Option<f64>,
}

impl Looks {
    /// Looks at the volume for the time `over`.
    pub(crate) fn take(
        first: Status,
        volume: &str,
        over: Duration,
        look: impl Fn() -> Result<Status, Failure>,
    ) -> Result<Looks, Failure> {
        let count = over.as_secs().clamp(*LOOKS.start(), *LOOKS.end());
        let (mut before, mut states, mut disks) = (first.clone(), Vec::new(), Vec::new());
        for _ in 0..count {
            std::thread::sleep(over / u32::try_from(count).unwrap_or(1));
            let now = look()?;
            let step = Recent::between(&before, now.clone());
            let at = place(&step, &first, volume)?;
            let mut state = step.status.volumes[at].clone();
            let look = |disk| Look { pending: pends(&step, disk), slice: disk.slice };
            disks.push(state.disks.iter().map(look).collect());
            state.disks.clear();
            states.push(state);
            before = now;
        }
        let recent = Recent::between(&first, before);
        let volume = place(&recent, &first, volume)?;
        let names = |status: &Status| -> Vec<String> {
            let disks = &status.volumes[volume].disks;
            disks.iter().map(|disk| format!("{} {}", disk.name, disk.listen)).collect()
        };
        // Looks identify a disk by its index.
        if first.volumes.get(volume).is_none() || names(&first) != names(&recent.status) {
            return Err(Failure::new(
                "disks came or went while the agent was looked at: ask again",
            ));
        }
        Ok(Looks { host: first.host, recent, volume, states, disks })
    }

    fn last(&self) -> &VolumeStatus {
        &self.recent.status.volumes[self.volume]
    }

    /// Load on the array that is not under control, at the last look.
    pub(crate) fn outsider(&self) -> Option<Outsider> {
        self.last().outsider
    }

    /// Mean over the looks of what they know.
    fn mean(&self, of: impl Fn(&VolumeStatus) -> Option<f64>) -> Option<f64> {
        mean(self.states.iter().filter_map(of))
    }

    /// Service time, estimated from the fastest IOs of this host, in milliseconds.
    pub(crate) fn service_ms(&self) -> f64 {
        let disks = self.last().disks.iter().filter(|disk| !disk.page_cache);
        let all = disks.fold(Latency::default(), |all, disk| all.plus(&disk.device));
        let (rank, mut seen) = (FASTEST * all.count() as f64, 0.0);
        let bucket = all.buckets.iter().find(|bucket| {
            seen += bucket.1 as f64;
            seen >= rank
        });
        bucket.map_or(0.0, |bucket| bucket.0 as f64 / 1e6)
    }

    /// The view of the volume.
    pub(crate) fn view(&self) -> ExplainedVolume {
        let volume = self.last();
        let window = self.mean(|state| state.window);
        let holding = match (volume.mode, window) {
            (ModeName::Parda, _) => Holding::Slices { window_max: volume.window_max },
            (ModeName::Published | ModeName::Static, Some(window)) => Holding::Window { window },
            _ => Holding::Nothing,
        };
        ExplainedVolume {
            host: self.host.clone(),
            seconds: self.recent.seconds,
            holding,
            threshold_ms: volume.latency_threshold_ms,
            latency_ms: self.mean(|state| state.cluster_latency_ms),
            vms: volume.disks.iter().enumerate().map(|(at, disk)| self.vm(at, disk)).collect(),
            peers: self.peers(),
        }
    }

    fn vm(&self, at: usize, disk: &DiskStatus) -> ExplainedVm {
        let (ios, bytes) = (disk.reads.ios + disk.writes.ios, disk.reads.bytes + disk.writes.bytes);
        let (held_ms, device_ms) = (disk.held.summary().mean, disk.device.summary().mean);
        let iops = self.recent.rate(ios);
        let slices = self.disks.iter().filter_map(|disks| disks.get(at)?.slice);
        ExplainedVm {
            name: disk.name.clone(),
            shares: f64::from(disk.shares),
            iops,
            bytes_per_s: self.recent.rate(bytes),
            others_per_s: self.recent.rate(disk.others),
            held_ms,
            held_by: held_by(disk),
            held_now: disk.held_now as f64,
            limited_now: disk.limited_now as f64,
            limit: self.limit(disk),
            tenant: disk.settings.tenant.and_then(|name| self.tenant(&name)),
            device_ms,
            slots: slots(self.last(), disk),
            slice: mean(slices),
            spread: self.spread(at, iops, held_ms + device_ms),
        }
    }

    /// The limit of a disk, or of its tenant.
    fn limit(&self, disk: &DiskStatus) -> Option<VmLimit> {
        let words = limits::of_disk(&self.recent, self.last(), disk)?;
        let did = Did::of(&self.recent, disk);
        let own = disk.settings.limit.and_then(|limit| limits::nearest(&limit, &did));
        let own = own.filter(|(_, part)| *part > 0.0 && words.starts_with("its limit"));
        Some(VmLimit { iops: own.map(|(_, part)| did.ios[0] / part), words })
    }

    /// The tenant of this name, by the mean of its rates over the looks.
    fn tenant(&self, name: &str) -> Option<VmTenant> {
        let mean = |of: &dyn Fn(&Tenant) -> f64| {
            self.mean(|state| state.tenants.iter().find(|tenant| tenant.name == name).map(of))
        };
        let (iops, own_iops) = (mean(&|it| it.iops)?, mean(&|it| it.own_iops)?);
        let now = self.last().tenants.iter().find(|tenant| tenant.name == name);
        let limit_iops = now.and_then(|tenant| tenant.settings.get("limit")?.get("iops")?.as_f64());
        Some(VmTenant { name: name.to_owned(), iops, own_iops, limit_iops })
    }

    /// Spread of a disk's number of pending IOs from look to look.
    fn spread(&self, at: usize, iops: f64, latency_ms: f64) -> Option<f64> {
        let all: Option<Vec<f64>> =
            self.disks.iter().map(|disks| Some(disks.get(at)?.pending)).collect();
        let seconds = self.recent.seconds / self.disks.len() as f64;
        spread(&all?, iops * seconds, seconds, latency_ms)
    }

    /// Other hosts, each with means over the looks that have it.
    fn peers(&self) -> Vec<ExplainedPeer> {
        let mut hosts: BTreeMap<&str, Vec<&Host>> = BTreeMap::new();
        let all = self.states.iter().flat_map(|state| &state.exchange).flat_map(|e| &e.peers);
        let there = all.filter(|peer| matches!(peer.liveness, Liveness::Live | Liveness::Unproven));
        for peer in there {
            hosts.entry(&peer.name).or_default().push(peer);
        }
        let peer = |(host, seen): (&str, Vec<&Host>)| {
            let of =
                |value: fn(&Host) -> f64| mean(seen.iter().map(|peer| value(peer))).unwrap_or(0.0);
            let most = |limit: &Limit| {
                2 * seen.iter().filter(|peer| peer.limited_by == Some(*limit)).count() > seen.len()
            };
            let limited_by = [Limit::Slice, Limit::WindowMax, Limit::Depth].into_iter().find(most);
            ExplainedPeer {
                host: host.to_owned(),
                shares: of(|peer| f64::from(peer.shares)),
                active_shares: of(|peer| peer.active_shares),
                outstanding: of(|peer| peer.outstanding),
                iops: of(|peer| peer.iops.unwrap_or(0.0)),
                limited_by,
            }
        };
        hosts.into_iter().map(peer).collect()
    }
}

/// The index of a volume in a status, if the agent was not restarted since the first look.
fn place(recent: &Recent, first: &Status, name: &str) -> Result<usize, Failure> {
    if recent.since_start || recent.status.pid != first.pid {
        return Err(Failure::new("the agent was restarted while it was looked at: ask again"));
    }
    let gone = || Failure::new(format!("the volume {name} was removed while it was looked at"));
    recent.status.volumes.iter().position(|volume| volume.name == name).ok_or_else(gone)
}

/// Mean IOs that a disk had pending, by Little's law.
fn pends(recent: &Recent, disk: &DiskStatus) -> f64 {
    recent.at_a_time(&disk.held) + recent.at_a_time(&disk.device)
}

/// Parts of the time that a disk's IOs were held, if any was.
fn held_by(disk: &DiskStatus) -> Option<HeldParts> {
    let HeldByStatus { share_s, window_s, turn_s, limit_s } = disk.time_held_by;
    let all = share_s + window_s + turn_s + limit_s;
    let part = |seconds: f64| seconds / all;
    (all > 0.0).then(|| HeldParts {
        share: part(share_s),
        window: part(window_s),
        turn: part(turn_s),
        limit: part(limit_s),
    })
}

/// Slots that an IO of the disk costs in the mean.
fn slots(volume: &VolumeStatus, disk: &DiskStatus) -> f64 {
    let costs = volume.settings.as_ref().and_then(|settings| settings.costs);
    let ios = (disk.reads.ios + disk.writes.ios) as f64;
    let all = [&disk.reads, &disk.writes].map(|done| (done.ios as f64, done.bytes as f64));
    costs.filter(|_| ios > 0.0).map_or(1.0, |costs| costs.slots(all) / ios)
}
