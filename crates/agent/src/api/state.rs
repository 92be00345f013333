//! `/api/v1/state`, from the status and from the rates of the last second.

use parda_api::{
    self as api, Disk, DiskLimits, Exchange, Host, Limit, Outsider, Role, Steer, SteeredVm,
    Threshold, ValueFrom, Volume,
};

use parda_control::{Bounded, Proportional};
use parda_exchange::Liveness;

use super::values::of_disk;
use crate::events::now_ms;
use crate::history::{DiskRecent, Recent, disk_keys, rounded, vm_keys};
use crate::settings::SettingsStatus;
use crate::status::{
    DiskStatus, OutsiderStatus, PeerStatus, SettingsFrom, Status, SteerStatus, VolumeStatus,
};

/// The state. `recent`: rates of a volume in the last second.
pub(super) fn state(status: Status, recent: impl Fn(&str) -> Recent) -> api::State {
    let Status { host, version, pid, uptime_s, policy, http, pages, volumes, tokens_fault: _ } =
        status;
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
        pages,
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
    let all = status.own.iter().chain(others.clone());
    let mean = mean_per_share(all.filter(|host| host.liveness == Liveness::Live));
    let hosts = status.own.iter().map(|own| host(own, true, mean));
    let hosts: Vec<Host> = hosts.chain(others.map(|peer| host(peer, false, mean))).collect();
    let of_share = hosts.first().and_then(|own| own.of_share).unwrap_or(1.0);
    Volume {
        disks: disks(status.disks, recent, divided(status.settings.as_ref()), of_share),
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

/// Mean of what hosts have for each share, by their shares: of those that want more, and of those without control that have more than these.
/// `None` if there are fewer than two.
fn mean_per_share<'a>(hosts: impl Iterator<Item = &'a PeerStatus>) -> Option<f64> {
    let all = hosts.filter_map(|host| {
        let wants = host.bounded == Bounded::Slices;
        let shares = if wants { host.active_shares } else { f64::from(host.shares) };
        Some((host.per_share?, shares, wants))
    });
    let all: Vec<_> = all.collect();
    let mean = |above: f64| {
        let counted = all.iter().filter(|(per_share, _, wants)| *wants || *per_share > above);
        let sums = counted.fold((0, 0.0, 0.0), |(count, had, shares), (per_share, each, _)| {
            (count + 1, had + per_share * each, shares + each)
        });
        Some(sums)
            .filter(|(_, had, _)| *had > 0.0)
            .map(|(count, had, shares)| (count, had / shares))
    };
    let (_, of_those_that_want) = mean(f64::INFINITY)?;
    let (count, mean) = mean(of_those_that_want)?;
    (count > 1).then_some(mean)
}

fn host(peer: &PeerStatus, own: bool, mean_per_share: Option<f64>) -> Host {
    let live = peer.liveness == Liveness::Live;
    let wants = peer.bounded == Bounded::Slices;
    // Who is without control and has less may want no more.
    let counts = |(per_share, mean): &(f64, f64)| live && (wants || per_share > mean);
    let of_share = peer.per_share.zip(mean_per_share).filter(counts);
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
        limited_by: match peer.bounded {
            Bounded::Unsaid => None,
            Bounded::Nothing => Some(Limit::Depth),
            Bounded::Slices => Some(Limit::Slice),
            Bounded::Window => Some(Limit::WindowMax),
        },
        of_share: short(of_share.map(|(per_share, mean)| per_share / mean)),
    }
}

fn origin(settings: &SettingsFrom, key: &str) -> ValueFrom {
    settings.get(key).copied().unwrap_or_default()
}

/// What shares divide among disks: outstanding IOs, or throughput in the unit of the window.
fn divided(settings: Option<&SettingsStatus>) -> fn(&DiskRecent) -> f64 {
    match settings {
        Some(settings) if settings.fairness != "iops" => |did| did.rates.bytes,
        Some(settings) if settings.proportional == Proportional::Throughput => |did| did.rates.iops,
        _ => |did| did.at_a_time(did.device_ms),
    }
}

/// Disks of a volume. `divided`: what shares divide; `of_share`: what this host has of its share.
fn disks(
    disks: Vec<DiskStatus>,
    recent: &Recent,
    divided: fn(&DiskRecent) -> f64,
    of_share: f64,
) -> Vec<Disk> {
    let keys = disk_keys(&disks);
    let did: Vec<_> = keys.iter().map(|key| recent.disks.get(key).copied()).collect();
    let held = |did: &DiskRecent| matches!(did.limit, Limit::Slice | Limit::WindowMax);
    let slice = |did: &Option<DiskRecent>| did.filter(held);
    // Sums over the disks that are limited by their slices or the host's window.
    let (iops, had, shares) =
        disks.iter().zip(&did).fold((0.0, 0.0, 0.0), |(iops, had, shares), (disk, did)| {
            slice(did).map_or((iops, had, shares), |did| {
                (iops + did.rates.iops, had + divided(&did), shares + f64::from(disk.shares))
            })
        });
    let each = keys.into_iter().zip(disks).zip(did).map(|((key, status), did)| {
        let part = f64::from(status.shares) / shares;
        let entitled = Entitled {
            iops: short(slice(&did).map(|_| iops * part)),
            of_share: short(
                slice(&did).filter(|_| had > 0.0).map(|did| of_share * divided(&did) / had / part),
            ),
        };
        disk(key, status, did, entitled)
    });
    each.collect()
}

