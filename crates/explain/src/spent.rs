//! The parts of a VM's latency, by cause.

use parda_api::Limit;
use serde::{Deserialize, Serialize};

use crate::view::{ExplainedVm, ExplainedVolume, HeldParts};

/// A part of a VM's mean latency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// Cause of this part.
    pub cause: Cause,
    /// Mean over the VM's IOs, in milliseconds.
    pub ms: f64,
}

/// Cause of a part of the latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Held on this host, as the VM wants more than its slice.
    HeldBySlice,
    /// Held on this host, as the host has all outstanding that its window allows.
    HeldByWindowMax,
    /// Held on this host with room in its slice: the wait for a turn.
    HeldForTurn,
    /// Held on this host, as its limit allowed no more.
    HeldByLimit,
    /// Service time at the array. Known only from a probe.
    Service,
    /// At the array, up to the threshold: time that the law allows.
    WithinThreshold,
    /// At the array, beyond the threshold.
    BeyondThreshold,
}

/// The parts of a VM's latency. They add up to its mean latency.
pub(crate) fn spent(
    view: &ExplainedVolume,
    vm: &ExplainedVm,
    service_ms: Option<f64>,
) -> Vec<Spent> {
    let held = vm.held_by.unwrap_or_else(|| inferred(view.limit_of(vm)));
    let service = service_ms.unwrap_or(0.0).clamp(0.0, vm.device_ms);
    let within = vm.device_ms.min(view.threshold_ms) - service;
    let parts = [
        (Cause::HeldBySlice, vm.held_ms * held.share),
        (Cause::HeldByWindowMax, vm.held_ms * held.window),
        (Cause::HeldForTurn, vm.held_ms * held.turn),
        (Cause::HeldByLimit, vm.held_ms * held.limit),
        (Cause::Service, service),
        (Cause::WithinThreshold, within.max(0.0)),
        (Cause::BeyondThreshold, vm.device_ms - service - within.max(0.0)),
    ];
    parts.into_iter().filter(|part| part.1 > 0.0).map(|(cause, ms)| Spent { cause, ms }).collect()
}

/// The cause of held time by the VM's limit, where it was not measured.
fn inferred(limit: Limit) -> HeldParts {
    match limit {
        Limit::Slice => HeldParts { share: 1.0, ..HeldParts::default() },
        Limit::WindowMax => HeldParts { window: 1.0, ..HeldParts::default() },
        Limit::Configured => HeldParts { limit: 1.0, ..HeldParts::default() },
        Limit::Nothing | Limit::Others | Limit::Depth => {
            HeldParts { turn: 1.0, ..HeldParts::default() }
        }
    }
}
