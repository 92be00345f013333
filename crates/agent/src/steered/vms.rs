//! The VMs of a steered volume: the demand of each, and the split of the host's window.

use std::collections::BTreeMap;
use std::path::Path;

use parda_api::Limit;
use parda_control::{Decision, Shares, Span, TenantId, VmGrant, VmPeriod};
use parda_steer::cgroup::{
    Begun, CapReason, CgroupVms, Demands, HostAllowance, IoDemand, Means, Sharing, VmKey, VmsChange,
};
use parda_steer::measure::{DeviceReading, Method};
use parda_steer::{DevNum, Device, Journal};

use super::SteerError;
use super::attached::Look;
use super::missed::Missed;
use crate::config::{self, Steer};
use crate::news::is_news;
use crate::status::{SettingsFrom, SteeredVmStatus};

/// Demand of a VM whose queue is full, as a multiple of its visible IOs.
const UNSEEN: f64 = 2.0;

/// The VMs of this host.
pub(super) struct HostVms {
    /// Shares of the host, where it is one VM.
    one: Shares,
    /// VMs that are cgroups. None where the host is one.
    groups: Option<Box<Groups>>,
    /// Fault of the caps or weights, as it was last logged. If the host is one VM, the reason why configured limits are not in force.
    pub(super) fault: Option<String>,
}

/// VMs that are cgroups.
struct Groups {
    vms: CgroupVms,
    /// `None` while no caps or weights are to be set.
    sharing: Option<Sharing>,
    demands: Demands,
    missed: Missed,
    /// IOs and bytes of each VM since it was first seen.
    done: BTreeMap<VmKey, (u64, u64)>,
}

/// Notes on the VMs of a configuration, for `parda check`: VMs may come later.
pub(super) fn examine(vms: &config::Vms, device: DevNum) -> Vec<String> {
    let config::Vms::Groups(patterns) = vms else { return Vec::new() };
    let patterns: Vec<_> = patterns.iter().map(config::SteeredVm::pattern).collect();
    match CgroupVms::find(Path::new("/"), &patterns) {
        Ok(vms) => Missed::of(&vms, device).notes(),
        Err(error) => vec![error.to_string()],
    }
}

impl HostVms {
    pub(super) fn start(volume: &str, vms: &config::Vms) -> HostVms {
        let patterns = match vms {
            config::Vms::Host(one) => return HostVms { one: *one, groups: None, fault: None },
            config::Vms::Groups(vms) => vms,
        };
        let patterns: Vec<_> = patterns.iter().map(config::SteeredVm::pattern).collect();
        let one = Shares(patterns.iter().map(|p| p.shares.0).fold(0, u32::saturating_add));
        match CgroupVms::find(Path::new("/"), &patterns) {
            Ok(vms) => {
                for (key, vm) in vms.iter() {
                    tracing::info!(volume, vm = vm.name, cgroup = %key, shares = vm.shares.0, "VM");
                }
                let (demands, done) = (Demands::default(), BTreeMap::new());
                let missed = Missed::default();
                let groups = Some(Box::new(Groups { vms, sharing: None, demands, missed, done }));
                HostVms { one, groups, fault: None }
            }
            Err(error) => {
                tracing::warn!(volume, shares = one.0, "{error}; it has the shares of all its VMs");
                let limited = patterns.iter().any(|p| !p.limit.is_none() || p.tenant.is_some());
                let fault = format!("no limit and no tenant of a VM is in force: {error}");
                HostVms { one, groups: None, fault: limited.then_some(fault) }
            }
        }
    }

    /// Takes over other shares. Shares of cgroups are in force with the next period.
    pub(super) fn change(&mut self, volume: &str, wanted: &config::Vms) {
        match (&mut self.groups, wanted) {
            (Some(groups), config::Vms::Groups(vms)) => {
                let patterns: Vec<_> = vms.iter().map(config::SteeredVm::pattern).collect();
                groups.vms.set_patterns(&patterns);
                groups.missed.change();
            }
            _ => *self = HostVms::start(volume, wanted),
        }
    }

