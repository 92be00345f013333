//! Caps (`io.max`): limits on each VM's IOs per second. They work with every elevator and every
//! kind of device, and take effect without a drain. `io.max` limits reads and writes apart, and has
//! no limit on their sum, so a VM's cap is split as its IOs were in the period before.

use std::collections::BTreeMap;
use std::path::Path;

use crate::cgroup::demand::Begun;
use crate::cgroup::files::{ChangedSetting, ShareError, line, write_line};
use crate::cgroup::vms::{VmKey, Vms};
use crate::journal::LockedJournal;
use crate::number::DevNum;
use crate::sysfs;

/// Least part of a cap for the direction in which a VM was idle, so that it may begin to use it.
const OTHER_WAY: f64 = 0.1;
/// Least limit that the kernel accepts, in IOs per second.
const LEAST: f64 = 2.0;
/// Least relative change that is written. Each write restarts the kernel's own period.
const SAME: f64 = 0.02;
/// Part of its cap from which a VM counts as held back by it.
const HELD: f64 = 0.9;

/// Limits of one VM, in IOs per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap {
    /// Limit on reads per second.
    pub reads: u64,
    /// Limit on writes per second.
    pub writes: u64,
}

impl Cap {
    /// Splits `rate` IOs per second for a VM that began `begun` in the period before.
    fn split(rate: f64, begun: Begun) -> Cap {
        let all = begun.reads + begun.writes;
        let reads = if all == 0 { 1.0 } else { begun.reads as f64 / all as f64 };
        let writes = if all == 0 { 1.0 } else { begun.writes as f64 / all as f64 };
        let whole = |part: f64| (rate * part.max(OTHER_WAY)).round().max(LEAST) as u64;
        Cap { reads: whole(reads), writes: whole(writes) }
    }

    fn near(self, other: Cap) -> bool {
        let near = |a: u64, b: u64| (a as f64 - b as f64).abs() <= SAME * b as f64;
        near(self.reads, other.reads) && near(self.writes, other.writes)
    }
}

/// Caps of a host's VMs on one device.
#[derive(Debug)]
pub struct Caps {
    device: DevNum,
    /// The cgroup's id, and the cap in force. A new cgroup under an old path has no cap yet.
    in_force: BTreeMap<VmKey, (u64, Cap)>,
}

impl Caps {
    pub(crate) fn new(device: DevNum) -> Caps {
        Caps { device, in_force: BTreeMap::new() }
    }

    /// The caps in force, by VM.
    pub fn in_force(&self) -> impl Iterator<Item = (&VmKey, Cap)> {
        self.in_force.iter().map(|(key, (_, cap))| (key, *cap))
    }

    /// Whether a VM was held back by its cap alone in a period.
    #[must_use]
    pub fn held_back(&self, key: &VmKey, begun: Begun, seconds: f64) -> bool {
        let at = |ios: u64, cap: u64| ios as f64 >= HELD * cap as f64 * seconds;
        let cap = self.in_force.get(key).map(|(_, cap)| *cap);
        cap.is_some_and(|cap| at(begun.reads, cap.reads) || at(begun.writes, cap.writes))
    }

    /// Sets caps, in IOs per second, on these VMs, and removes those of all other VMs. Each cap is read
    /// back. Returns the caps that another process had changed.
    pub(crate) fn set(
        &mut self,
        vms: &Vms,
        rates: &BTreeMap<VmKey, f64>,
        begun: &BTreeMap<VmKey, Begun>,
        journal: &mut LockedJournal,
    ) -> Result<Vec<ChangedSetting>, ShareError> {
        let mut changed = Vec::new();
        for (key, vm) in vms.iter() {
            let file = vms.dir(key).join("io.max");
            let before = self.in_force.get(key).filter(|(id, _)| *id == vm.id).map(|(_, cap)| *cap);
            let begun = begun.get(key).copied().unwrap_or_default();
            let cap = rates.get(key).map(|rate| Cap::split(*rate, begun));
            let done = match (before, cap) {
                (None, None) => continue,
                (Some(_), None) => self.clear_one(key, &file, journal).map(|()| None),
                (before, Some(cap)) => self.set_one(key, vm.id, &file, before, cap, journal),
            };
            match done {
                Ok(found) => changed.extend(found),
                // The cap went away with its VM.
                Err(ShareError::Sys(error)) if error.gone() => {
                    self.in_force.remove(key);
                }
                Err(error) => return Err(error),
            }
        }
        self.in_force.retain(|key, _| vms.get(key).is_some());
        Ok(changed)
    }

    fn set_one(
        &mut self,
        key: &VmKey,
        id: u64,
        file: &Path,
        before: Option<Cap>,
        cap: Cap,
        journal: &mut LockedJournal,
    ) -> Result<Option<ChangedSetting>, ShareError> {
        let now = sysfs::read(file)?;
        let now = line(&now, self.device).unwrap_or_default();
        let changed = before
            .filter(|before| found(now) != Some(*before))
            .map(|_| ChangedSetting { what: format!("{key}: io.max"), found: now.to_owned() });
        if changed.is_none() && before.is_some_and(|before| cap.near(before)) {
            return Ok(None);
        }
        let value = format!("riops={} wiops={}", cap.reads, cap.writes);
        let is = |line: &str| found(line) == Some(cap);
        write_line(file, self.device, (UNBOUNDED, &value), journal, is)?;
        self.in_force.insert(key.clone(), (id, cap));
        Ok(changed)
    }

    /// Restores the original value, which may be a limit set by somebody else.
    fn clear_one(
        &mut self,
        key: &VmKey,
        file: &Path,
        journal: &mut LockedJournal,
    ) -> Result<(), ShareError> {
        let known = journal.originals().iter().find(|original| original.file == file);
        let value =
            known.map_or_else(|| format!("{} {UNBOUNDED}", self.device), |o| o.value.clone());
        sysfs::write(file, &value)?;
        self.in_force.remove(key);
        Ok(())
    }
}

const UNBOUNDED: &str = "rbps=max wbps=max riops=max wiops=max";

/// Parses a line of `io.max`: `rbps=max wbps=max riops=100 wiops=max`.
fn found(line: &str) -> Option<Cap> {
    let of = |name: &str| {
        let value = line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='))?;
        value.parse().ok()
    };
    Some(Cap { reads: of("riops")?, writes: of("wiops")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cap_is_split_as_the_ios_were() {
        let begun = |reads, writes| Begun { reads, writes, bytes: 0 };
        assert_eq!(Cap::split(1000.0, begun(300, 100)), Cap { reads: 750, writes: 250 });
        assert_eq!(Cap::split(1000.0, begun(300, 0)), Cap { reads: 1000, writes: 100 });
        assert_eq!(Cap::split(1000.0, begun(0, 0)), Cap { reads: 1000, writes: 1000 });
        assert_eq!(Cap::split(0.2, begun(1, 0)), Cap { reads: 2, writes: 2 }, "as low as it goes");
    }

    #[test]
    fn a_line_is_read_as_the_kernel_writes_it() {
        let both = "rbps=max wbps=1048576 riops=120 wiops=12";
        assert_eq!(found(both), Some(Cap { reads: 120, writes: 12 }));
        assert_eq!(found("rbps=max wbps=max riops=120 wiops=max"), None);
        assert_eq!(found(""), None);
    }
}
