//! A prediction compared with later measurements.

use serde::{Deserialize, Serialize};

use crate::capacity::Capacity;
use crate::predict::{Prediction, WhatIf, predict};
use crate::view::{ExplainedVm, ExplainedVolume};

/// A view and the predictions made from it: one line of a log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Time of the explanation, RFC 3339.
    pub at: String,
    /// Name of the volume.
    pub volume: String,
    /// Name of the VM.
    pub vm: String,
    /// The view from which predictions were made.
    pub view: ExplainedVolume,
    /// The array's throughput over its latency, assumed or measured.
    pub capacity: Capacity,
    /// Predictions made from the view.
    pub predictions: Vec<Prediction>,
}

/// A prediction and the measurements after the change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// The prediction for the shares and the threshold in force now.
    pub prediction: Prediction,
    /// Whether the log has the prediction. Otherwise it was made now, from the logged view.
    pub logged: bool,
    /// Reads and writes per second, measured now.
    pub iops: f64,
    /// Mean latency, measured now, in milliseconds.
    pub latency_ms: f64,
    /// Predicted over measured IO/s, less one.
    pub error: f64,
    /// Names of other VMs and hosts whose shares changed since, or that came or went.
    pub changed: Vec<String>,
}

/// Relative difference up to which two settings count as the same.
const SAME: f64 = 0.005;

/// Compares the prediction for the shares, the limits and the threshold in force now with the measurements of now.
///
/// `None` if the VM no longer exists, or did no IO then or now. `None` also after more than one change among its shares, its limit, its
/// tenant's and the threshold.
#[must_use]
pub fn score(then: &Record, now: &ExplainedVolume) -> Option<Score> {
    let (before, vm) = (then.view.vm(&then.vm)?, now.vm(&then.vm)?);
    let same = |a: f64, b: f64| (a - b).abs() <= SAME * b.abs();
    let shares = same(vm.shares, before.shares);
    let limit = |vm: &ExplainedVm| vm.limit.as_ref().map(|limit| limit.words.clone());
    let limits = limit(vm) == limit(before);
    let of_tenant = |vm: &ExplainedVm| vm.tenant.as_ref().and_then(|tenant| tenant.limit_iops);
    let tenants = of_tenant(vm) == of_tenant(before);
    let change = match (shares, limits, tenants, same(now.threshold_ms, then.view.threshold_ms)) {
        (_, true, true, true) => WhatIf::Shares(vm.shares),
        (true, true, true, false) => WhatIf::ThresholdMs(now.threshold_ms),
        (true, false, true, true) => WhatIf::LimitIops(vm.limit.as_ref()?.iops?),
        (true, true, false, true) => WhatIf::TenantLimitIops(of_tenant(vm)?),
        _ => return None,
    };
    let logged = then.predictions.iter().find(|prediction| match (prediction.change, change) {
        (WhatIf::Shares(a), WhatIf::Shares(b)) => same(a, b),
        (WhatIf::ThresholdMs(a), WhatIf::ThresholdMs(b))
        | (WhatIf::LimitIops(a), WhatIf::LimitIops(b))
        | (WhatIf::TenantLimitIops(a), WhatIf::TenantLimitIops(b)) => same(a, b),
        _ => false,
    });
    let made = || predict(&then.view, &then.vm, change, &then.capacity);
    let prediction = logged.copied().or_else(made)?;
    (vm.iops > 0.0).then(|| Score {
        prediction,
        logged: logged.is_some(),
        iops: vm.iops,
        latency_ms: vm.latency_ms(),
        error: prediction.vm.iops / vm.iops - 1.0,
        changed: changed(&then.view, now, &then.vm),
    })
}

/// Names of other VMs and hosts whose shares changed, or that came or went.
fn changed(then: &ExplainedVolume, now: &ExplainedVolume, name: &str) -> Vec<String> {
    let shares = |view: &ExplainedVolume| -> Vec<(String, f64)> {
        let vms = view.vms.iter().filter(|vm| vm.name != name);
        let vms = vms.map(|vm| (vm.name.clone(), vm.shares));
        let peers = view.peers.iter().map(|peer| (format!("host {}", peer.host), peer.shares));
        vms.chain(peers).collect()
    };
    let (then, now) = (shares(then), shares(now));
    let only = |a: &[(String, f64)], b: &[(String, f64)]| -> Vec<String> {
        a.iter().filter(|other| !b.contains(other)).map(|other| other.0.clone()).collect()
    };
    let mut names = [only(&then, &now), only(&now, &then)].concat();
    names.sort_unstable();
    names.dedup();
    names
}
