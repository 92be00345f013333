//! Drives: disk drives and flash drives.

mod buffer;
mod disk;
mod flash;
mod geometry;
mod head;
mod params;
mod queue;
mod request;
mod seek;

use alloc::vec::Vec;

use crate::error::ParamError;
use crate::units::{Bytes, Nanos};

use disk::Disk;
use flash::Flash;

pub use flash::FlashParams;
pub use params::{DriveParams, Scheduling};
pub(crate) use request::{Request, Served, Wakes};
pub use seek::SeekParams;

/// The kind of a drive, and its parameters.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriveModel {
    /// A disk drive.
    Disk(DriveParams),
    /// A flash drive.
    Flash(FlashParams),
}

impl DriveModel {
    pub(crate) fn validate(&self) -> Result<(), ParamError> {
        match self {
            DriveModel::Disk(disk) => disk.validate(),
            DriveModel::Flash(flash) => flash.validate(),
        }
    }

    /// Capacity of the drive.
    #[must_use]
    pub fn capacity(&self) -> Bytes {
        match self {
            DriveModel::Disk(disk) => disk.capacity,
            DriveModel::Flash(flash) => flash.capacity,
        }
    }

    /// Requests that the drive accepts at a time.
    pub fn queue_depth_mut(&mut self) -> &mut u32 {
        match self {
            DriveModel::Disk(disk) => &mut disk.queue_depth,
            DriveModel::Flash(flash) => &mut flash.queue_depth,
        }
    }

    /// Parameters of a disk drive; `None` for a flash drive.
    pub fn disk_mut(&mut self) -> Option<&mut DriveParams> {
        match self {
            DriveModel::Disk(disk) => Some(disk),
            DriveModel::Flash(_) => None,
        }
    }
}

/// A drive. The caller keeps the times of its next events.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there are few, and a box would cost every request")]
pub(crate) enum Drive {
    Disk(Disk),
    Flash(Flash),
}

impl Drive {
    /// Makes an idle drive. `spindle`: angle at time zero, as a fraction of a turn.
    pub(crate) fn new(device: &DriveModel, spindle: f64) -> Drive {
        match device {
            DriveModel::Disk(params) => Drive::Disk(Disk::new(params, spindle)),
            DriveModel::Flash(params) => Drive::Flash(Flash::new(params)),
        }
    }

    /// Takes a request.
    pub(crate) fn arrive(&mut self, now: Nanos, request: Request) -> Wakes {
        match self {
            Drive::Disk(disk) => disk.arrive(now, request),
            Drive::Flash(flash) => flash.arrive(now, request),
        }
    }

    /// Completes the request that is due. Called once at each time that the drive returned.
    pub(crate) fn finish(&mut self, now: Nanos) -> Served {
        match self {
            Drive::Disk(disk) => disk.finish(now),
            Drive::Flash(flash) => flash.finish(now),
        }
    }

    /// Written data that only the drive's buffer holds.
    pub(crate) fn unwritten(&self) -> Bytes {
        match self {
            Drive::Disk(disk) => disk.unwritten(),
            Drive::Flash(flash) => flash.unwritten(),
        }
    }

    /// Requests that are not done.
    pub(crate) fn into_requests(self) -> Vec<Request> {
        match self {
            Drive::Disk(disk) => disk.into_requests().collect(),
            Drive::Flash(flash) => flash.into_requests().collect(),
        }
    }
}
