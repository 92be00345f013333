//! Parameters of a disk drive, and the order in which it serves its queue.

use super::SeekParams;
use crate::error::{ParamError, check};
use crate::units::{Bytes, Nanos, Rate};

/// A disk drive.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveParams {
    /// Capacity.
    pub capacity: Bytes,
    /// Rotations per minute.
    pub rpm: u32,
    /// Sustained transfer rate of the outermost tracks.
    pub outer_rate: Rate,
    /// Transfer rate of the innermost tracks, as a fraction of the outermost ones'.
    pub inner_to_outer: f64,
    /// Tracks per cylinder: the arm does not move between them.
    pub surfaces: u32,
    /// Seek times of the arm.
    pub seek: SeekParams,
    /// Time to decode a command before the arm moves.
    pub command_overhead: Nanos,
    /// Added to the seek of a write, whose track must be held more closely.
    pub write_settle: Nanos,
    /// Bytes that the drive reads on into its buffer after a read. Zero: no read-ahead.
    pub read_ahead: Bytes,
    /// Size of the drive's write cache. Zero: none.
    pub write_cache: Bytes,
    /// Requests among which the drive chooses. Further ones wait above the drive, first come, first
    /// served.
    pub queue_depth: u32,
    /// Rule for choosing the next request.
    pub scheduling: Scheduling,
    /// Ageing of [`Scheduling::Sptf`]: positioning time credited for each unit of time in the drive's
    /// queue. Zero: no ageing.
    pub ageing: f64,
}

/// Rule for the next request from a drive's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheduling {
    /// Shortest positioning time first: least seek plus rotational wait, less [`DriveParams::ageing`].
    Sptf,
    /// First come, first served.
    Fcfs,
    /// Onward from the outer edge to the inner, then back to the outermost request (C-LOOK).
    Elevator,
}

/// Upper bound on the queue depth: choosing scans all commands, and no drive keeps more.
const MOST_COMMANDS: u32 = 256;

/// An order of magnitude above any drive's times. Larger values are wrong units.
const LONGEST: Nanos = Nanos::from_millis(10_000);

impl DriveParams {
    pub(crate) fn validate(&self) -> Result<(), ParamError> {
        let (rpm, rate) = (self.rpm, self.outer_rate);
        check((1..=1_000_000).contains(&rpm), "drive.rpm", rpm, "be from 1 to 1000000")?;
        let ratio = self.inner_to_outer;
        let possible = ratio > 0.0 && ratio <= 1.0;
        check(possible, "drive.inner_to_outer", ratio, "be above 0 and at most 1")?;
        check(self.track() >= 512.0, "drive.outer_rate", rate, "fill a 512 B sector in one turn")?;
        check(self.surfaces > 0, "drive.surfaces", self.surfaces, "be at least 1")?;
        let (least, most) = (self.track() * f64::from(self.surfaces), 1e15);
        let possible = (least..=most).contains(&(self.capacity.0 as f64))
            && self.turns() < f64::from(u32::MAX);
        let must = "be at least one cylinder, at most 1000TB and 4294967294 tracks";
        check(possible, "drive.capacity", self.capacity, must)?;
        self.seek.validate()?;
        let must = "be at most 10s";
        let (overhead, settle) = (self.command_overhead, self.write_settle);
        check(overhead <= LONGEST, "drive.command_overhead", overhead, must)?;
        check(settle <= LONGEST, "drive.write_settle", settle, must)?;
        let must = "be at most 1GB";
        check(self.read_ahead <= Bytes::gb(1), "drive.read_ahead", self.read_ahead, must)?;
        check(self.write_cache <= Bytes::gb(1), "drive.write_cache", self.write_cache, must)?;
        let possible = (0.0..=1000.0).contains(&self.ageing);
        check(possible, "drive.ageing", self.ageing, "be from 0 to 1000")?;
        let possible = (1..=MOST_COMMANDS).contains(&self.queue_depth);
        check(possible, "drive.queue_depth", self.queue_depth, "be from 1 to 256")
    }

    /// The time of one rotation.
    pub(super) fn period(&self) -> Nanos {
        Nanos(60_000_000_000 / u64::from(self.rpm))
    }

    /// Bytes on the outermost track.
    fn track(&self) -> f64 {
        self.outer_rate.0 as f64 * self.period().secs()
    }

    /// Tracks, laid end to end.
    pub(super) fn turns(&self) -> f64 {
        let mean_track = self.track() * (1.0 + self.inner_to_outer) / 2.0;
        self.capacity.0 as f64 / mean_track
    }

    pub(super) fn cylinders(&self) -> u32 {
        libm::ceil(self.turns() / f64::from(self.surfaces)) as u32
    }
}
