//! The explanation of one VM: limit, times, entitlement, other VMs and hosts, predictions.

use parda_api::Limit;
use serde::{Deserialize, Serialize};

use crate::capacity::Capacity;
use crate::predict::{Prediction, Unpredicted, WhatIf, predict, unmet};
use crate::spent::{Spent, spent};
use crate::view::{ExplainedVm, ExplainedVolume, Holding};

/// An explanation of one VM over an interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The VM over the interval.
    pub vm: ExplainedVm,
    /// Whether its number of pending IOs varies, as of an open loop or a client with bursts.
    pub varies: bool,
    /// Mean IOs pending, held and at the array, in slots.
    pub pending: f64,
    /// Mean IOs at the array, in slots.
    pub outstanding: f64,
    /// `outstanding` as a fraction of the IOs of all hosts at the array.
    pub part: f64,
    /// Parts of the mean latency, by cause. They add up to it.
    pub spent: Vec<Spent>,
    /// Entitlement by its shares. `None` if no law divides outstanding IOs on this host.
    pub entitled: Option<Entitled>,
    /// Cause that keeps the VM from doing more IOs.
    pub limit: Limit,
    /// Other VMs of this host and other hosts, in descending order of outstanding IOs.
    pub others: Vec<Other>,
    /// Predicted effects of changes.
    pub predictions: Vec<Prediction>,
    /// Changes whose effects are not predicted, as an assumption is not met.
    pub unpredicted: Vec<Unpredicted>,
    /// Quantities that are not known, or known badly.
    pub unknown: Vec<Unknown>,
}

/// Entitlement of a VM by its shares.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entitled {
    /// Slots that the VM may have outstanding.
    pub slots: f64,
    /// Throughput of these slots at the VM's device latency, in IO/s. `None` if the VM did no IO.
    pub iops: Option<f64>,
    /// Its shares as a fraction of the shares of all hosts.
    pub part: f64,
}

/// Another VM of this host, or another host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Other {
    /// Name, as a VM of this host or another host.
    pub who: Who,
    /// Shares of the VM, or their sum over the VMs of the host.
    pub shares: f64,
    /// Mean IOs at the array, in slots.
    pub outstanding: f64,
    /// `outstanding` as a fraction of the IOs of all hosts at the array.
    pub part: f64,
    /// Reads and writes per second.
    pub iops: f64,
}

/// A VM of this host, or another host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Who {
    /// A VM of this host.
    Vm(String),
    /// Another host. The exchange carries sums of its VMs only.
    Host(String),
}

/// Caveat of an explanation: a quantity that is not known, or known badly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unknown {
    /// No law holds IOs back on this host: shares and thresholds change nothing here.
    NoControl,
    /// Its number of pending IOs varies, so no gain in IO/s is predicted.
    DepthVaries,
    /// The array's throughput at other latencies is assumed, as no probe was given.
    Capacity,
    /// Another host runs a version that does not report what bounds it.
    Peers,
    /// The VM did too few IOs (fewer than 100) for its means to be more than chance.
    FewIos,
    /// Its slice is a small fraction of an IO: `window_min` and `hold_max`, which serve every VM, give it as much.
    FewShares,
}

/// Number of IOs from which on a mean is taken for more than chance.
const ENOUGH: f64 = 100.0;

/// Slice, in IOs, below which `window_min` and `hold_max` may give a VM as much as its shares do.
const SMALL: f64 = 0.1;

impl Explanation {
    /// Explains the VM of this name. `None` if the view has no such VM.
    #[must_use]
    pub fn of(
        view: &ExplainedVolume,
        name: &str,
        changes: &[WhatIf],
        capacity: &Capacity,
    ) -> Option<Explanation> {
        let vm = view.vm(name)?;
        let all = view.outstanding();
        let part = |slots: f64| if all > 0.0 { slots / all } else { 0.0 };
        let service = match capacity {
            Capacity::Assumed { .. } => None,
            Capacity::Probed { .. } => Some(capacity.service_ms()),
        };
        let predictions = changes.iter().filter_map(|c| predict(view, name, *c, capacity));
        let predictions: Vec<Prediction> = predictions.collect();
        let unpredicted: Vec<Unpredicted> = unpredicted(view, vm, changes, capacity);
        let told: Vec<WhatIf> = predictions.iter().map(|prediction| prediction.change).collect();
        Some(Explanation {
            varies: vm.varies(),
            pending: vm.pending(),
            outstanding: vm.outstanding(),
            part: part(vm.outstanding()),
            spent: spent(view, vm, service),
            entitled: entitled(view, vm),
            limit: view.limit_of(vm),
            others: others(view, name, part),
            predictions,
            unpredicted,
            unknown: unknown(view, vm, &told, capacity),
            vm: vm.clone(),
        })
    }
}

