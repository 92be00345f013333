//! How drives make up one address space.
//!
//! A stripe is one element on each drive, at the same place. What the group is asked becomes
//! requests to drives in at most two steps: what must be read before a write can be made, and the
//! write itself.

mod raid0;
mod raid10;
mod raid5;

use alloc::vec::Vec;

use crate::io::IoKind;
use crate::layout::Range;
use crate::params::{ParamError, check};
use crate::units::Bytes;

use raid0::Raid0;
use raid5::Raid5;
use raid10::Raid10;

/// A RAID group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct RaidParams {
    /// How drives share data.
    pub level: RaidLevel,
    /// How many drives: at least 1 for RAID-0, at least 3 for RAID-5, an even number for RAID-10.
    pub drives: u32,
    /// How much lies on one drive before the next one's turn; whole sectors of 512 bytes.
    pub element: Bytes,
}

/// How drives share data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum RaidLevel {
    /// Striped.
    Raid0,
    /// Striped with one element of parity in each stripe, left-symmetric.
    Raid5,
    /// Striped over mirrored pairs.
    Raid10,
}

/// No group has more. It also bounds what parameters can make the model allocate.
const MOST_DRIVES: u32 = 1_024;

const SECTOR: u64 = 512;

impl RaidParams {
    pub(crate) fn validate(&self, drive: Bytes) -> Result<(), ParamError> {
        let drives = self.drives;
        let refuse_unless = |possible, must| check(possible, "raid.drives", drives, must);
        refuse_unless((1..=MOST_DRIVES).contains(&drives), "be from 1 to 1024")?;
        match self.level {
            RaidLevel::Raid0 => {}
            RaidLevel::Raid5 => refuse_unless(drives >= 3, "be at least 3 for RAID-5")?,
            RaidLevel::Raid10 => refuse_unless(drives.is_multiple_of(2), "be even for RAID-10")?,
        }
        let element = self.element;
        let possible = element.0 > 0 && element.0.is_multiple_of(SECTOR) && element <= drive;
        let must = "be a multiple of 512 B, above 0, no more than a drive holds";
        check(possible, "raid.element", element, must)
    }

    /// What the group holds, of drives that hold `drive` each: whole stripes only.
    pub(crate) fn capacity(&self, drive: Bytes) -> Bytes {
        let data = match self.level {
            RaidLevel::Raid0 => self.drives,
            RaidLevel::Raid5 => self.drives - 1,
            RaidLevel::Raid10 => self.drives / 2,
        };
        Bytes(drive.0 / self.element.0 * self.element.0 * u64::from(data))
    }
}

/// A request to one drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Which drive of the group.
    pub(crate) drive: u32,
    pub(crate) kind: IoKind,
    pub(crate) offset: Bytes,
    pub(crate) len: Bytes,
}

/// The map from the group's address space to its drives. All answers are added to `parts`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Raid {
    Raid0(Raid0),
    Raid5(Raid5),
    Raid10(Raid10),
}

impl Raid {
    /// `params` are valid.
    pub(crate) fn new(params: &RaidParams) -> Raid {
        let RaidParams { level, drives, element } = *params;
        match level {
            RaidLevel::Raid0 => Raid::Raid0(Raid0 { drives, element }),
            RaidLevel::Raid5 => Raid::Raid5(Raid5 { drives, element }),
            RaidLevel::Raid10 => Raid::Raid10(Raid10 { pairs: drives / 2, element }),
        }
    }

    /// What to read from the drives to read `range`.
    pub(crate) fn read(&self, range: Range, parts: &mut Vec<Part>) {
        match self {
            Raid::Raid0(raid) => raid.parts(IoKind::Read, range, parts),
            Raid::Raid5(raid) => raid.read(range, parts),
            Raid::Raid10(raid) => raid.read(range, parts),
        }
    }

    /// What to read from the drives before `range` can be written; often nothing.
    pub(crate) fn read_before_write(&self, range: Range, parts: &mut Vec<Part>) {
        match self {
            Raid::Raid0(_) | Raid::Raid10(_) => {}
            Raid::Raid5(raid) => raid.read_before_write(range, parts),
        }
    }

    /// What to write to the drives to write `range`.
    pub(crate) fn write(&self, range: Range, parts: &mut Vec<Part>) {
        match self {
            Raid::Raid0(raid) => raid.parts(IoKind::Write, range, parts),
            Raid::Raid5(raid) => raid.write(range, parts),
            Raid::Raid10(raid) => raid.write(range, parts),
        }
    }
}
