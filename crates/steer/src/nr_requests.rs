//! `queue/nr_requests`, which has two meanings. Under an elevator it is the number of requests that
//! the elevator may hold. The driver has at most as many of them as it has tags. Under `none` it is
//! the number of the driver's tags.
//!
//! The driver's tags stay shrunk when the elevator changes, although the file shows a default
//! again. Writing the shown value does nothing. They grow only when another value is written under
//! `none`.

use std::path::{Path, PathBuf};

use crate::sysfs::{self, SysError};

/// Least value that the kernel accepts; smaller ones become this (`BLKDEV_MIN_RQ`).
pub(crate) const FLOOR: u32 = 4;

/// Name that stands for no elevator.
pub(crate) const NONE: &str = "none";

/// Restores a value that was in force under `scheduler`. `tags`: whether the driver's tags may have
/// been shrunk.
pub(crate) fn put_back(
    file: &Path,
    value: &str,
    scheduler: &str,
    tags: bool,
) -> Result<(), SysError> {
    let elevators = elevators(file);
    let now = sysfs::choice(&elevators)?;
    if now == NONE {
        if tags && (scheduler != NONE || sysfs::read(file)? == value) {
            return unstick(file);
        }
        // With another elevator, the kernel chooses its own value.
        if scheduler == NONE { sysfs::write(file, value) } else { Ok(()) }
    } else {
        if tags {
            sysfs::write(&elevators, NONE)?;
            let grown = unstick(file);
            // The user's elevator is restored, even if the tags could not be.
            sysfs::write(&elevators, &now)?;
            grown?;
        }
        // With another elevator, the kernel has chosen its own value.
        if scheduler == now { sysfs::write(file, value) } else { Ok(()) }
    }
}

/// Gives the driver as many tags as the file shows. Under `none` only.
fn unstick(file: &Path) -> Result<(), SysError> {
    let shown: u32 = sysfs::number(file)?;
    if shown <= FLOOR {
        return Ok(());
    }
    sysfs::write(file, &(shown - 1).to_string())?;
    sysfs::write(file, &shown.to_string())
}

/// Gives the driver `depth` tags, and never more, although an elevator is in force.
pub(crate) fn regrow(file: &Path, depth: u32) -> Result<(), SysError> {
    let elevators = elevators(file);
    let now = sysfs::choice(&elevators)?;
    sysfs::write(&elevators, NONE)?;
    let grown = if sysfs::read(file)? == depth.to_string() {
        unstick(file)
    } else {
        sysfs::write(file, &depth.to_string())
    };
    sysfs::write(&elevators, &now)?;
    grown
}

fn elevators(file: &Path) -> PathBuf {
    file.with_file_name("scheduler")
}
