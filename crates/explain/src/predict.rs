//! Predicted IO/s and latency of a VM after a change. The change is of its shares, its limit, its tenant's limit, or the
//! threshold.

use parda_api::{HELD, Limit};
use serde::{Deserialize, Serialize};

use crate::capacity::Capacity;
use crate::level::{Cluster, search};
use crate::view::{ExplainedVolume, Holding, VmTenant};

/// A change whose effect is predicted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhatIf {
    /// The VM gets this number of shares.
    Shares(f64),
    /// The VM gets this limit, in IO/s.
    LimitIops(f64),
    /// The VM's tenant gets this limit, in IO/s on all hosts.
    TenantLimitIops(f64),
    /// All hosts get this threshold, in milliseconds.
    ThresholdMs(f64),
}

/// Predicted IOs and latency of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PredictedRates {
    /// Reads and writes per second.
    pub iops: f64,
    /// Mean latency, held time included, in milliseconds. `None` for a VM that is held and whose number of pending IOs varies.
    pub latency_ms: Option<f64>,
    /// Mean device latency, in milliseconds.
    pub device_ms: f64,
}

/// A change and its predicted effect.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// The change whose effect is predicted.
    pub change: WhatIf,
    /// The VM after the change.
    pub vm: PredictedRates,
    /// IO/s of all other VMs after the change, over their IO/s before it. `None` if there are no others.
    pub others: Option<f64>,
    /// Range of `others`, where it rests on an assumption about the array.
    pub range: Option<(f64, f64)>,
    /// The VM's limit after the change.
    pub limit: Limit,
}

/// A change whose effect is not predicted, as an assumption of the prediction is not met.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unpredicted {
    /// The change whose effect was asked for.
    pub change: WhatIf,
    /// The assumption that is not met.
    pub why: Unmet,
}

/// Assumption of a prediction that is not met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unmet {
    /// The array's latency is at the threshold in force: the latency is far above, independent of the windows.
    LatencyFarAbove,
    /// The array's service time is below both thresholds: it is near or above one of them.
    ServiceTime,
}

/// Part of a tenant's IOs from which on the tenant is taken to be on this host alone.
const HERE: f64 = 0.95;

/// Latency, in thresholds, from which on the threshold is taken not to bound it.
const FAR: f64 = 2.0;

/// The assumption of a prediction that this view does not meet. Shares and limits have none.
#[must_use]
pub(crate) fn unmet(view: &ExplainedVolume, change: WhatIf, capacity: &Capacity) -> Option<Unmet> {
    let WhatIf::ThresholdMs(to) = change else { return None };
    let step = Step::between(view, to);
    if step.to_ms == step.from_ms {
        return None;
    }
    if view.latency_ms.is_some_and(|ms| ms > FAR * view.threshold_ms) {
        return Some(Unmet::LatencyFarAbove);
    }
    (!capacity.reaches(step.to_ms, step.from_ms)).then_some(Unmet::ServiceTime)
}

