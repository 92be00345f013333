//! Cgroup files with a line for each device, and the io controller that makes the files appear.

use std::fmt;
use std::fs;
use std::path::Path;

use crate::cgroup::vms::{CgroupVms, VmKey};
use crate::journal::{JournalError, LockedJournal, Original};
use crate::number::DevNum;
pub(crate) use crate::number::line;
use crate::sysfs::{self, SysError};

/// The journal entry that restores a device's line. `unset` is written if there was no line.
fn original(file: &Path, device: DevNum, unset: &str) -> Result<Original, SysError> {
    let text = sysfs::read(file)?;
    let value = format!("{device} {}", line(&text, device).unwrap_or(unset));
    Original::of_cgroup(file, value)
}

/// A setting of a cgroup or an elevator that another process changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignSetting {
    /// The VM or the file, and the setting.
    pub what: String,
    /// Content that was found in the file.
    pub found: String,
    /// Reaction to the change.
    pub then: &'static str,
}

impl fmt::Display for ForeignSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ForeignSetting { what, found, then } = self;
        write!(f, "{what}: another program has set {found:?}; {then}")
    }
}

/// Reason why VMs cannot be held to their shares.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    /// A file of the kernel cannot be read or written.
    #[error(transparent)]
    Sys(#[from] SysError),
    /// An original value cannot be stored or restored.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The kernel has no bfq for the device.
    #[error("{file}: offers {offered}, no bfq")]
    NoBfq {
        /// File of the device's scheduler.
        file: String,
        /// Schedulers that the kernel offers.
        offered: String,
    },
    /// The kernel took a value and has another one in force.
    #[error("{file}: holds {found:?} after {written:?} was written")]
    NotInForce {
        /// File that was written.
        file: String,
        /// Value that the kernel has in force.
        found: String,
        /// Value that was written.
        written: String,
    },
}

/// Writes a device's line, once the original line is in the journal, and checks the line in force afterwards. `unset` is the
/// original if there was no line.
///
/// # Errors
/// A file or the journal fails, or something else is in force.
pub(crate) fn write_line(
    file: &Path,
    device: DevNum,
    (unset, value): (&str, &str),
    journal: &mut LockedJournal,
    in_force: impl Fn(&str) -> bool,
) -> Result<(), ShareError> {
    journal.note(&[original(file, device, unset)?])?;
    let value = format!("{device} {value}");
    sysfs::write(file, &value)?;
    let text = sysfs::read(file)?;
    let back = line(&text, device).unwrap_or_default();
    if in_force(back) {
        return Ok(());
    }
    let (file, found) = (file.display().to_string(), back.to_owned());
    Err(ShareError::NotInForce { file, found, written: value })
}

/// Enables the io controller in all cgroups above the VMs', so that the VMs' cgroups have its
/// files. Returns the VMs for which this failed, with the reason.
pub(crate) fn hand_down_io(
    vms: &CgroupVms,
    journal: &mut LockedJournal,
) -> Result<Vec<(VmKey, SysError)>, ShareError> {
    let mut failed = Vec::new();
    for (key, _) in vms.iter().filter(|(key, _)| !vms.dir(key).join("io.max").exists()) {
        let mut above = lineage(key);
        above.pop();
        // From the root down.
        for path in std::iter::once(String::new()).chain(above) {
            let file = vms.mounted().join(path).join("cgroup.subtree_control");
            match hand_down_io_of(&file, journal) {
                Ok(()) => {}
                Err(ShareError::Sys(error)) => {
                    failed.push((key.clone(), error));
                    break;
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(failed)
}

fn hand_down_io_of(file: &Path, journal: &mut LockedJournal) -> Result<(), ShareError> {
    if sysfs::read(file)?.split_whitespace().any(|name| name == "io") {
        return Ok(());
    }
    journal.note(&[Original::of_cgroup(file, TAKE_BACK_IO.to_owned())?])?;
    Ok(sysfs::write(file, "+io")?)
}

/// Takes the io controller from the cgroups below, with all that they have in its files.
pub(crate) const TAKE_BACK_IO: &str = "-io";

/// Whether a cgroup below that of a `cgroup.subtree_control` has bounds in `io.max`, or hands the io controller down itself.
pub(crate) fn io_is_used(control: &Path) -> bool {
    let below = control.parent().and_then(|dir| fs::read_dir(dir).ok()).into_iter().flatten();
    below.flatten().map(|entry| entry.path()).any(|dir| {
        let read = |name: &str| sysfs::read_any(&dir.join(name)).unwrap_or_default();
        let is_bound = |word: &str| word.split_once('=').is_some_and(|(_, most)| most != "max");
        read("io.max").split_whitespace().any(is_bound)
            || read("cgroup.subtree_control").split_whitespace().any(|name| name == "io")
    })
}

/// The cgroups whose weights matter for a VM, as paths below the root. They are its own and those above it except the root.
pub(crate) fn lineage(key: &VmKey) -> Vec<String> {
    let ends = key.0.match_indices('/').map(|(at, _)| at).chain([key.0.len()]);
    ends.map(|end| key.0[..end].to_owned()).collect()
}
