//! `/api/v1/state`, from the status and from the rates of the last second.

use parda_api::{
    self as api, Disk, DiskLimits, DiskRates, Exchange, Host, Limit, Role, Steer, SteeredVm,
    Threshold, ValueFrom, Volume,
};

use super::values::{of, of_disk};
use crate::events::now_ms;
use crate::history::{Recent, disk_keys, rounded, short, vm_keys};
use crate::settings::SettingsStatus;
use crate::status::{self, DiskStatus, SettingsFrom, Status, SteerStatus, VolumeStatus};

/// The state. `recent`: rates of a volume in the last second.
pub(super) fn state(status: Status, recent: impl Fn(&str) -> Recent) -> api::State {
    let Status {
        host,
        version,
        pid,
        uptime_s,
        policy,
        http,
        pages,
        volumes,
        reload,
        tokens_fault: _,
    } = status;
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
        reload_refused: reload.and_then(|reload| reload.refused),
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
    let others = status.exchange.iter().flat_map(|exchange| exchange.peers.clone());
    let hosts: Vec<Host> = status.own.clone().into_iter().chain(others).collect();
    let of_share = hosts.first().and_then(|own| own.of_share);
    Volume {
        disks: disks(status.disks, recent, status.settings.as_ref(), of_share),
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
        outsider: status.outsider,
        threshold_cost: status.threshold_cost,
        held: status.held,
        beta: rounded(status.beta),
        shares: status.shares,
        active_shares: rounded(status.active_shares),
        iops: short(recent.all.map(|rates| rates.iops)),
        bytes_per_s: short(recent.all.map(|rates| rates.bytes)),
        hosts,
        ignored: status.exchange.as_ref().map_or(Vec::new(), |it| it.leaves_out.clone()),
        tenants: status.tenants,
        steer: status.steer.map(|steer| steered(steer, recent)),
        exchange: status.exchange.map(|exchange| Exchange {
            one_way: exchange.one_way(),
            silence: exchange.silence,
            place: exchange.place,
            fault: exchange.fault.or(exchange.duplicate),
            period_s: short(exchange.period_s),
            slowed: exchange.slowed,
        }),
    }
}

fn origin(settings: &SettingsFrom, key: &str) -> ValueFrom {
    settings.get(key).copied().unwrap_or_default()
}

/// Part of a disk in the quantity that shares divide. The quantity is outstanding IOs, or slots per second with reads and writes of its
/// mean size.
fn divided(settings: Option<&SettingsStatus>, did: &DiskRates) -> Option<f64> {
    let Some(costs) = settings.and_then(|settings| settings.costs) else { return did.outstanding };
    let size = did.bytes_per_s? / did.iops?.max(1.0);
    Some(costs.slots([did.reads_per_s?, did.writes_per_s?].map(|ios| (ios, ios * size))))
}

/// Disks of a volume. `settings`: what shares divide; `of_share`: what this host has of its share.
fn disks(
    disks: Vec<DiskStatus>,
    recent: &Recent,
    settings: Option<&SettingsStatus>,
    of_share: Option<f64>,
) -> Vec<Disk> {
    let keys = disk_keys(&disks).into_iter().zip(disks);
    let mut disks: Vec<Disk> = keys
        .map(|(key, status)| {
            let did = recent.disks.get(&key).copied().unwrap_or_default();
            disk(key, status, did)
        })
        .collect();
    let is_held = |disk: &&mut Disk| disk.did.limited_by.is_some_and(Limit::is_held);
    let mut held: Vec<_> = disks.iter_mut().filter(is_held).collect();
    let sum = |of: &dyn Fn(&Disk) -> f64| held.iter().map(|disk| of(disk)).sum::<f64>();
    let had_by = |disk: &Disk| divided(settings, &disk.did).unwrap_or(0.0);
    let iops = sum(&|disk| disk.did.iops.unwrap_or(0.0));
    let shares = sum(&|disk| f64::from(disk.shares));
    let had: Vec<_> = held.iter().map(|disk| (had_by(disk), f64::from(disk.shares))).collect();
    for (disk, of_share) in held.iter_mut().zip(status::of_share(&had, of_share)) {
        let part = f64::from(disk.shares) / shares;
        disk.did.entitled_iops = Some(rounded(iops * part));
        disk.did.of_share = of_share;
    }
    disks
}

fn disk(key: String, status: DiskStatus, did: DiskRates) -> Disk {
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
        slice: short(status.slice),
        errors: status.errors,
        guest_faults: status.guest_faults,
        client_faults: status.client_faults,
        did,
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
            settings_from: vm.settings_from,
            settings: of(&vm.settings),
            limited_by: vm.limited_by,
            iops: short(rates.map(|rates| rates.iops)),
            bytes_per_s: short(rates.map(|rates| rates.bytes)),
            pending: rounded(vm.pending),
        }
    });
    Steer {
        vms: vms.collect(),
        device: status.device,
        fault: status.fault,
        depth: status.depth,
        patterns_without_vm: status.patterns_without_vm,
        vms_without_pattern: status.vms_without_pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parda_control::{Costs, Settings};

    /// Parts of held disks of 1000 and 500 shares in the divided quantity: IOs of the second take twice as long, and are twice as large.
    fn held(settings: Option<&SettingsStatus>) -> [Option<f64>; 2] {
        let (iops, bytes) = ([200.0, 100.0], 1e6);
        let disk = |name: &str, shares: u32| DiskStatus {
            name: name.to_owned(),
            shares,
            ..DiskStatus::default()
        };
        let did = |at: usize| DiskRates {
            iops: Some(iops[at]),
            bytes_per_s: Some(bytes),
            reads_per_s: Some(iops[at]),
            writes_per_s: Some(0.0),
            outstanding: Some(iops[at] * [0.01, 0.02][at]),
            limited_by: Some(Limit::Slice),
            ..DiskRates::default()
        };
        let recent = Recent {
            disks: [("a".to_owned(), did(0)), ("b".to_owned(), did(1))].into(),
            ..Recent::default()
        };
        let all = disks(vec![disk("a", 1000), disk("b", 500)], &recent, settings, Some(0.9));
        [all[0].did.of_share, all[1].did.of_share]
    }

    #[test]
    fn a_disk_has_of_its_share_what_shares_divide() {
        let of = |costs| {
            let settings = Settings { costs: Some(costs), ..Settings::default() };
            held(Some(&SettingsStatus::new(settings, Vec::new())))
        };
        assert_eq!(held(None), [Some(0.675), Some(1.35)], "two IOs outstanding each");
        assert_eq!(of(Costs::IOPS), [Some(0.9), Some(0.9)]);
        assert_eq!(of(Costs::BYTES), [Some(0.675), Some(1.35)], "as many bytes each");
    }
}