    /// IOs and demands of the VMs in the period.
    pub(super) fn did(
        &mut self,
        volume: &str,
        look: Option<&Look>,
        decision: &Decision,
    ) -> Vec<VmPeriod> {
        let reading = look.map(|look| &look.reading);
        let window_per_share = decision.window_per_share;
        let full = look.is_some_and(|look| look.full);
        let one = self.groups.is_none();
        let of = |shares: Shares, tenant: Option<TenantId>, pending: f64| {
            let (counts, _) = decision.weigh(tenant, shares);
            let wants_more = full && (one || pending >= window_per_share * counts / UNSEEN);
            let pending = if wants_more { UNSEEN * pending } else { pending };
            VmPeriod { shares, tenant, pending, ios: [0; 2], bytes: [0; 2], held: false }
        };
        let Some(groups) = &mut self.groups else {
            return vec![of(self.one, None, reading.map_or(0.0, |r| r.pending))];
        };
        groups.look(volume, reading);
        let sharing = groups.sharing.as_ref();
        let each = groups.vms.iter().map(|(key, vm)| {
            let demand = groups.demands.vms.get(key).copied().unwrap_or_default();
            let begun = sharing.and_then(|sharing| sharing.begun(key));
            let (ios, bytes) = begun.map_or(
                // Which way they went matters to limits alone, and none is in force.
                ([demand.ios, 0], [demand.bytes, 0]),
                |Begun { ios, bytes }| ([ios.reads, ios.writes], [bytes.reads, bytes.writes]),
            );
            let by = sharing.and_then(|sharing| sharing.held_by(key));
            let held = by == Some(CapReason::Tenant);
            VmPeriod { ios, bytes, held, ..of(vm.shares, vm.tenant, demand.pending) }
        });
        each.collect()
    }

    /// Takes over the law's grants for the VMs, in their order.
    pub(super) fn grant(&mut self, grants: &[VmGrant]) {
        if let Some(groups) = &mut self.groups {
            groups.vms.grant(grants);
        }
    }

    /// Splits the host's allowance at its device, if the device exists. `allowed`: `None` while no caps or weights are to be set.
    pub(super) fn set(
        &mut self,
        volume: &str,
        steer: &Steer,
        device: Option<&Device>,
        allowed: Option<HostAllowance>,
    ) {
        let Some(groups) = &mut self.groups else { return };
        let set = match device.zip(allowed) {
            Some((device, allowance)) => groups.set(volume, steer, device, allowance),
            None => groups.release(),
        };
        // Once a limit or weight is set, cgroups count their IOs.
        if let Some(device) = device {
            groups.missed.look(volume, &groups.vms, device.number);
        }
        match set {
            Ok(()) => self.fault = None,
            Err(error) => {
                // The drop of `sharing` restores the previous settings; the next period tries again.
                groups.sharing = None;
                let fault = error.to_string();
                if is_news(&mut self.fault, &fault) {
                    tracing::error!(volume, "{fault}; VMs share the host's window as they can");
                }
            }
        }
    }

    fn sharing(&self) -> Option<&Sharing> {
        self.groups.as_ref()?.sharing.as_ref()
    }

    /// Whether VMs are held to less than the queue's least depth by caps of their own.
    pub(super) fn hold_below_least(&self) -> bool {
        self.sharing().is_some_and(|sharing| sharing.beyond().is_empty())
    }

    /// Means by which the VMs are held to their shares, if anything is set.
    pub(super) fn means(&self) -> Option<Means> {
        self.sharing().map(Sharing::means)
    }

    /// Names and shares, in the order of their demands.
    pub(super) fn names(&self) -> Vec<(String, u32)> {
        let Some(groups) = &self.groups else { return vec![("all".to_owned(), self.one.0)] };
        groups.vms.iter().map(|(_, vm)| (vm.name.clone(), vm.shares.0)).collect()
    }

    /// Patterns without a VM, and VMs without a pattern, where VMs are cgroups.
    pub(super) fn missed(&self) -> Option<&Missed> {
        self.groups.as_ref().map(|groups| &groups.missed)
    }

    pub(super) fn status(&self, steer: &Steer) -> Vec<SteeredVmStatus> {
        let Some(groups) = &self.groups else { return Vec::new() };
        let each = groups.vms.iter().map(|(key, vm)| {
            let (ios, bytes) = groups.done.get(key).copied().unwrap_or_default();
            let sharing = groups.sharing.as_ref();
            let held_by = sharing.and_then(|sharing| sharing.held_by(key));
            SteeredVmStatus {
                name: vm.name.clone(),
                cgroup: key.to_string(),
                settings_from: SettingsFrom::new(),
                settings: steer.vm(&vm.name).map(|vm| vm.settings).unwrap_or_default(),
                shares: vm.shares.0,
                limited_by: held_by.map(|by| match by {
                    CapReason::Shares => Limit::Slice,
                    CapReason::Limit | CapReason::Tenant | CapReason::Theirs => Limit::Configured,
                }),
                bounds_of_others: sharing.and_then(|sharing| sharing.theirs(key)),
                held_by_others: held_by == Some(CapReason::Theirs),
                ios,
                bytes,
                pending: groups.demands.vms.get(key).map_or(0.0, |d| d.pending),
            }
        });
        each.collect()
    }