fn unpredicted(
    view: &ExplainedVolume,
    vm: &ExplainedVm,
    changes: &[WhatIf],
    capacity: &Capacity,
) -> Vec<Unpredicted> {
    let works = vm.iops > 0.0 && matches!(view.holding, Holding::Slices { .. });
    let of = |change: &WhatIf| {
        unmet(view, *change, capacity).map(|why| Unpredicted { change: *change, why })
    };
    changes.iter().filter(|_| works).filter_map(of).collect()
}

fn entitled(view: &ExplainedVolume, vm: &ExplainedVm) -> Option<Entitled> {
    if view.holding == Holding::Nothing {
        return None;
    }
    // A held VM uses its whole slice, and its outstanding IOs are measured better than the slice.
    let held = view.holds(vm);
    // The slice of a host that is alone has no bound but its largest window.
    let most = match view.holding {
        Holding::Slices { window_max: Some(most) } => most,
        _ => f64::INFINITY,
    };
    let slots = if held { vm.outstanding() } else { vm.slice?.min(most) };
    let own: f64 = view.vms.iter().map(|vm| vm.shares).sum();
    let all = own + view.peers.iter().map(|peer| peer.shares).sum::<f64>();
    Some(Entitled {
        slots,
        iops: (vm.iops > 0.0 && vm.device_ms > 0.0).then(|| slots / vm.slots / vm.device_ms * 1e3),
        part: if all > 0.0 { vm.shares / all } else { 0.0 },
    })
}

fn others(view: &ExplainedVolume, name: &str, part: impl Fn(f64) -> f64) -> Vec<Other> {
    let vms = view.vms.iter().filter(|vm| vm.name != name).map(|vm| Other {
        who: Who::Vm(vm.name.clone()),
        shares: vm.shares,
        outstanding: vm.outstanding(),
        part: part(vm.outstanding()),
        iops: vm.iops,
    });
    let peers = view.peers.iter().map(|peer| Other {
        who: Who::Host(peer.host.clone()),
        shares: peer.shares,
        outstanding: peer.outstanding,
        part: part(peer.outstanding),
        iops: peer.iops,
    });
    let mut all: Vec<Other> = vms.chain(peers).collect();
    all.sort_by(|a, b| b.outstanding.total_cmp(&a.outstanding));
    all
}

fn unknown(
    view: &ExplainedVolume,
    vm: &ExplainedVm,
    changes: &[WhatIf],
    capacity: &Capacity,
) -> Vec<Unknown> {
    let slices = matches!(view.holding, Holding::Slices { .. });
    let thresholds =
        slices && changes.iter().any(|change| matches!(change, WhatIf::ThresholdMs(_)));
    let held = view.holds(vm);
    let works = vm.iops > 0.0 || vm.others_per_s > 0.0 && vm.held_now == 0.0;
    let small = held && vm.outstanding() < SMALL * vm.slots;
    let assumed = matches!(capacity, Capacity::Assumed { .. });
    let all = [
        (view.holding == Holding::Nothing, Unknown::NoControl),
        (vm.varies(), Unknown::DepthVaries),
        (works && thresholds && assumed, Unknown::Capacity),
        (view.peers.iter().any(|peer| peer.limited_by.is_none()), Unknown::Peers),
        (works && vm.iops * view.seconds < ENOUGH, Unknown::FewIos),
        (small, Unknown::FewShares),
    ];
    all.into_iter().filter(|(is, _)| *is).map(|(_, what)| what).collect()
}
