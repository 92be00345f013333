//! Split of a host's window among its VMs, by their shares.
//!
//! There are two means, used together if both are available:
//!
//! - **caps** (`io.max`), always: the window and the device latency give the host's rate in IOs per
//!   second (Little's law). While its VMs want more than that, each is capped at its part. Caps are
//!   updated once a tick.
//! - **weights** under bfq, if the device's bound lies below the elevator. The kernel chooses whose IO goes next, within the tick too.
//!
//! Caps also bound the host below the least value of its knob, and hold VMs to their limits.

use std::collections::BTreeMap;

use parda_control::{Span, Window};

use crate::cgroup::bfq::Bfq;
use crate::cgroup::caps::{Cap, CapReason, Caps, most_ios};
use crate::cgroup::demand::{Begun, Demands, IoDemand, IoStat};
use crate::cgroup::files::{ForeignSetting, ShareError, hand_down_io};
use crate::cgroup::level::{Want, level};
use crate::cgroup::vms::{CgroupVms, VmKey};
use crate::device::{Device, QueueKind};
use crate::journal::{Journal, LockedJournal, Restored};

/// Least sum of the caps, relative to the rate that the window and the latency give. `io.max` admits slightly less than its limit, in
/// bursts. So the window would not be used, and the law would take the unused part away. Caps are therefore raised until the window is
/// used, and lowered while IOs wait above the queue.
const LEAST_SUM: f64 = 0.9;
/// Least sum of the caps under bfq, which needs waiting IOs to choose from.
const LEAST_SUM_BFQ: f64 = 1.05;
const MOST_SUM: f64 = 1.6;
/// Used part from which a window counts as used.
const USED: f64 = 0.95;
/// Factor by which the sum rises, at most, or falls in a period.
const RISE: f64 = 1.15;
const FALL: f64 = 0.98;
/// Demand of a VM that its cap holds back, as a multiple of its rate. IOs that wait for a cap are not visible.
const UNSEEN: f64 = 2.0;

/// Means by which VMs are held to their shares.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    serde::Serialize,
    serde::Deserialize,
    strum::Display,
    strum::EnumString,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Means {
    /// Caps (`io.max`), without weights.
    Caps,
    /// Weights of bfq, and caps.
    Bfq,
}

/// Limits of a host at a device for the next period.
#[derive(Clone, Copy, Debug)]
pub struct HostAllowance {
    /// Window of the host.
    pub window: Window,
    /// Mean device latency in the last period. Zero if no IO completed, so that it is unknown.
    pub latency: Span,
    /// Least value of the knob, in IOs ([`parda_control::DepthBounds::least`]).
    pub least: u32,
}

/// Shares of a host's VMs at one device, enforced. Dropping this restores the original settings.
#[derive(Debug)]
pub struct Sharing {
    journal: LockedJournal,
    stat: IoStat,
    caps: Caps,
    bfq: Option<Bfq>,
    /// IOs that each VM began in the last period, and the VMs that a cap held back.
    begun: BTreeMap<VmKey, Begun>,
    held_back: BTreeMap<VmKey, CapReason>,
    /// Rates of the VMs that are capped, in IOs per second.
    rates: BTreeMap<VmKey, f64>,
    /// Sum of the caps, relative to the rate that fits into the window.
    sum: f64,
    elapsed: Span,
    /// VMs that cannot be capped, with the reason.
    beyond: Vec<(VmKey, String)>,
    left: bool,
}

impl Sharing {
    /// Takes over the sharing of a device. Settings left behind by a process that died are restored
    /// first. Without `means`, they are chosen for the device.
    pub fn take(
        device: &Device,
        vms: &CgroupVms,
        means: Option<Means>,
        journal: &Journal,
    ) -> Result<Sharing, ShareError> {
        let (journal, _) = journal.hold(&Journal::of_cgroups(&device.name))?;
        let mut sharing = Sharing {
            journal,
            stat: IoStat::new(device.number),
            caps: Caps::new(device.number),
            bfq: None,
            begun: BTreeMap::new(),
            held_back: BTreeMap::new(),
            rates: BTreeMap::new(),
            sum: 1.0,
            elapsed: Span::ZERO,
            beyond: Vec::new(),
            left: false,
        };
        sharing.reach(vms)?;
        let chosen = means.unwrap_or_else(|| Means::of(device));
        if chosen == Means::Bfq {
            match Bfq::take(device, &mut sharing.journal) {
                Ok(bfq) => sharing.bfq = Some(bfq),
                // A kernel without bfq still has caps.
                Err(_) if means.is_none() => drop(sharing.journal.put_back()?),
                Err(error) => return Err(error),
            }
            if sharing.bfq.is_none() {
                sharing.reach(vms)?;
            }
        }
        sharing.stat.read(vms)?;
        Ok(sharing)
    }

