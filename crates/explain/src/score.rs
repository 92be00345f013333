//! A prediction beside what then happened.

use serde::{Deserialize, Serialize};

use crate::capacity::Capacity;
use crate::predict::{Change, Prediction, predict};
use crate::view::View;

/// A view that was explained, and what was predicted from it: one line of a log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// When it was, RFC 3339.
    pub at: String,
    /// Name of the volume.
    pub volume: String,
    /// Name of the VM.
    pub vm: String,
    /// The view that was explained.
    pub view: View,
    /// The array's throughput by latency, as assumed or measured.
    pub capacity: Capacity,
    /// What was predicted from the view.
    pub predictions: Vec<Prediction>,
}

/// A prediction beside what was measured after the change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// The prediction for what is in force now.
    pub prediction: Prediction,
    /// Whether it was in the log. Else it was made now, from the view of then.
    pub logged: bool,
    /// Reads and writes per second as measured now.
    pub iops: f64,
    /// Mean latency as measured now, in milliseconds.
    pub latency_ms: f64,
    /// Predicted over measured IOs per second, less one.
    pub error: f64,
    /// Others whose shares are not those of then, or who came or went.
    pub changed: Vec<String>,
}

/// Two settings are the same within this part.
const SAME: f64 = 0.005;

/// Compares what was predicted for the shares and threshold that are in force now. None if the VM is gone, did nothing then
/// or does nothing now, or if both its shares and the threshold are not those of then.
#[must_use]
pub fn score(then: &Record, now: &View) -> Option<Score> {
    let (before, vm) = (then.view.vm(&then.vm)?, now.vm(&then.vm)?);
    let same = |a: f64, b: f64| (a - b).abs() <= SAME * b.abs();
    let shares = same(vm.shares, before.shares);
    let change = match (shares, same(now.threshold_ms, then.view.threshold_ms)) {
        (_, true) => Change::Shares(vm.shares),
        (true, false) => Change::ThresholdMs(now.threshold_ms),
        (false, false) => return None,
    };
    let logged = then.predictions.iter().find(|prediction| match (prediction.change, change) {
        (Change::Shares(a), Change::Shares(b)) => same(a, b),
        (Change::ThresholdMs(a), Change::ThresholdMs(b)) => same(a, b),
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

/// Names of other VMs and hosts whose shares are not those of then.
fn changed(then: &View, now: &View, name: &str) -> Vec<String> {
    let shares = |view: &View| -> Vec<(String, f64)> {
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
