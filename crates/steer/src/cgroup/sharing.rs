//! A host's window split over its VMs by their shares.
//!
//! Two means, together where both can be had:
//!
//! - **caps** (`io.max`), always: the window and the device latency say how many IOs a second the
//!   host may do (Little's law), and while its VMs want more than that, each is held to its part.
//!   They follow once a tick.
//! - **weights** under bfq, where what bounds the device lies below the elevator: the kernel then
//!   chooses by itself whose IO goes next, within the tick too.
//!
//! Caps also bound the host where its knob cannot: below its floor.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use parda_control::{Shares, Span, Window};

use crate::cgroup::bfq::{Bfq, BfqChanged, BfqError};
use crate::cgroup::caps::{Cap, CapChanged, CapError, Caps};
use crate::cgroup::demand::{Begun, Demands, IoStat, Whole};
use crate::cgroup::files::hand_down_io;
use crate::cgroup::level::{Want, level};
use crate::cgroup::vms::{VmKey, Vms};
use crate::device::{Device, Kind};
use crate::journal::{Held, Journal, JournalError, Restored};
use crate::sysfs::SysError;

/// How far the sum of the caps may be from what the window and the latency say. `io.max` lets
/// through a little less than it is told, in bursts: the window would not be used, and the law takes
/// what is not used away. So caps are raised until it is, and lowered while IOs wait all the same.
const LEAST_SUM: f64 = 0.9;
/// Under bfq something must wait, for it to choose from.
const LEAST_SUM_BFQ: f64 = 1.05;
const MOST_SUM: f64 = 1.6;
/// From this part on a window counts as used.
const USED: f64 = 0.95;
/// How much the sum may rise, and does fall, in a period.
const RISE: f64 = 1.15;
const FALL: f64 = 0.98;
/// What a VM that its cap holds back is taken to want: this many times what it gets. What waits for
/// a cap cannot be seen.
const UNSEEN: f64 = 2.0;

/// What VMs' shares are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// `io.max` alone.
    Caps,
    /// bfq's weights, and `io.max`.
    Bfq,
}

/// Not a means.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} does not say how VMs share: it must be \"caps\" or \"bfq\"")]
pub struct NoMeans(String);

impl FromStr for Means {
    type Err = NoMeans;

    fn from_str(text: &str) -> Result<Means, NoMeans> {
        match text {
            "caps" => Ok(Means::Caps),
            "bfq" => Ok(Means::Bfq),
            other => Err(NoMeans(other.to_owned())),
        }
    }
}

impl fmt::Display for Means {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Means::Caps => "caps",
            Means::Bfq => "bfq",
        })
    }
}

/// What a host may do at a device in the next period.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    /// Its window.
    pub window: Window,
    /// Mean device latency in the last period. Zero: no IO completed, so nothing is known.
    pub latency: Span,
    /// The least that the knob can be set to ([`crate::steering::Bounds::least`]).
    pub least: u32,
}

/// What happened to what was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// A cap was changed by somebody else.
    Cap(CapChanged),
    /// The elevator, or a weight, was.
    Bfq(BfqChanged),
}

impl fmt::Display for Happened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, found) = match self {
            Happened::Cap(CapChanged { vm, found }) => (format!("{vm}: io.max"), found),
            Happened::Bfq(BfqChanged { file, found }) => (file.display().to_string(), found),
        };
        write!(f, "{what}: somebody changed it to {found:?}; set again")
    }
}

/// The shares of a host's VMs at one device, in our hands. Dropped, it puts back what was there
/// before.
#[derive(Debug)]
pub struct Sharing {
    journal: Held,
    stat: IoStat,
    caps: Caps,
    bfq: Option<Bfq>,
    /// What each VM began in the last period, and which of them a cap held back.
    begun: BTreeMap<VmKey, Begun>,
    held_back: Vec<VmKey>,
    /// IOs per second of each VM that is capped.
    rates: BTreeMap<VmKey, f64>,
    /// The sum of the caps, as a part of what fits into the window.
    sum: f64,
    elapsed: Span,
    /// VMs that cannot be capped, and why.
    beyond: Vec<(VmKey, String)>,
    left: bool,
}