    /// The means that are in use.
    #[must_use]
    pub fn means(&self) -> Means {
        if self.bfq.is_some() { Means::Bfq } else { Means::Caps }
    }

    /// VMs that cannot be held to anything, with the reason.
    #[must_use]
    pub fn beyond(&self) -> &[(VmKey, String)] {
        &self.beyond
    }

    /// The caps in force, by VM.
    pub fn caps(&self) -> impl Iterator<Item = (&VmKey, Cap)> {
        self.caps.in_force()
    }

    /// Reads `io.stat` for the period that ended. Call once a tick, after [`CgroupVms::refresh`] and before
    /// [`Sharing::demands`].
    pub fn look(&mut self, vms: &CgroupVms, elapsed: Span) -> Result<(), ShareError> {
        self.begun = self.stat.read(vms)?;
        self.elapsed = elapsed;
        let held = |(key, begun): (&VmKey, &Begun)| {
            Some((key.clone(), self.caps.held_back(key, *begun, elapsed.secs())?))
        };
        self.held_back = self.begun.iter().filter_map(held).collect();
        Ok(())
    }

    /// IOs that a VM began in the last period, as far as they were counted.
    #[must_use]
    pub fn begun(&self, key: &VmKey) -> Option<Begun> {
        self.begun.get(key).copied()
    }

    /// Cause that held a VM back in the last period, if its cap did.
    #[must_use]
    pub fn held_by(&self, key: &VmKey) -> Option<CapReason> {
        self.held_back.get(key).copied()
    }

    /// Bounds that another program has set on a VM, as `io.max` has them. None without any.
    #[must_use]
    pub fn theirs(&self, key: &VmKey) -> Option<String> {
        self.caps.theirs(key)
    }

    /// Whether a VM wants more than its shares give it.
    fn wants_more(&self, key: &VmKey) -> bool {
        self.held_by(key) == Some(CapReason::Shares)
    }

    /// Demand of all VMs, from the counters of each cgroup or, without them, from `io.stat`. A VM that its shares hold back wants more
    /// than is visible, at the latency of [`HostAllowance`]. What a limit holds back is no demand.
    #[must_use]
    pub fn demands(
        &self,
        vms: &CgroupVms,
        groups: Option<&[crate::measure::CgroupIos]>,
        whole: IoDemand,
        latency: Span,
    ) -> Demands {
        let mut demands = match groups {
            Some(groups) => Demands::of_groups(vms, groups),
            None => Demands::of_begun(vms, &self.begun, whole),
        };
        let seconds = self.elapsed.secs();
        if seconds > 0.0 {
            demands.queued = (whole.pending - whole.ios as f64 / seconds * latency.secs()).max(0.0);
        }
        if seconds > 0.0 && latency > Span::ZERO {
            for (key, demand) in &mut demands.vms {
                let gets = demand.ios as f64 / seconds * latency.secs();
                if self.wants_more(key) {
                    demand.pending = demand.pending.max(UNSEEN * gets);
                }
                demand.pending = demand.pending.min(most(vms, key, demand) * latency.secs());
            }
        }
        demands
    }

    /// Divides the host's limits. Call once a tick, after the window is known.
    pub fn set(
        &mut self,
        vms: &CgroupVms,
        demands: &Demands,
        allowance: HostAllowance,
    ) -> Result<Vec<ForeignSetting>, ShareError> {
        if vms.iter().any(|(key, _)| !demands.vms.contains_key(key) || !self.reached(vms, key)) {
            self.journal.forget_gone()?;
            self.reach(vms)?;
        }
        self.rates = self.split(vms, demands, allowance);
        let mut changed = Vec::new();
        if let Some(bfq) = &mut self.bfq {
            changed.extend(bfq.set(vms, &mut self.journal)?);
        }
        changed.extend(self.caps.set(vms, &self.rates, &self.begun, &mut self.journal)?);
        Ok(changed)
    }

