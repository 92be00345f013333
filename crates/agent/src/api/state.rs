//! `/api/v1/state`, from the status and from the rates of the last second.

use parda_api::{
    self as api, Disk, DiskLimits, Exchange, Host, Limit, Outsider, Role, Steer, SteeredVm,
    Threshold, ValueFrom, Volume,
};

use super::values::of_disk;
use crate::events::now_ms;
use crate::history::{DiskRecent, Recent, disk_keys, rounded, vm_keys};
use crate::status::{
    DiskStatus, OutsiderStatus, PeerStatus, SettingsFrom, Status, SteerStatus, VolumeStatus,
};

/// The state. `recent`: rates of a volume in the last second.
pub(super) fn state(status: Status, recent: impl Fn(&str) -> Recent) -> api::State {
    let Status { host, version, pid, uptime_s, policy, http, volumes, tokens_fault: _ } = status;
    let volumes = volumes.into_iter().map(|status| {
        let recent = recent(&status.name);
        volume(status, &recent)
    });
    api::State {
        host,
        version,
        pid,
        uptime_s: (uptime_s * 10.0).round() / 10.0,
        now_ms: now_ms(),
        role: Role::default(),
        policy,
        http,
        volumes: volumes.collect(),
    }
}

fn volume(mut status: VolumeStatus, recent: &Recent) -> Volume {
    let most: Vec<_> = status.disks.iter().map(|disk| status.at_most(disk)).collect();
    status.disks.iter_mut().zip(most).for_each(|(disk, most)| disk.slice = most);
    let threshold = Threshold {
        ms: rounded(status.latency_threshold_ms),
        from: status.threshold_from(),
        objective_of: status.objective.map(|objective| objective.of),
    };
    let others = status.exchange.iter().flat_map(|exchange| &exchange.peers);
    let hosts = status.own.iter().map(|own| host(own, true));
    let hosts = hosts.chain(others.map(|peer| host(peer, false))).collect();
    Volume {
        disks: disks(status.disks, recent),
        settings_from: status.settings_from,
        name: status.name,
        pool: status.pool,
        mode: status.mode.to_string(),
        fault: status.fault,
        threshold,
        latency_ms: short(status.cluster_latency_ms),
        own_latency_ms: short(status.own.as_ref().and_then(|own| own.latency_ms)),
        source: status.source.to_string(),
        window: short(status.window),
        window_max: status.window_max,
        outstanding: rounded(status.outstanding),
        outsider: status.outsider.as_ref().map(outsider),
        held: status.held,
        beta: rounded(status.beta),
        shares: status.shares,
        active_shares: rounded(status.active_shares),
        iops: short(recent.all.map(|rates| rates.iops)),
        bytes_per_s: short(recent.all.map(|rates| rates.bytes)),
        hosts,
        steer: status.steer.map(|steer| steered(steer, recent)),
        exchange: status.exchange.map(|exchange| Exchange {
            place: exchange.place,
            fault: exchange.fault.or(exchange.duplicate),
            period_s: short(exchange.period_s),
            slowed: exchange.slowed,
        }),
    }
}

fn outsider(found: &OutsiderStatus) -> Outsider {
    Outsider {
        outstanding: rounded(found.outstanding),
        part: rounded(found.part),
        latency_ms: rounded(found.latency_ms),
        usual_ms: rounded(found.usual_ms),
        periods: found.periods,
        factor: rounded(found.factor),
    }
}

/// A number to four digits.
fn short(number: Option<f64>) -> Option<f64> {
    number.map(rounded)
}

fn host(peer: &PeerStatus, own: bool) -> Host {
    Host {
        name: peer.host.clone(),
        own,
        liveness: peer.liveness.to_string(),
        age_s: rounded(peer.age_s),
        window: short(peer.window),
        would_be: short(peer.would_be),
        shares: peer.shares,
        active_shares: rounded(peer.active_shares),
        latency_ms: short(peer.latency_ms),
        latency_threshold_ms: short(peer.latency_threshold_ms),
        iops: short(peer.iops),
        bytes_per_s: short(peer.bytes_per_s),
        outstanding: rounded(peer.outstanding),
        asks_ms: short(peer.asks_ms),
    }
}

fn origin(settings: &SettingsFrom, key: &str) -> ValueFrom {
    settings.get(key).copied().unwrap_or_default()
}

fn disks(disks: Vec<DiskStatus>, recent: &Recent) -> Vec<Disk> {
    let keys = disk_keys(&disks);
    let did: Vec<_> = keys.iter().map(|key| recent.disks.get(key).copied()).collect();
    let held = |did: &DiskRecent| matches!(did.limit, Limit::Slice | Limit::WindowMax);
    let slice = |did: &Option<DiskRecent>| did.filter(held);
    // Sums of IOPS and shares over the disks that are limited by their slices or the host's window.
    let (together, shares) =
        disks.iter().zip(&did).fold((0.0, 0.0), |(iops, shares), (disk, did)| {
            slice(did).map_or((iops, shares), |did| {
                (iops + did.rates.iops, shares + f64::from(disk.shares))
            })
        });
    let each = keys.into_iter().zip(disks).zip(did).map(|((key, status), did)| {
        let entitled = slice(&did).map(|_| together * f64::from(status.shares) / shares);
        disk(key, status, did, entitled)
    });
    each.collect()
}

fn disk(key: String, status: DiskStatus, did: Option<DiskRecent>, entitled: Option<f64>) -> Disk {
    let rate = |of: fn(&DiskRecent) -> f64| did.as_ref().map(of).map(rounded);
    let mean = |of: fn(&DiskRecent) -> Option<f64>| short(did.as_ref().and_then(of));
    Disk {
        key,
        name: status.name,
        listen: status.listen,
        state: status.state.to_string(),
        fault: status.fault,
        from: status.from,
        drain: status.drain,
        clients: status.clients,
        shares: status.shares,
        shares_from: origin(&status.settings_from, "shares"),
        settings_from: status.settings_from,
        settings: of_disk(&status.settings, status.drain),
        limits: DiskLimits { burst: status.burst },
        latency_target_ms: status.latency_target.map(|target| target.target_ms),
        iops: rate(|did| did.rates.iops),
        bytes_per_s: rate(|did| did.rates.bytes),
        reads_per_s: rate(|did| did.reads),
        writes_per_s: rate(|did| did.writes),
        device_ms: mean(|did| did.device_ms),
        held_ms: mean(|did| did.held_ms),
        device_p99_ms: mean(|did| did.p99_ms),
        outstanding: rate(|did| did.at_a_time(did.device_ms)),
        waiting: rate(|did| did.at_a_time(did.held_ms)),
        slice: short(status.slice),
        errors: status.errors,
        limited_by: did.map(|did| did.limit),
        entitled_iops: short(entitled),
    }
}

fn steered(status: SteerStatus, recent: &Recent) -> Steer {
    let vms = vm_keys(&status.vms).into_iter().zip(status.vms).map(|(key, vm)| {
        let rates = recent.vms.get(&key);
        SteeredVm {
            key,
            name: vm.name,
            cgroup: vm.cgroup,
            shares: vm.shares,
            shares_from: origin(&vm.settings_from, "shares"),
            iops: short(rates.map(|rates| rates.iops)),
            bytes_per_s: short(rates.map(|rates| rates.bytes)),
            pending: rounded(vm.pending),
        }
    });
    let (device, fault, depth) = (status.device, status.fault, status.depth);
    Steer { device, fault, depth, vms: vms.collect() }
}