    /// Restores the previous settings of the VMs.
    pub(super) fn stop(&mut self, volume: &str) {
        if let Some(Err(error)) = self.groups.as_mut().map(|groups| groups.release()) {
            tracing::error!(volume, "{error}; parda steer restore puts back what was set before");
        }
    }
}

impl Groups {
    /// Status of the VMs that are there.
    fn look(&mut self, volume: &str, reading: Option<&DeviceReading>) {
        match self.vms.refresh() {
            Ok(changes) => changes.iter().for_each(|change| match change {
                VmsChange::Came(vm) => {
                    tracing::info!(volume, %vm, event = "vm_came", "a VM came");
                }
                VmsChange::Went(vm) => {
                    tracing::info!(volume, %vm, event = "vm_went", "a VM went");
                }
            }),
            Err(error) => tracing::debug!(volume, "{error}"),
        }
        let Some(reading) = reading else {
            self.demands = Demands::default();
            return;
        };
        let counted = matches!(reading.method, Method::Ebpf).then_some(reading.groups.as_slice());
        let classes = reading.classes.iter();
        let (ios, bytes) = classes.fold((0, 0), |(n, b), c| (n + c.ios, b + c.bytes));
        let whole = IoDemand { ios, bytes, pending: reading.pending };
        let looked = self.sharing.as_mut().map(|sharing| sharing.look(&self.vms, reading.elapsed));
        self.demands = match (&self.sharing, looked, counted) {
            (Some(sharing), Some(Ok(())), _) => {
                sharing.demands(&self.vms, counted, whole, latency(reading))
            }
            (_, _, Some(groups)) => Demands::of_groups(&self.vms, groups),
            _ => by_shares(&self.vms, whole),
        };
        for (key, demand) in &self.demands.vms {
            let (ios, bytes) = self.done.entry(key.clone()).or_default();
            *ios += demand.ios;
            *bytes += demand.bytes;
        }
        let there = &self.vms;
        self.done.retain(|key, _| there.get(key).is_some());
    }

    fn set(
        &mut self,
        volume: &str,
        steer: &Steer,
        device: &Device,
        allowance: HostAllowance,
    ) -> Result<(), SteerError> {
        let sharing = match &mut self.sharing {
            Some(sharing) => sharing,
            none => {
                let journal = Journal::at(Journal::PLACE);
                // A bound above the elevator leaves bfq nothing to choose from.
                let above = steer.method == Some(parda_steer::knob::DepthMethod::NrRequests);
                let means = steer.sharing.or(above.then_some(Means::Caps));
                let sharing = Sharing::take(device, &self.vms, means, &journal)?;
                for (vm, why) in sharing.beyond() {
                    tracing::warn!(volume, %vm, "cannot be held to its shares or its limit: {why}");
                }
                none.insert(sharing)
            }
        };
        let changed = sharing.set(&self.vms, &self.demands, allowance)?;
        changed.iter().for_each(|changed| tracing::warn!(volume, "{changed}"));
        Ok(())
    }

    fn release(&mut self) -> Result<(), SteerError> {
        match self.sharing.take() {
            Some(sharing) => sharing.release().map(drop).map_err(SteerError::from),
            None => Ok(()),
        }
    }
}

/// Without a measurement of each VM, each is taken to want its share of the host's IO.
fn by_shares(vms: &CgroupVms, whole: IoDemand) -> Demands {
    let all: f64 = vms.iter().map(|(_, vm)| vm.grant.shares).sum();
    let part = |shares: f64| IoDemand {
        pending: whole.pending * shares / all.max(1.0),
        ..IoDemand::default()
    };
    let vms = vms.iter().map(|(key, vm)| (key.clone(), part(vm.grant.shares)));
    Demands { vms: vms.collect(), ..Demands::default() }
}

/// Mean device latency; zero where no IO completed.
pub(super) fn latency(reading: &DeviceReading) -> Span {
    let (ios, sum) = reading
        .classes
        .iter()
        .fold((0, Span::ZERO), |(ios, sum), class| (ios + class.ios, sum + class.latency));
    Span(sum.0.checked_div(ios).unwrap_or(0))
}