    /// Restores the original settings.
    pub fn release(mut self) -> Result<Restored, ShareError> {
        self.left = true;
        self.caps.look_again(&mut self.journal)?;
        Ok(self.journal.put_back()?)
    }

    /// Leaves the settings in force. The journal stays, so that they can be restored later.
    pub fn leave(mut self) {
        self.left = true;
    }

    /// Rates of the VMs to be capped, in IOs per second.
    fn split(
        &mut self,
        vms: &CgroupVms,
        demands: &Demands,
        allow: HostAllowance,
    ) -> BTreeMap<VmKey, f64> {
        let latency = allow.latency.secs();
        let seconds = self.elapsed.secs();
        if latency <= 0.0 || seconds <= 0.0 {
            // Without a latency the rates are kept.
            return self.rates.clone();
        }
        let fits = allow.window.0 / latency;
        let ios = demands.rest.ios + demands.vms.values().map(|d| d.ios).sum::<u64>();
        self.follow(ios as f64 / seconds / fits, demands.queued);
        let all = fits * self.sum;
        // The host's own IO leaves less for its VMs, but at least a tenth.
        let theirs = (all - demands.rest.ios as f64 / seconds).max(all / 10.0);
        let want = |(key, demand)| {
            let shares = vms.get(key).map_or(0.0, |vm| vm.grant.shares);
            let demand: &IoDemand = demand;
            let rate = if self.wants_more(key) { f64::INFINITY } else { demand.pending / latency };
            Want { shares, rate: rate.min(most(vms, key, demand)) }
        };
        let wants: Vec<Want> = demands.vms.iter().map(want).collect();
        let capped = |key: &VmKey| self.beyond.iter().all(|(beyond, _)| beyond != key);
        let level = level(&wants, theirs);
        let rate = |(key, want): (&VmKey, &Want)| {
            level.filter(|_| capped(key)).map(|level| (key.clone(), level * want.shares))
        };
        demands.vms.keys().zip(&wants).filter_map(rate).collect()
    }

    /// Adjusts the sum of the caps. `used` is the used part of the window, `queued` the number of IOs
    /// that waited.
    fn follow(&mut self, used: f64, queued: f64) {
        let least = if self.bfq.is_some() { LEAST_SUM_BFQ } else { LEAST_SUM };
        if self.rates.is_empty() {
            // No VM was held back.
            self.sum = 1.0;
        } else if used < USED && used > 0.0 {
            self.sum *= (USED / used).sqrt().min(RISE);
        } else if queued > 1.0 {
            self.sum *= FALL;
        }
        self.sum = self.sum.clamp(least, MOST_SUM);
    }

    fn reached(&self, vms: &CgroupVms, key: &VmKey) -> bool {
        self.beyond.iter().any(|(beyond, _)| beyond == key) || vms.dir(key).join("io.max").exists()
    }

    /// Enables the io controller for all VMs.
    fn reach(&mut self, vms: &CgroupVms) -> Result<(), ShareError> {
        let failed = hand_down_io(vms, &mut self.journal)?;
        self.beyond = failed.into_iter().map(|(key, error)| (key, error.to_string())).collect();
        Ok(())
    }
}

impl Drop for Sharing {
    fn drop(&mut self) {
        if !self.left {
            // Errors cannot be reported on drop. Settings that fail to be restored stay in the journal.
            let _ = self.caps.look_again(&mut self.journal);
            let _ = self.journal.put_back();
        }
    }
}

impl Means {
    /// The means that suit a device: bfq if the device's knob lies below the elevator.
    #[must_use]
    pub fn of(device: &Device) -> Means {
        let below = |kind: &QueueKind| matches!(kind, QueueKind::Scsi { .. });
        let one = device.multipath.is_none();
        let suits = one && device.queues.iter().all(|queue| below(&queue.kind));
        if suits { Means::Bfq } else { Means::Caps }
    }
}

/// The most IOs per second that its limit allows a VM, at the size of its IOs.
fn most(vms: &CgroupVms, key: &VmKey, demand: &IoDemand) -> f64 {
    let bytes = demand.bytes as f64 / demand.ios.max(1) as f64;
    vms.get(key).map_or(f64::INFINITY, |vm| most_ios(&vm.limits(), bytes))
}
