//! Weights under the elevator bfq. It chooses whose IO goes next, so it shares what leaves the
//! elevator, whatever that is, and gives what one VM leaves to the others at once. That needs IOs
//! that wait in the elevator: the bound must be below it (a LUN's queue depth), not above
//! (`nr_requests`).
//!
//! As it comes, bfq is made for desktops: it idles the device for whoever might go on, favours what
//! starts, and serves one queue for up to 125 ms, which at a small depth gives anything but the
//! weights.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::cgroup::files::{line, lineage, original};
use crate::cgroup::vms::Vms;
use crate::device::Device;
use crate::journal::{Held, How, JournalError, Original};
use crate::number::DevNum;
use crate::sysfs::{self, SysError};

const NAME: &str = "bfq";
/// What is set of it, and why.
const SETTINGS: [(&str, &str); 4] = [
    // Never keep the device waiting for the next IO of the one that was served last.
    ("slice_idle", "0"),
    // Nobody is favoured for having started a while ago.
    ("low_latency", "0"),
    // Sectors: another VM's turn comes after 32 KiB …
    ("max_budget", "64"),
    // … or after one tick of the kernel's clock.
    ("timeout_sync", "1"),
];
/// bfq's greatest weight.
const MOST: f64 = 1000.0;

/// Something of bfq's that somebody else changed. It has been set again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BfqChanged {
    /// Which file.
    pub file: PathBuf,
    /// What it held.
    pub found: String,
}

/// A device under bfq, with weights for VMs.
#[derive(Debug)]
pub(crate) struct Bfq {
    device: DevNum,
    queue: PathBuf,
    /// What each weight was read back as, by the cgroup's path.
    weights: BTreeMap<String, u32>,
}

impl Bfq {
    /// Puts a device under bfq.
    pub(crate) fn take(device: &Device, journal: &mut Held) -> Result<Bfq, BfqError> {
        let queue = device.dir().join("queue");
        let bfq = Bfq { device: device.number, queue, weights: BTreeMap::new() };
        let scheduler = bfq.queue.join("scheduler");
        let offered = sysfs::read(&scheduler)?;
        let now = sysfs::chosen(&offered).to_owned();
        let how = How::Write;
        if now == NAME {
            for (name, _) in SETTINGS {
                journal.note(&[Original::of(&bfq.setting(name))?])?;
            }
        } else {
            let file = scheduler.clone();
            journal.note(&[Original { file, value: now, only_if: None, how }])?;
        }
        bfq.set_up()?;
        Ok(bfq)
    }

    /// Chosen, and its settings. Choosing it loads its module where that is allowed.
    fn set_up(&self) -> Result<(), BfqError> {
        let scheduler = self.queue.join("scheduler");
        if sysfs::chosen(&sysfs::read(&scheduler)?) != NAME {
            sysfs::write(&scheduler, NAME)?;
            let offered = sysfs::read(&scheduler)?;
            if sysfs::chosen(&offered) != NAME {
                return Err(BfqError::NotThere { file: scheduler, offered });
            }
        }
        for (name, value) in SETTINGS {
            sysfs::write(&self.setting(name), value)?;
        }
        Ok(())
    }

    /// Sets the weights, which are of this device alone, and looks after what was set before.
    pub(crate) fn set(
        &mut self,
        vms: &Vms,
        journal: &mut Held,
    ) -> Result<Vec<BfqChanged>, BfqError> {
        let mut changed = Vec::new();
        let scheduler = self.queue.join("scheduler");
        let offered = sysfs::read(&scheduler)?;
        if sysfs::chosen(&offered) != NAME {
            changed.push(BfqChanged { file: scheduler, found: offered });
            // What another elevator was chosen for is not ours to know, so it is what comes back.
            let how = How::Write;
            let value = sysfs::chosen(&changed[0].found).to_owned();
            let file = changed[0].file.clone();
            journal.correct(Original { file, value, only_if: None, how })?;
            self.set_up()?;
        }
        let weights = weights(vms.iter().map(|(key, vm)| (lineage(key), f64::from(vm.shares.0))));
        for (path, weight) in &weights {
            let file = vms.mounted().join(path).join("io.bfq.weight");
            match self.set_one(&file, self.weights.get(path).copied(), *weight, journal) {
                Ok(found) => {
                    changed.extend(found.map(|found| BfqChanged { file, found }));
                }
                Err(BfqError::Sys(error)) if error.gone() => {}
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
        journal: &mut Held,
    ) -> Result<Option<String>, BfqError> {
        let text = sysfs::read(file)?;
        let now = line(&text, self.device);
        let is = |weight: u32| now == Some(weight.to_string().as_str());
        if is(weight) {
            return Ok(None);
        }
        // A new cgroup under an old path has no line: nobody took it away.
        let changed = before.filter(|before| now.is_some() && !is(*before));
        journal.note(&[original(file, self.device, "default")?])?;
        sysfs::write(file, &format!("{} {weight}", self.device))?;
        let back = sysfs::read(file)?;
        if line(&back, self.device) != Some(weight.to_string().as_str()) {
            return Err(BfqError::NotInForce { file: file.to_owned(), weight, back });
        }
        Ok(changed.and(now).map(str::to_owned))
    }

    fn setting(&self, name: &str) -> PathBuf {
        self.queue.join("iosched").join(name)
    }
}

/// Weights of cgroups, from the shares of VMs and the cgroups that each lies in: among the
/// children of one cgroup they are as the shares of the VMs inside them.
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

/// Why there are no weights.
#[derive(Debug, thiserror::Error)]
pub enum BfqError {
    /// The kernel does not take something.
    #[error(transparent)]
    Sys(#[from] SysError),
    /// What was there before cannot be kept.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The elevator cannot be had.
    #[error("{}: offers {offered}, no bfq", file.display())]
    NotThere {
        /// Which file.
        file: PathBuf,
        /// What it offers.
        offered: String,
    },
    /// It took a weight, and has another.
    #[error("{}: holds {back:?} after the weight {weight} was written", file.display())]
    NotInForce {
        /// Which file.
        file: PathBuf,
        /// What was written.
        weight: u32,
        /// What it holds now.
        back: String,
    },
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