/// Predicts the effect of a change on the VM of this name.
///
/// `None` if the view has no such VM, if the VM did no IO, or if no law is in force. `None` for a threshold if windows do not
/// follow from slices ([`Holding::Window`]), or an assumption is not met ([`Unmet`]).
#[must_use]
pub fn predict(
    view: &ExplainedVolume,
    name: &str,
    change: WhatIf,
    capacity: &Capacity,
) -> Option<Prediction> {
    let index = view.vms.iter().position(|vm| vm.name == name)?;
    let vm = &view.vms[index];
    let did = vm.iops > 0.0 && vm.device_ms > 0.0 && vm.shares > 0.0;
    let follows = match change {
        WhatIf::Shares(_) | WhatIf::LimitIops(_) => view.holding != Holding::Nothing,
        WhatIf::TenantLimitIops(_) => {
            view.holding != Holding::Nothing && vm.tenant.as_ref().is_some_and(|it| it.iops > 0.0)
        }
        WhatIf::ThresholdMs(_) => matches!(view.holding, Holding::Slices { .. }),
    };
    if !did || !follows || unmet(view, change, capacity).is_some() {
        return None;
    }
    let mut after = Cluster::of(view);
    let before = after.clone();
    let mut step = Step { from_ms: 1.0, to_ms: 1.0 };
    match change {
        WhatIf::Shares(shares) => after.own[index].slice *= shares / vm.shares,
        WhatIf::LimitIops(iops) => {
            let tenants = vm.limit.as_ref().is_some_and(|limit| limit.iops.is_none());
            let most = if tenants { before.own[index].most } else { f64::INFINITY };
            after.own[index].most = vm.slots_of(iops).min(most);
        }
        WhatIf::TenantLimitIops(iops) => after.limit_tenant(view, vm.tenant.as_ref()?, iops),
        WhatIf::ThresholdMs(ms) => step = Step::between(view, ms),
    }
    let slots = before.all_at(1.0);
    // If no VM is held, more or less load changes the latency, up to the threshold.
    let limited = matches!(change, WhatIf::LimitIops(_) | WhatIf::TenantLimitIops(_));
    let unheld = view.latency_ms.filter(|_| limited && !view.is_contended());
    let capacity = &unheld.map_or_else(|| capacity.clone(), |ms| capacity.beside(slots, ms));
    step = match unheld {
        Some(ms) => {
            let step = Step { from_ms: ms, to_ms: view.threshold_ms.max(ms) };
            step.under(after.most() / slots, capacity)
        }
        None => step.within(after.most() / slots, capacity),
    };
    // A limit is of IOs per second: with another latency it is another number of slots.
    after.own.iter_mut().for_each(|claim| claim.most *= step.to_ms / step.from_ms);
    let total = |throughput: f64| slots * throughput * step.to_ms / step.from_ms;
    let ratio = capacity.ratio(step.to_ms, step.from_ms);
    let others = |throughput: f64| {
        let level = after.level(total(throughput));
        let rest = |cluster: &Cluster, level| cluster.all_at(level) - cluster.own_at(level)[index];
        let had = rest(&before, 1.0);
        // The change on other hosts that have VMs of the tenant is unknown here.
        let here = |tenant: &VmTenant| tenant.own_iops > HERE * tenant.iops;
        let known = match change {
            WhatIf::TenantLimitIops(_) => vm.tenant.as_ref().is_some_and(here),
            _ => true,
        };
        (known && had > 1e-9).then(|| rest(&after, level) / had * step.from_ms / step.to_ms)
    };
    let (had, wanted) = (before.own_at(1.0)[index], before.own[index].wanted);
    let has = after.own_at(after.level(total(ratio)))[index];
    let device_ms = step.device_ms(vm.device_ms, capacity.service_ms());
    let held = has < (1.0 - HELD) * wanted;
    let iops = vm.iops * has / had * vm.device_ms / device_ms;
    let varies = vm.varies();
    // An open loop sends no more IOs where it could have more.
    let iops = if varies { iops.min(vm.iops) } else { iops };
    let latency_ms = if varies {
        (!held).then_some(device_ms)
    } else {
        Some((vm.pending() / vm.slots / iops * 1e3).max(device_ms))
    };
    let range = matches!((change, capacity), (WhatIf::ThresholdMs(_), Capacity::Assumed { .. }));
    let range = range.then(|| capacity.range(step.to_ms, step.from_ms));
    Some(Prediction {
        change,
        vm: PredictedRates { iops, latency_ms, device_ms },
        others: others(ratio),
        range: range.and_then(|(low, high)| Some((others(low)?, others(high)?))),
        limit: match (held, view.limit_of(vm)) {
            (true, _) if has > (1.0 - 1e-6) * after.own[index].most => Limit::Configured,
            (true, Limit::WindowMax) => Limit::WindowMax,
            (true, _) => Limit::Slice,
            (false, _) => Limit::Depth,
        },
    })
}

/// Latency of the array before and after a change.
#[derive(Clone, Copy, Debug)]
struct Step {
    from_ms: f64,
    to_ms: f64,
}

impl Step {
    /// The step to a threshold. Without contention latency is below the threshold: a higher one changes nothing then.
    fn between(view: &ExplainedVolume, threshold_ms: f64) -> Step {
        match view.latency_ms {
            Some(ms) if !view.is_contended() => Step { from_ms: ms, to_ms: threshold_ms.min(ms) },
            _ => Step { from_ms: view.threshold_ms, to_ms: threshold_ms },
        }
    }

    /// The step up, as far as all VMs raise the latency with the slots that they want and may have. `most`: times the present
    /// slots.
    fn within(self, most: f64, capacity: &Capacity) -> Step {
        if self.to_ms <= self.from_ms {
            return self;
        }
        Step { to_ms: self.under(most, capacity).to_ms.max(self.from_ms), ..self }
    }

    /// The step to the latency that `most` times the present slots bring, up to the latency of this step.
    fn under(self, most: f64, capacity: &Capacity) -> Step {
        let has = |to_ms: f64| capacity.ratio(to_ms, self.from_ms) * to_ms / self.from_ms;
        if has(self.to_ms) <= most {
            return self;
        }
        let times = search(|times| has(times * self.from_ms) - most);
        Step { to_ms: (times * self.from_ms).min(self.to_ms), ..self }
    }

    /// Device latency after the step. The wait at the array changes as for all IOs, the service time stays.
    fn device_ms(self, device_ms: f64, service_ms: f64) -> f64 {
        let service = service_ms.min(device_ms).min(self.from_ms * (1.0 - f64::EPSILON));
        let wait = ((self.to_ms - service) / (self.from_ms - service)).max(0.0);
        (service + (device_ms - service) * wait).max(f64::MIN_POSITIVE)
    }
}
