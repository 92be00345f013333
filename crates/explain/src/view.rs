//! What is known of a volume over an interval, as one host sees it.

use serde::{Deserialize, Serialize};

/// A volume over an interval: the VMs of this host one by one, the other hosts as sums.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// Name of this host.
    pub host: String,
    /// Length of the interval, in seconds.
    pub seconds: f64,
    /// What holds IOs back on this host.
    pub holding: Holding,
    /// The threshold in force, in milliseconds.
    pub threshold_ms: f64,
    /// The latency that the law used, in milliseconds, once there is one.
    pub latency_ms: Option<f64>,
    /// VMs of this host.
    pub vms: Vec<Vm>,
    /// The other hosts that are heard.
    pub peers: Vec<Peer>,
}

/// What holds IOs of a host back.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holding {
    /// Each VM has a slice of its own, and the host at most `window_max` slots, if that is known.
    Slices {
        /// Largest window of the host, in slots.
        window_max: Option<f64>,
    },
    /// The host has one window, which its VMs divide: `published` and `static`.
    Window {
        /// The window, in slots.
        window: f64,
    },
    /// Nothing is held back.
    Nothing,
}

/// A VM of this host over the interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Vm {
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
    /// Mean time held on this host, in milliseconds.
    pub held_ms: f64,
    /// Mean time at the array, in milliseconds.
    pub device_ms: f64,
    /// Mean slots of the window for each IO.
    pub slots: f64,
    /// Slots that the VM may have outstanding, if known.
    pub slice: Option<f64>,
    /// How much what the VM had pending varied ([`spread`]), if that can be told.
    pub spread: Option<f64>,
}

/// Another host, as the exchange shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Peer {
    /// Name of the host.
    pub host: String,
    /// Sum of the shares of its VMs.
    pub shares: f64,
    /// The same, scaled down for VMs that use less than their slices.
    pub active_shares: f64,
    /// Mean outstanding IOs at the array, in slots.
    pub outstanding: f64,
    /// Reads and writes per second.
    pub iops: f64,
    /// What bounds the host.
    pub bounded: Bounded,
}

/// What bounds another host, by its own word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bounded {
    /// It does not say.
    #[default]
    Unsaid,
    /// Its VMs have what they want.
    Nothing,
    /// A VM of it could use more than its slice.
    Slices,
    /// It has all that its largest window allows.
    Window,
}

impl Vm {
    /// Mean time of an IO, in milliseconds.
    #[must_use]
    pub fn latency_ms(&self) -> f64 {
        self.held_ms + self.device_ms
    }

    /// Mean IOs at the array, in slots, by Little's law.
    #[must_use]
    pub fn outstanding(&self) -> f64 {
        self.iops * self.device_ms / 1e3 * self.slots
    }

    /// Mean IOs pending, held or at the array, in slots: the depth of a closed loop.
    #[must_use]
    pub fn pending(&self) -> f64 {
        self.iops * self.latency_ms() / 1e3 * self.slots
    }

    /// Spread from which on the depth is taken to vary.
    const VARIES: f64 = 0.5;

    /// Whether the depth varies: IOs come at times of their own, or in bursts.
    #[must_use]
    pub fn varies(&self) -> bool {
        self.spread.is_some_and(|spread| spread > Vm::VARIES)
    }
}

impl View {
    /// The VM of this name.
    #[must_use]
    pub fn vm(&self, name: &str) -> Option<&Vm> {
        self.vms.iter().find(|vm| vm.name == name)
    }

    /// Slots at the array of all that are known.
    #[must_use]
    pub fn outstanding(&self) -> f64 {
        let own: f64 = self.vms.iter().map(Vm::outstanding).sum();
        own + self.peers.iter().map(|peer| peer.outstanding).sum::<f64>()
    }

    /// Whether the host has all that its largest window allows.
    #[must_use]
    pub fn at_window_max(&self) -> bool {
        let Holding::Slices { window_max: Some(most) } = self.holding else { return false };
        self.vms.iter().map(Vm::outstanding).sum::<f64>() >= FULL * most
    }
}

/// A host that uses this part of its largest window is bounded by it: `FULL` of crates/control/src/governor.rs, with room
/// for chance.
const FULL: f64 = 0.95;

/// How much the number of pending IOs varies from look to look, over how much it would if IOs came by chance: near 0 for a
/// client that keeps a number of IOs pending, 1 for one that sends them by chance, more for bursts.
///
/// `pending` is by Little's law for each look, `ios` the mean number of IOs in a look of so many `seconds`, `latency_ms` the mean
/// time of an IO. None where looks are too short to tell: IOs that were sent in one and done in another make it vary as well.
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

/// What a client keeps pending varies by this part as it is measured.
const NOISE: f64 = 0.03;

/// A look is to be so many times as long as an IO takes.
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
