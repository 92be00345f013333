//! Measurements of a volume over an interval, as one host sees it.

use parda_api::{Limit, is_full};
use serde::{Deserialize, Serialize};

/// A volume over an interval: the VMs of this host one by one, the other hosts as sums.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExplainedVolume {
    /// Name of this host.
    pub host: String,
    /// Length of the interval, in seconds.
    pub seconds: f64,
    /// The bound that holds IOs back on this host.
    pub holding: Holding,
    /// The threshold in force, in milliseconds.
    pub threshold_ms: f64,
    /// The latency that the law used, in milliseconds. `None` before the first one.
    pub latency_ms: Option<f64>,
    /// VMs of this host.
    pub vms: Vec<ExplainedVm>,
    /// The other hosts that are heard.
    pub peers: Vec<ExplainedPeer>,
}

/// The bound that holds IOs of a host back.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holding {
    /// Each VM has a slice of its own, and the host at most `window_max` slots, if that is known.
    Slices {
        /// Largest window of the host, in slots.
        window_max: Option<f64>,
    },
    /// The host has one window, which its VMs divide (modes `published` and `static`).
    Window {
        /// The window, in slots.
        window: f64,
    },
    /// Nothing is held back.
    Nothing,
}

/// A VM of this host over the interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExplainedVm {
    /// Name of the VM's disk.
    pub name: String,
    /// Shares of the VM.
    pub shares: f64,
    /// Reads and writes per second.
    pub iops: f64,
    /// Bytes of reads and writes per second.
    pub bytes_per_s: f64,
    /// Flushes, trims and other requests per second.
    pub others_per_s: f64,
    /// Mean held time, in milliseconds.
    pub held_ms: f64,
    /// Causes of that time. `None` if the agent did not tell them.
    pub held_by: Option<HeldParts>,
    /// IOs that were held at the end of the interval.
    #[serde(default)]
    pub held_now: f64,
    /// The number of them that its limit or its tenant's held back.
    #[serde(default)]
    pub limited_now: f64,
    /// Its limit or its tenant's, if it has one.
    #[serde(default)]
    pub limit: Option<VmLimit>,
    /// Its tenant, if it has one.
    #[serde(default)]
    pub tenant: Option<VmTenant>,
    /// Mean device latency, in milliseconds.
    pub device_ms: f64,
    /// Mean cost of an IO, in slots of the window.
    pub slots: f64,
    /// The VM's slice, in slots. `None` if it has none.
    pub slice: Option<f64>,
    /// [`spread`] of its number of pending IOs. `None` if it cannot be computed.
    pub spread: Option<f64>,
}

/// A limit of a VM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VmLimit {
    /// The limit in words: `its limit of 500 IO/s`.
    pub words: String,
    /// The most IO/s that it allows, with the sizes and directions that the VM's IOs have. `None` for a tenant's, which others use too.
    pub iops: Option<f64>,
}

/// The tenant of a VM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VmTenant {
    /// Name of the tenant.
    pub name: String,
    /// IO/s of its VMs on all hosts.
    pub iops: f64,
    /// IO/s on this host.
    pub own_iops: f64,
    /// Its limit in IO/s, on all hosts, if it has such a one.
    pub limit_iops: Option<f64>,
}

/// Parts of a VM's held time, by cause. They add up to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeldParts {
    /// Part in which it wanted more than its slice.
    pub share: f64,
    /// Its host had all outstanding that its window allows.
    pub window: f64,
    /// Part in which it had room in its slice, and waited for its turn.
    pub turn: f64,
    /// Its limit allowed no more.
    #[serde(default)]
    pub limit: f64,
}

/// Another host, as the exchange shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExplainedPeer {
    /// Name of the host.
    pub host: String,
    /// Sum of the shares of its VMs.
    pub shares: f64,
    /// Active shares: `shares`, scaled down for VMs that use less than their slices.
    pub active_shares: f64,
    /// Mean outstanding IOs at the array, in slots.
    pub outstanding: f64,
    /// Reads and writes per second.
    pub iops: f64,
    /// The bound on the host's outstanding IOs. `None`: not reported, as the host runs an older version.
    pub limited_by: Option<Limit>,
}

