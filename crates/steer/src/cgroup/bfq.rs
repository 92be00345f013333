//! Weights under the elevator bfq. The elevator chooses the VM whose IO goes next. So it divides
//! all IOs that leave it. The part that one VM leaves goes to the others at once. For this, IOs
//! must wait in the elevator. So the bound must lie below it (a LUN's queue depth), not above
//! (`nr_requests`).
//!
//! bfq's defaults suit desktops. The device idles for a process that might go on, new processes are
//! favoured, and one queue is served for up to 125 ms. At a small depth the result is far from the
//! weights.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::cgroup::files::{ForeignSetting, ShareError, line, lineage, write_line};
use crate::cgroup::vms::CgroupVms;
use crate::device::Device;
use crate::journal::{LockedJournal, Original};
use crate::number::DevNum;
use crate::sysfs;

const NAME: &str = "bfq";
/// Reaction to a weight or an elevator that another process changed.
const SET_AGAIN: &str = "set again";
/// Settings of bfq, each with its reason.
const SETTINGS: [(&str, &str); 4] = [
    // Never idle the device for the process that was served last.
    ("slice_idle", "0"),
    // Never favour a process because it started a while ago.
    ("low_latency", "0"),
    // In sectors: another VM's turn comes after 32 KiB …
    ("max_budget", "64"),
    // … or after one tick of the kernel's clock.
    ("timeout_sync", "1"),
];
/// Greatest weight of bfq.
const MOST: f64 = 1000.0;

/// A device under bfq, with weights for VMs.
#[derive(Debug)]
pub(crate) struct Bfq {
    device: DevNum,
    queue: PathBuf,
    /// Weights as read back, by the cgroup's path.
    weights: BTreeMap<String, u32>,
}

impl Bfq {
    /// Switches a device to bfq.
    pub(crate) fn take(device: &Device, journal: &mut LockedJournal) -> Result<Bfq, ShareError> {
        let queue = device.dir().join("queue");
        let bfq = Bfq { device: device.number, queue, weights: BTreeMap::new() };
        let scheduler = bfq.queue.join("scheduler");
        let now = sysfs::choice(&scheduler)?;
        if now == NAME {
            for (name, _) in SETTINGS {
                journal.note(&[Original::of(&bfq.setting(name))?])?;
            }
        } else {
            journal.note(&[Original::new(&scheduler, now)])?;
        }
        bfq.set_up()?;
        Ok(bfq)
    }

    /// Chooses bfq and applies its settings. The kernel loads the module if it may.
    fn set_up(&self) -> Result<(), ShareError> {
        let scheduler = self.queue.join("scheduler");
        if sysfs::choice(&scheduler)? != NAME {
            sysfs::write(&scheduler, NAME)?;
            let offered = sysfs::read(&scheduler)?;
            if sysfs::chosen(&offered) != NAME {
                return Err(ShareError::NoBfq { file: scheduler.display().to_string(), offered });
            }
        }
        for (name, value) in SETTINGS {
            sysfs::write(&self.setting(name), value)?;
        }
        Ok(())
    }

    /// Sets weights, for this device alone, and repairs earlier settings that were changed.
    pub(crate) fn set(
        &mut self,
        vms: &CgroupVms,
        journal: &mut LockedJournal,
    ) -> Result<Vec<ForeignSetting>, ShareError> {
        let mut changed = Vec::new();
        let scheduler = self.queue.join("scheduler");
        let offered = sysfs::read(&scheduler)?;
        if sysfs::chosen(&offered) != NAME {
            // The elevator that another process chose is the value to restore, for whatever reason
            // it was chosen.
            let value = sysfs::chosen(&offered).to_owned();
            journal.correct(Original::new(&scheduler, value))?;
            let what = scheduler.display().to_string();
            changed.push(ForeignSetting { what, found: offered, then: SET_AGAIN });
            self.set_up()?;
        }
        let weights = weights(vms.iter().map(|(key, vm)| (lineage(key), vm.grant.shares)));
        for (path, weight) in &weights {
            let file = vms.mounted().join(path).join("io.bfq.weight");
            match self.set_one(&file, self.weights.get(path).copied(), *weight, journal) {
                Ok(found) => {
                    let what = file.display().to_string();
                    changed.extend(found.map(|found| ForeignSetting {
                        what,
                        found,
                        then: SET_AGAIN,
                    }));
                }
                Err(ShareError::Sys(error)) if error.gone() => {}
                Err(error) => return Err(error),
            }
        }
        self.weights = weights;
        Ok(changed)
    }

    fn set_one(
        &self,
        file: &std::path::Path,
        before: Option<u32>,
        weight: u32,
        journal: &mut LockedJournal,
    ) -> Result<Option<String>, ShareError> {
        let text = sysfs::read(file)?;
        let now = line(&text, self.device);
        let is = |weight: u32| now == Some(weight.to_string().as_str());
        if is(weight) {
            return Ok(None);
        }
        // A new cgroup under an old path has no line yet, which is no change by another process.
        let changed = before.filter(|before| now.is_some() && !is(*before));
        let value = weight.to_string();
        write_line(file, self.device, ("default", &value), journal, |line| line == value)?;
        Ok(changed.and(now).map(str::to_owned))
    }

    fn setting(&self, name: &str) -> PathBuf {
        self.queue.join("iosched").join(name)
    }
}

/// Weights of cgroups from the shares of VMs and the cgroups that each lies in. Children of one
/// cgroup are weighted by the sum of the shares of the VMs inside.
fn weights(vms: impl Iterator<Item = (Vec<String>, f64)>) -> BTreeMap<String, u32> {
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    for (lineage, shares) in vms {
        for path in lineage {
            *sums.entry(path).or_default() += shares;
        }
    }
    let parent = |path: &str| path.rsplit_once('/').map_or("", |(above, _)| above).to_owned();
    let mut most: BTreeMap<String, f64> = BTreeMap::new();
    for (path, sum) in &sums {
        let greatest = most.entry(parent(path)).or_default();
        *greatest = greatest.max(*sum);
    }
    let weight = |path: &str, sum: f64| {
        (MOST * sum / most.get(&parent(path)).copied().unwrap_or(sum)).round().clamp(1.0, MOST)
            as u32
    };
    sums.iter().map(|(path, sum)| (path.clone(), weight(path, *sum))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::vms::VmKey;

    #[test]
    fn weights_are_as_shares_at_every_level() {
        let vms = [("m/a", 2000.0), ("m/b", 1000.0), ("s/c", 1000.0)];
        let found = weights(vms.iter().map(|(p, s)| (lineage(&VmKey((*p).to_owned())), *s)));
        let expected = [("m", 1000), ("m/a", 1000), ("m/b", 500), ("s", 333), ("s/c", 1000)];
        assert_eq!(found, expected.map(|(p, w)| (p.to_owned(), w)).into());
    }
}