impl Sharing {
    /// Takes hold of what shares a device among VMs. What a process that died left set is put back
    /// first. `means`: None chooses.
    pub fn take(
        device: &Device,
        vms: &Vms,
        means: Option<Means>,
        journal: &Journal,
    ) -> Result<Sharing, ShareError> {
        let (journal, _) = journal.hold(&journal_of(device))?;
        let mut sharing = Sharing {
            journal,
            stat: IoStat::new(device.number),
            caps: Caps::new(device.number),
            bfq: None,
            begun: BTreeMap::new(),
            held_back: Vec::new(),
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
                // A kernel without it: the caps are there.
                Err(_) if means.is_none() => drop(sharing.journal.put_back()?),
                Err(error) => return Err(error.into()),
            }
            if sharing.bfq.is_none() {
                sharing.reach(vms)?;
            }
        }
        sharing.stat.read(vms)?;
        Ok(sharing)
    }

    /// What is in use.
    #[must_use]
    pub fn means(&self) -> Means {
        if self.bfq.is_some() { Means::Bfq } else { Means::Caps }
    }

    /// VMs that cannot be held to anything, and why.
    #[must_use]
    pub fn beyond(&self) -> &[(VmKey, String)] {
        &self.beyond
    }

    /// The caps in force.
    pub fn caps(&self) -> impl Iterator<Item = (&VmKey, Cap)> {
        self.caps.in_force()
    }

    /// What VMs did in the period that ended, from `io.stat`. Once a tick, after
    /// [`Vms::refresh`] and before [`Sharing::demands`].
    pub fn look(&mut self, vms: &Vms, elapsed: Span) -> Result<(), ShareError> {
        self.begun = self.stat.read(vms)?;
        self.elapsed = elapsed;
        let held = |(key, begun): (&VmKey, &Begun)| {
            self.caps.held_back(key, *begun, elapsed.secs()).then(|| key.clone())
        };
        self.held_back = self.begun.iter().filter_map(held).collect();
        Ok(())
    }

    /// What VMs want: what was counted of each cgroup, or, where nothing was, what follows from
    /// `io.stat`. A VM that its cap holds back wants more than can be seen, at the latency of
    /// [`Allowance`].
    #[must_use]
    pub fn demands(
        &self,
        vms: &Vms,
        groups: Option<&[crate::measure::Group]>,
        whole: Whole,
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
        for key in &self.held_back {
            if let Some(demand) = demands.vms.get_mut(key).filter(|_| seconds > 0.0) {
                let gets = demand.ios as f64 / seconds * latency.secs();
                demand.pending = demand.pending.max(UNSEEN * gets);
            }
        }
        demands
    }

    /// Splits what the host may do. Once a tick, after the window is known.
    pub fn set(
        &mut self,
        vms: &Vms,
        demands: &Demands,
        allowance: Allowance,
    ) -> Result<Vec<Happened>, ShareError> {
        if vms.iter().any(|(key, _)| !demands.vms.contains_key(key) || !self.reached(vms, key)) {
            self.journal.forget_gone()?;
            self.reach(vms)?;
        }
        self.rates = self.split(vms, demands, allowance);
        let mut happened = Vec::new();
        if let Some(bfq) = &mut self.bfq {
            happened.extend(bfq.set(vms, &mut self.journal)?.into_iter().map(Happened::Bfq));
        }
        let changed = self.caps.set(vms, &self.rates, &self.begun, &mut self.journal)?;
        happened.extend(changed.into_iter().map(Happened::Cap));
        Ok(happened)
    }

    /// Puts back what was there before.
    pub fn release(mut self) -> Result<Restored, ShareError> {
        self.left = true;
        Ok(self.journal.put_back()?)
    }

    /// Leaves what is set in force. The journal stays, for whoever restores it.
    pub fn leave(mut self) {
        self.left = true;
    }

    /// IOs per second of each VM that is to be capped.
    fn split(&mut self, vms: &Vms, demands: &Demands, allow: Allowance) -> BTreeMap<VmKey, f64> {
        let latency = allow.latency.secs();
        let seconds = self.elapsed.secs();
        if latency <= 0.0 || seconds <= 0.0 {
            // Nothing is known of the device: as it was.
            return self.rates.clone();
        }
        let fits = allow.window.0 / latency;
        let ios = demands.rest.ios + demands.vms.values().map(|d| d.ios).sum::<u64>();
        self.follow(ios as f64 / seconds / fits, demands.queued);
        let all = fits * self.sum;
        // What the host does itself leaves less for its VMs, but never nothing.
        let theirs = (all - demands.rest.ios as f64 / seconds).max(all / 10.0);
        let want = |(key, demand)| {
            let shares = vms.get(key).map_or(Shares(0), |vm| vm.shares);
            let held = self.held_back.contains(key);
            let demand: &crate::cgroup::Demand = demand;
            let rate = if held { f64::INFINITY } else { demand.pending / latency };
            Want { shares: f64::from(shares.0), rate }
        };
        let wants: Vec<Want> = demands.vms.iter().map(want).collect();
        let capped = |key: &VmKey| self.beyond.iter().all(|(beyond, _)| beyond != key);
        let level = level(&wants, theirs);
        let rate = |(key, want): (&VmKey, &Want)| {
            level.filter(|_| capped(key)).map(|level| (key.clone(), level * want.shares))
        };
        demands.vms.keys().zip(&wants).filter_map(rate).collect()
    }

    /// Moves the sum of the caps. `used`: part of the window that was; `queued`: IOs that waited.
    fn follow(&mut self, used: f64, queued: f64) {
        let least = if self.bfq.is_some() { LEAST_SUM_BFQ } else { LEAST_SUM };
        if self.rates.is_empty() {
            // Nobody was held back.
            self.sum = 1.0;
        } else if used < USED && used > 0.0 {
            self.sum *= (USED / used).sqrt().min(RISE);
        } else if queued > 1.0 {
            self.sum *= FALL;
        }
        self.sum = self.sum.clamp(least, MOST_SUM);
    }

    fn reached(&self, vms: &Vms, key: &VmKey) -> bool {
        self.beyond.iter().any(|(beyond, _)| beyond == key) || vms.dir(key).join("io.max").exists()
    }

    /// Has the io controller handed down to all VMs.
    fn reach(&mut self, vms: &Vms) -> Result<(), ShareError> {
        let failed = hand_down_io(vms, &mut self.journal)?;
        self.beyond = failed.into_iter().map(|(key, error)| (key, error.to_string())).collect();
        Ok(())
    }
}

impl Drop for Sharing {
    fn drop(&mut self) {
        if !self.left {
            // Nobody is left to tell; what fails stays in the journal for whoever comes next.
            let _ = self.journal.put_back();
        }
    }
}

impl Means {
    /// What suits a device: bfq where its knob lies below the elevator.
    #[must_use]
    pub fn of(device: &Device) -> Means {
        let below = |kind: &Kind| matches!(kind, Kind::Scsi { .. });
        let one = device.multipath.is_none();
        let suits = one && device.queues.iter().all(|queue| below(&queue.kind));
        if suits { Means::Bfq } else { Means::Caps }
    }
}

/// The journal of a device's cgroups.
fn journal_of(device: &Device) -> String {
    format!("{}.cgroups", device.name)
}

/// Why VMs cannot be held to their shares.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    /// A file of the kernel's.
    #[error(transparent)]
    Sys(#[from] SysError),
    /// What was there before cannot be kept, or put back.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Caps.
    #[error(transparent)]
    Cap(#[from] CapError),
    /// Weights.
    #[error(transparent)]
    Bfq(#[from] BfqError),
}