/// What a disk's shares give it, and what it has of that.
struct Entitled {
    iops: Option<f64>,
    of_share: Option<f64>,
}

fn disk(key: String, status: DiskStatus, did: Option<DiskRecent>, entitled: Entitled) -> Disk {
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
        entitled_iops: entitled.iops,
        of_share: entitled.of_share,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Rates;

    /// A host with so many active shares that has so much for each of them.
    fn peer(active_shares: f64, per_share: Option<f64>, liveness: &str) -> PeerStatus {
        serde_json::from_value(serde_json::json!({
            "host": "h", "liveness": liveness, "age_s": 0.0, "window": 8.0, "shares": 1000, "latency_ms": 25.0,
            "bounded": "slices", "active_shares": active_shares, "per_share": per_share,
        }))
        .unwrap()
    }

    #[test]
    fn a_host_is_compared_with_the_live_hosts_that_want_more() {
        let all = [peer(1000.0, Some(0.01), "live"), peer(3000.0, Some(0.03), "live")];
        let mean = mean_per_share(all.iter());
        let of_share: Vec<_> = all.iter().map(|peer| host(peer, false, mean).of_share).collect();
        assert_eq!(of_share, [Some(0.4), Some(1.2)]);
        let left = peer(1000.0, Some(0.01), "left");
        assert_eq!(host(&left, false, mean).of_share, None);
        let alone = [peer(1000.0, Some(0.01), "live"), peer(500.0, None, "live")];
        assert_eq!(mean_per_share(alone.iter()), None, "nobody to compare with");
    }

    /// What held disks of 1000 and 500 shares have of them: IOs of the second take twice as long, and are twice as large.
    fn held(divided: fn(&DiskRecent) -> f64) -> [Option<f64>; 2] {
        let (iops, bytes) = ([200.0, 100.0], 1e6);
        let disk = |name: &str, shares: u32| -> DiskStatus {
            serde_json::from_value(serde_json::json!({
                "name": name, "shares": shares, "errors": 0, "others": 0,
                "reads": { "ios": 0, "bytes": 0 }, "writes": { "ios": 0, "bytes": 0 },
                "time_held_s": 0.0, "time_at_device_s": 0.0,
                "held": { "buckets": [] }, "device": { "buckets": [] }, "total": { "buckets": [] },
            }))
            .unwrap()
        };
        let did = |at: usize| DiskRecent {
            rates: Rates { iops: iops[at], bytes },
            reads: iops[at],
            writes: 0.0,
            device_ms: Some([10.0, 20.0][at]),
            held_ms: Some(10.0),
            p99_ms: None,
            limit: Limit::Slice,
        };
        let recent = Recent {
            disks: [("a".to_owned(), did(0)), ("b".to_owned(), did(1))].into(),
            ..Recent::default()
        };
        let all = disks(vec![disk("a", 1000), disk("b", 500)], &recent, divided, 0.9);
        [all[0].of_share, all[1].of_share]
    }

    #[test]
    fn a_host_without_control_counts_where_it_has_more_than_its_share() {
        let free = |per_share| PeerStatus {
            bounded: Bounded::Nothing,
            ..peer(0.0, Some(per_share), "live")
        };
        let of = |greedy: PeerStatus| {
            let all = [peer(1000.0, Some(0.01), "live"), greedy];
            let mean = mean_per_share(all.iter());
            all.map(|peer| host(&peer, false, mean).of_share)
        };
        assert_eq!(of(free(0.03)), [Some(0.5), Some(1.5)]);
        assert_eq!(of(free(0.001)), [None, None], "it may want no more");
    }

    #[test]
    fn a_disk_has_of_its_share_what_shares_divide() {
        let settings = |fairness: &str, proportional| SettingsStatus {
            fairness: fairness.to_owned(),
            proportional,
            signal: parda_control::latency::Signal::All,
            differ: Vec::new(),
        };
        let of = |settings: Option<&SettingsStatus>| held(divided(settings));
        assert_eq!(of(None), [Some(0.675), Some(1.35)], "two IOs outstanding each");
        let iops = settings("iops", Proportional::Throughput);
        assert_eq!(of(Some(&iops)), [Some(0.9), Some(0.9)]);
        let bytes = settings("8192 bytes", Proportional::Concurrency);
        assert_eq!(of(Some(&bytes)), [Some(0.675), Some(1.35)], "as many bytes each");
    }
}
