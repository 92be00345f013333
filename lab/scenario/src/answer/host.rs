//! Measured values of a host and of its VMs.

use serde::{Deserialize, Serialize};

/// Measured values of one host in one phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostAnswer {
    /// Name of the host.
    pub name: String,
    /// Whether the host is outside control.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outside: bool,
    /// Sum of the shares of the host's VMs; 0 for a host outside control.
    pub shares: u32,
    /// Unit that shares divide by the host's configuration: IOs, bytes or cost.
    #[serde(default, skip_serializing_if = "Unit::is_usual")]
    pub unit: Unit,
    /// Mean β of equation 2, in slots.
    pub beta: f64,
    /// Mean window, in slots. `None` if there was none, as control was off.
    pub window: Option<f64>,
    /// Time into the phase until the window had settled, in seconds: see
    /// [`settled`](crate::count::settled). `None` if there was no window, or no VM whose client ran
    /// throughout the phase.
    pub settled_s: Option<f64>,
    /// Mean number of outstanding IOs.
    pub outstanding: f64,
    /// Completed IOs per second.
    pub iops: f64,
    /// Throughput in MiB per second.
    pub mib_per_s: f64,
    /// Device latency: from dispatch to completion. `None` without IO.
    pub device_latency_ms: Option<Distribution>,
    /// Measured values of each VM, in the order of the scenario.
    pub vms: Vec<VmAnswer>,
}

/// Measured values of one VM in one phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VmAnswer {
    /// Name of the VM.
    pub name: String,
    /// Shares of the VM.
    pub shares: u32,
    /// Whether the VM was backlogged throughout: see [`crate::shares::saturated`].
    pub saturated: bool,
    /// Whether the VM has a share to be judged by. Such a VM is under control, without limit, reservation and tenant, and its
    /// client ran throughout the phase.
    #[serde(default)]
    pub ran: bool,
    /// Completed IOs per second.
    pub iops: f64,
    /// Throughput in MiB per second.
    pub mib_per_s: f64,
    /// Cost of its IOs in slots per second, where shares divide costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots_per_s: Option<f64>,
    /// Held time plus device latency. The time in sockets, in the wait for memory and in the agent's own turn is not
    /// measured. `None` without IO.
    pub latency_ms: Option<Distribution>,
    /// Held time: time in the host's fair queue. `None` without IO.
    pub held_ms: Option<Distribution>,
    /// Mean time at the array of reads and writes, in milliseconds. `None` without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_ms: Option<f64>,
}

/// A distribution of times, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // The names are the field's.
pub struct Distribution {
    pub mean: f64,
    pub stddev: f64,
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

/// Unit that shares divide: the quantity counted for each judged VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Shares divide IOs per second.
    #[default]
    Ios,
    /// Shares divide bytes per second.
    Bytes,
    /// Shares divide slots per second, by the costs of IOs.
    Cost,
    /// Outstanding IOs at the array.
    Slots,
}

impl Unit {
    /// Whether this is the default, which an answer leaves out.
    #[must_use]
    pub fn is_usual(&self) -> bool {
        *self == Unit::default()
    }
}
