//! `io.max`: at most so many IOs a second for each VM. It works with every elevator and on every
//! kind of device, and does not wait for anything to drain. It knows reads and writes apart and has
//! no bound on both together, so a VM's cap is split as its IOs were in the period before.

use std::collections::BTreeMap;
use std::path::Path;

use crate::cgroup::demand::Begun;
use crate::cgroup::files::{line, original};
use crate::cgroup::vms::{VmKey, Vms};
use crate::journal::{Held, JournalError};
use crate::number::DevNum;
use crate::sysfs::{self, SysError};

/// What is left for the direction of which a VM did nothing, as a part of its cap: it may begin to.
const OTHER_WAY: f64 = 0.1;
/// The kernel takes no less.
const LEAST: f64 = 2.0;
/// A change of less than this part is not written: it starts the kernel's own period anew.
const SAME: f64 = 0.02;
/// From this part of its cap on a VM counts as held back by it.
const HELD: f64 = 0.9;

/// Most IOs per second of one VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap {
    /// Reads per second.
    pub reads: u64,
    /// Writes per second.
    pub writes: u64,
}

impl Cap {
    /// `rate` IOs per second for a VM that did `begun` in the period before.
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

/// Somebody else changed a VM's cap. It has been set again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapChanged {
    /// Whose.
    pub vm: VmKey,
    /// What was found.
    pub found: String,
}

/// The caps of a host's VMs on one device.
#[derive(Debug)]
pub struct Caps {
    device: DevNum,
    /// The cgroup's id, and what is in force. Another cgroup under the same path has no cap yet.
    in_force: BTreeMap<VmKey, (u64, Cap)>,
}

impl Caps {
    pub(crate) fn new(device: DevNum) -> Caps {
        Caps { device, in_force: BTreeMap::new() }
    }

    /// What is in force.
    pub fn in_force(&self) -> impl Iterator<Item = (&VmKey, Cap)> {
        self.in_force.iter().map(|(key, (_, cap))| (key, *cap))
    }

    /// Whether its cap, and nothing else, held a VM back in a period.
    #[must_use]
    pub fn held_back(&self, key: &VmKey, begun: Begun, seconds: f64) -> bool {
        let at = |ios: u64, cap: u64| ios as f64 >= HELD * cap as f64 * seconds;
        let cap = self.in_force.get(key).map(|(_, cap)| *cap);
        cap.is_some_and(|cap| at(begun.reads, cap.reads) || at(begun.writes, cap.writes))
    }

    /// Sets caps, in IOs per second, on these VMs, and takes them from all others. Each is read
    /// back; what somebody else had changed is told.
    pub(crate) fn set(
        &mut self,
        vms: &Vms,
        rates: &BTreeMap<VmKey, f64>,
        begun: &BTreeMap<VmKey, Begun>,
        journal: &mut Held,
    ) -> Result<Vec<CapChanged>, CapError> {
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
                // It went away with its VM.
                Err(CapError::Sys(error)) if error.gone() => {
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
        journal: &mut Held,
    ) -> Result<Option<CapChanged>, CapError> {
        let now = sysfs::read(file)?;
        let now = line(&now, self.device).unwrap_or_default();
        let changed = before
            .filter(|before| found(now) != Some(*before))
            .map(|_| CapChanged { vm: key.clone(), found: now.to_owned() });
        if changed.is_none() && before.is_some_and(|before| cap.near(before)) {
            return Ok(None);
        }
        if before.is_none() {
            journal.note(&[original(file, self.device, UNBOUNDED)?])?;
        }
        let value = format!("{} riops={} wiops={}", self.device, cap.reads, cap.writes);
        sysfs::write(file, &value)?;
        let text = sysfs::read(file)?;
        let back = line(&text, self.device).unwrap_or_default();
        if found(back) != Some(cap) {
            let (file, back) = (file.to_owned(), back.to_owned());
            return Err(CapError::NotInForce { file, value, back });
        }
        self.in_force.insert(key.clone(), (id, cap));
        Ok(changed)
    }

    /// What was there before, which may be a bound of somebody else's.
    fn clear_one(&mut self, key: &VmKey, file: &Path, journal: &mut Held) -> Result<(), CapError> {
        let known = journal.originals().iter().find(|original| original.file == file);
        let value =
            known.map_or_else(|| format!("{} {UNBOUNDED}", self.device), |o| o.value.clone());
        sysfs::write(file, &value)?;
        self.in_force.remove(key);
        Ok(())
    }
}

const UNBOUNDED: &str = "rbps=max wbps=max riops=max wiops=max";

/// The caps in a line of `io.max`: `rbps=max wbps=max riops=100 wiops=max`.
fn found(line: &str) -> Option<Cap> {
    let of = |name: &str| {
        let value = line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='))?;
        value.parse().ok()
    };
    Some(Cap { reads: of("riops")?, writes: of("wiops")? })
}

/// Why a cap is not as it should be.
#[derive(Debug, thiserror::Error)]
pub enum CapError {
    /// The kernel does not take it.
    #[error(transparent)]
    Sys(#[from] SysError),
    /// What was there before cannot be kept.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// It took it, and has something else.
    #[error("{}: holds {back:?} after {value:?} was written", file.display())]
    NotInForce {
        /// Which file.
        file: std::path::PathBuf,
        /// What was written.
        value: String,
        /// What it holds now.
        back: String,
    },
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