impl ExplainedVm {
    /// Mean latency, held time included, in milliseconds.
    #[must_use]
    pub fn latency_ms(&self) -> f64 {
        self.held_ms + self.device_ms
    }

    /// Mean IOs at the array, in slots, by Little's law.
    #[must_use]
    pub fn outstanding(&self) -> f64 {
        self.slots_of(self.iops)
    }

    /// Slots at the array of so many of its IOs per second.
    pub(crate) fn slots_of(&self, iops: f64) -> f64 {
        iops * self.device_ms / 1e3 * self.slots
    }

    /// Mean IOs pending, held or at the array, in slots: the depth of a closed loop.
    #[must_use]
    pub fn pending(&self) -> f64 {
        self.iops * self.latency_ms() / 1e3 * self.slots
    }

    /// Spread above which the number of pending IOs counts as varying.
    const VARIES: f64 = 0.5;

    /// Whether the number of pending IOs varies, as of an open loop or a client with bursts.
    #[must_use]
    pub fn varies(&self) -> bool {
        self.spread.is_some_and(|spread| spread > ExplainedVm::VARIES)
    }
}

impl ExplainedVolume {
    /// The VM of this name.
    #[must_use]
    pub fn vm(&self, name: &str) -> Option<&ExplainedVm> {
        self.vms.iter().find(|vm| vm.name == name)
    }

    /// Slots at the array of this host's VMs and of all other hosts that are heard.
    #[must_use]
    pub fn outstanding(&self) -> f64 {
        let own: f64 = self.vms.iter().map(ExplainedVm::outstanding).sum();
        own + self.peers.iter().map(|peer| peer.outstanding).sum::<f64>()
    }

    /// Whether the host is at its largest window.
    #[must_use]
    pub fn at_window_max(&self) -> bool {
        let Holding::Slices { window_max: Some(most) } = self.holding else { return false };
        is_full(self.vms.iter().map(ExplainedVm::outstanding).sum(), most)
    }
}

/// Spread of a VM's number of pending IOs from sample to sample, relative to an open loop with Poisson arrivals. Near 0 for a closed
/// loop, 1 for such an open loop, more for bursts.
///
/// `pending` has the number by Little's law in each sample. A sample takes `seconds` and has `ios` IOs on average; `latency_ms` is their
/// mean latency. `None` with fewer than three samples, or if a sample is shorter than four latencies: IOs that begin in
/// one sample and end in the next make the number vary as well.
#[must_use]
pub fn spread(pending: &[f64], ios: f64, seconds: f64, latency_ms: f64) -> Option<f64> {
    let mean = pending.iter().sum::<f64>() / pending.len() as f64;
    let long = seconds * 1e3 >= SHORT * latency_ms;
    if pending.len() < 3 || mean <= 0.0 || !long {
        return None;
    }
    let square = pending.iter().map(|n| (n - mean).powi(2)).sum::<f64>() / pending.len() as f64;
    Some((square.sqrt() / mean - NOISE).max(0.0) * ios.sqrt())
}

/// Relative standard deviation that measuring alone gives a closed loop.
const NOISE: f64 = 0.03;

/// Least length of a sample, in latencies.
const SHORT: f64 = 4.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_keeps_its_depth_is_told_from_one_that_sends_by_chance() {
        let kept = spread(&[3.0, 3.05, 2.95, 3.02], 100.0, 1.0, 30.0).unwrap();
        let by_chance = spread(&[3.3, 2.6, 3.0, 3.4], 100.0, 1.0, 30.0).unwrap();
        assert!(kept < 0.2 && by_chance > 0.6, "{kept} {by_chance}");
        let many = spread(&[64.0, 62.9, 63.5, 64.9], 3000.0, 1.0, 21.0).unwrap();
        assert!(many < 0.2, "chance is little where IOs are many: {many}");
        assert_eq!(spread(&[3.0, 9.0, 2.0], 4.0, 1.0, 800.0), None, "IOs take as long as a look");
        assert_eq!(spread(&[0.0, 0.0, 0.0], 0.0, 1.0, 0.0), None);
    }
}
