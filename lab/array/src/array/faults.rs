//! Changes of the array's capacity: drive failure and rebuild, write cache off and on, slower or
//! faster drives.

use alloc::vec::Vec;

use super::job::{Step, Task};
use super::{Array, spindle};
use crate::drive::Drive;
use crate::io::IoKind;
use crate::params::ArrayParams;
use crate::raid::{Missing, RaidLevel, RaidParams};
use crate::units::{Bytes, Nanos};

/// Largest factor by which drives can be slower or faster than their parameters.
const SLOWEST: f64 = 100.0;

/// Reason for refusing a fault or a repair. The array's state is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultError {
    /// There is no such drive.
    #[error("drive {drive} does not exist: the array has {drives}, counted from 0")]
    UnknownDrive {
        /// The drive asked for.
        drive: u32,
        /// Number of drives in the array.
        drives: u32,
    },
    /// RAID-0 without one of its drives has no data to serve.
    #[error("drive {drive} cannot fail: RAID-0 has no redundancy")]
    NoRedundancy {
        /// The drive asked for.
        drive: u32,
    },
    /// One drive is missing already; the array bears no second loss.
    #[error("drive {drive} cannot fail: drive {missing} has failed and is not rebuilt")]
    AlreadyDegraded {
        /// The drive asked for.
        drive: u32,
        /// The missing drive.
        missing: u32,
    },
    /// No drive has failed.
    #[error("nothing to rebuild: all drives are there")]
    NothingToRebuild,
    /// A rebuild is under way.
    #[error("drive {drive} is being rebuilt already")]
    AlreadyRebuilding {
        /// Number of the drive.
        drive: u32,
    },
    /// The array was made without a write cache.
    #[error("the array has no write cache")]
    NoWriteCache,
    /// The factor for the drives' speed is outside 0.01 to 100.
    #[error("the drives cannot be {per_mille} thousandths as slow: it must be from 0.01 to 100")]
    Slow {
        /// The factor asked for, in thousandths.
        per_mille: i64,
    },
    /// The time given is before the array's clock.
    #[error("time runs backwards: {now} after {clock}")]
    TimeRanBack {
        /// The time given.
        now: Nanos,
        /// The latest time given before.
        clock: Nanos,
    },
}

/// A drive being rebuilt, from its start to the end of the last stripe in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rebuild {
    end: Bytes,
}

impl ArrayParams {
    /// Whether a drive may fail while drive `missing`, if any, is missing.
    ///
    /// # Errors
    /// There is no such drive, or the group does not bear its loss.
    pub fn may_fail(&self, drive: u32, missing: Option<u32>) -> Result<(), FaultError> {
        let RaidParams { drives, level, .. } = self.raid;
        match missing {
            _ if drive >= drives => Err(FaultError::UnknownDrive { drive, drives }),
            _ if level == RaidLevel::Raid0 => Err(FaultError::NoRedundancy { drive }),
            Some(missing) => Err(FaultError::AlreadyDegraded { drive, missing }),
            None => Ok(()),
        }
    }
}

/// Whether `slow` is a valid factor for the drives' times.
///
/// # Errors
/// The factor is not from 0.01 to 100.
pub fn may_be_slow(slow: f64) -> Result<(), FaultError> {
    if (1.0 / SLOWEST..=SLOWEST).contains(&slow) {
        return Ok(());
    }
    Err(FaultError::Slow { per_mille: (slow * 1e3) as i64 })
}

impl Array {
    /// Fails a drive at `now`: from then on its data is reconstructed from the other drives. Its
    /// unfinished requests are planned anew on the others.
    ///
    /// # Errors
    /// There is no such drive, or the group does not bear its loss.
    pub fn fail_drive(&mut self, now: Nanos, drive: u32) -> Result<(), FaultError> {
        self.params.may_fail(drive, self.raid.missing.map(|missing| missing.drive))?;
        self.fault_time(now)?;
        self.raid.missing = Some(Missing { drive, from: 0 });
        self.wakes.forget(drive);
        let new = Drive::new(&self.params.drive, spindle(drive));
        let failed = core::mem::replace(&mut self.drives[drive as usize], new);
        let mut parts = Vec::new();
        for lost in failed.into_requests() {
            parts.clear();
            if lost.kind == IoKind::Read {
                self.raid.read_lost(drive, lost.offset, lost.len, &mut parts);
            }
            self.jobs[lost.owner].parts_left += parts.len() as u32;
            parts.iter().for_each(|part| self.send(now, lost.owner, part));
            self.part_done(now, lost.owner);
        }
        Ok(())
    }

    /// Replaces the failed drive at `now` and starts its rebuild from the other drives. The rebuild
    /// goes one [piece](crate::RaidParams::rebuild) after another, beside all other work.
    ///
    /// # Errors
    /// No drive has failed, or it is being rebuilt already.
    pub fn start_rebuild(&mut self, now: Nanos) -> Result<(), FaultError> {
        let Some(Missing { drive, .. }) = self.raid.missing else {
            return Err(FaultError::NothingToRebuild);
        };
        if self.rebuild.is_some() {
            return Err(FaultError::AlreadyRebuilding { drive });
        }
        self.fault_time(now)?;
        let stripes = self.params.layout.end().0.div_ceil(self.raid.stripe().0);
        self.rebuild = Some(Rebuild { end: Bytes(stripes * self.params.raid.element.0) });
        self.rebuilt(now, Bytes(0));
        Ok(())
    }

    /// Rebuilt fraction of the failed drive, from 0 to 1; `None` if all drives are present.
    #[must_use]
    pub fn rebuilt_fraction(&self) -> Option<f64> {
        let missing = self.raid.missing?;
        let done = missing.from * self.params.raid.element.0;
        Some(self.rebuild.map_or(0.0, |rebuild| done as f64 / rebuild.end.0 as f64))
    }

    /// Switches the write cache off or on at `now`. When switched off, it destages all its data;
    /// new writes are then done when the drives are.
    ///
    /// # Errors
    /// The array was made without one.
    pub fn set_write_cache(&mut self, now: Nanos, on: bool) -> Result<(), FaultError> {
        if self.write_cache.is_none() {
            return Err(FaultError::NoWriteCache);
        }
        self.fault_time(now)?;
        if let Some(cache) = &mut self.write_cache {
            cache.enabled = on;
        }
        self.destage(now);
        Ok(())
    }

    /// Stretches all times of the drives by `slow` from `now` on, including requests in service. At
    /// 1 the drives have the speed of their parameters.
    ///
    /// # Errors
    /// The factor is not from 0.01 to 100.
    pub fn set_slow(&mut self, now: Nanos, slow: f64) -> Result<(), FaultError> {
        may_be_slow(slow)?;
        self.fault_time(now)?;
        self.wakes.set_slow(now, slow);
        Ok(())
    }

    /// Continues a rebuild that has reached `offset`.
    pub(super) fn rebuilt(&mut self, at: Nanos, offset: Bytes) {
        let (Some(Rebuild { end }), Some(missing)) = (self.rebuild, &mut self.raid.missing) else {
            return;
        };
        missing.from = offset.0 / self.params.raid.element.0;
        if offset >= end {
            (self.rebuild, self.raid.missing) = (None, None);
            return;
        }
        let len = Bytes(self.params.raid.rebuild.0.min(end.0 - offset.0));
        self.start(at, Task::Rebuild { offset, len }, Step::Read);
    }

    fn fault_time(&mut self, now: Nanos) -> Result<(), FaultError> {
        if now < self.clock {
            return Err(FaultError::TimeRanBack { now, clock: self.clock });
        }
        self.advance(now);
        Ok(())
    }
}
