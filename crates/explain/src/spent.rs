//! Where the time of a VM's IOs went.

use serde::{Deserialize, Serialize};

use crate::limit::Limit;
use crate::view::{View, Vm};

/// A part of the mean time of an IO.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// What the time was spent on.
    pub cause: Cause,
    /// Mean time of an IO, in milliseconds.
    pub ms: f64,
}

/// What time was spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Held on this host: the VM wants more than its slice.
    HeldBySlice,
    /// Held on this host: it has all that its largest window allows.
    HeldByWindowMax,
    /// Held on this host for short: the IO waited for its turn.
    HeldForTurn,
    /// At the array, as long as an IO takes there by itself. Known only by a probe.
    Service,
    /// At the array, up to the threshold: time that the law allows.
    WithinThreshold,
    /// At the array, beyond the threshold.
    BeyondThreshold,
}

/// Where the time of a VM's IOs went. The parts add up to its mean latency.
pub(crate) fn spent(view: &View, vm: &Vm, service_ms: Option<f64>) -> Vec<Spent> {
    let held = match Limit::of_vm(view, vm) {
        Limit::Slice => Cause::HeldBySlice,
        Limit::WindowMax => Cause::HeldByWindowMax,
        _ => Cause::HeldForTurn,
    };
    let service = service_ms.unwrap_or(0.0).clamp(0.0, vm.device_ms);
    let within = vm.device_ms.min(view.threshold_ms) - service;
    let parts = [
        (held, vm.held_ms),
        (Cause::Service, service),
        (Cause::WithinThreshold, within.max(0.0)),
        (Cause::BeyondThreshold, vm.device_ms - service - within.max(0.0)),
    ];
    parts.into_iter().filter(|part| part.1 > 0.0).map(|(cause, ms)| Spent { cause, ms }).collect()
}
