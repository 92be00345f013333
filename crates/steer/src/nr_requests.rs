//! `queue/nr_requests`, which is two things: under an elevator how many requests it may hold, of
//! which the driver has at most so many; under `none` the number of the driver's own tags.
//!
//! The driver's tags stay shrunk when the elevator changes, while the file shows a default again;
//! and writing what it shows does nothing. They grow only by a write of another value under `none`.

use std::path::{Path, PathBuf};

use crate::sysfs::{self, SysError};

/// The least that the kernel takes: less becomes this (`BLKDEV_MIN_RQ`).
pub(crate) const FLOOR: u32 = 4;

/// No elevator.
pub(crate) const NONE: &str = "none";

/// Puts a value back that was there under `scheduler`. `tags`: the driver's may have been shrunk.
pub(crate) fn put_back(
    file: &Path,
    value: &str,
    scheduler: &str,
    tags: bool,
) -> Result<(), SysError> {
    let elevators = elevators(file);
    let now = current(&elevators)?;
    if now == NONE {
        if tags && (scheduler != NONE || sysfs::read(file)? == value) {
            return unstick(file);
        }
        // After another elevator the kernel has chosen its own value.
        if scheduler == NONE { sysfs::write(file, value) } else { Ok(()) }
    } else {
        if tags {
            sysfs::write(&elevators, NONE)?;
            let grown = unstick(file);
            // Whatever became of the tags, the elevator is the user's.
            sysfs::write(&elevators, &now)?;
            grown?;
        }
        // Under another elevator the kernel has chosen a value of its own.
        if scheduler == now { sysfs::write(file, value) } else { Ok(()) }
    }
}

/// Gives the driver the number of tags that the file shows. Under `none` only.
fn unstick(file: &Path) -> Result<(), SysError> {
    let shown: u32 = sysfs::number(file)?;
    if shown <= FLOOR {
        return Ok(());
    }
    sysfs::write(file, &(shown - 1).to_string())?;
    sysfs::write(file, &shown.to_string())
}

/// Gives the driver as many tags as `depth` though an elevator is in force, and never more.
pub(crate) fn regrow(file: &Path, depth: u32) -> Result<(), SysError> {
    let elevators = elevators(file);
    let now = current(&elevators)?;
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

fn current(elevators: &Path) -> Result<String, SysError> {
    Ok(sysfs::chosen(&sysfs::read(elevators)?).to_owned())
}
