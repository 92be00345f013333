//! RAID groups: drives that make up one address space.
//!
//! A stripe is one element on each drive, at the same place. Each access takes at most two steps of
//! drive requests: the reads that a write needs first, and the access itself.

mod part;
mod raid0;
mod raid10;
mod raid5;

use alloc::vec::Vec;

use crate::error::{ParamError, check};
use crate::io::IoKind;
use crate::layout::Range;
use crate::units::Bytes;

pub(crate) use part::{Missing, Part};
use raid0::Raid0;
use raid5::Raid5;
use raid10::Raid10;

/// A RAID group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RaidParams {
    /// Redundancy scheme of the group.
    pub level: RaidLevel,
    /// Number of drives: at least 1 for RAID-0, at least 3 for RAID-5, an even number for RAID-10.
    pub drives: u32,
    /// Data on one drive before the next one's turn; whole sectors of 512 bytes.
    pub element: Bytes,
    /// Data of a replaced drive that is rebuilt at a time; whole elements.
    pub rebuild: Bytes,
}

/// Redundancy scheme of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RaidLevel {
    /// Striped.
    Raid0,
    /// Striped with one element of parity in each stripe, left-symmetric.
    Raid5,
    /// Striped over mirrored pairs.
    Raid10,
}

/// Upper bound on the drives of a group, and so on the allocation of the model.
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
        check(possible, "raid.element", element, must)?;
        let possible = self.rebuild.0 > 0 && self.rebuild.0.is_multiple_of(element.0);
        let must = "be a multiple of raid.element, above 0, no more than a drive holds";
        check(possible && self.rebuild <= drive, "raid.rebuild", self.rebuild, must)
    }

    /// Data of the group, for drives of `drive` bytes each: whole stripes only.
    pub(crate) fn capacity(&self, drive: Bytes) -> Bytes {
        let data = match self.level {
            RaidLevel::Raid0 => self.drives,
            RaidLevel::Raid5 => self.drives - 1,
            RaidLevel::Raid10 => self.drives / 2,
        };
        Bytes(drive.0 / self.element.0 * self.element.0 * u64::from(data))
    }
}

/// Map from the group's address space, and from stripes, to drives. All methods append their
/// requests to `parts`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raid {
    map: Map,
    /// The missing drive, if any: no level here bears the loss of two.
    pub(crate) missing: Option<Missing>,
}

#[derive(Clone, Copy, Debug)]
enum Map {
    Raid0(Raid0),
    Raid5(Raid5),
    Raid10(Raid10),
}

impl Raid {
    /// Makes the map. `params` are valid.
    pub(crate) fn new(params: &RaidParams) -> Raid {
        let RaidParams { level, drives, element, .. } = *params;
        let map = match level {
            RaidLevel::Raid0 => Map::Raid0(Raid0 { drives, element }),
            RaidLevel::Raid5 => Map::Raid5(Raid5 { drives, element }),
            RaidLevel::Raid10 => Map::Raid10(Raid10 { pairs: drives / 2, element }),
        };
        Raid { map, missing: None }
    }

    /// Data of one stripe.
    pub(crate) fn stripe(&self) -> Bytes {
        match &self.map {
            Map::Raid0(raid) => Bytes(raid.element.0 * u64::from(raid.drives)),
            Map::Raid5(raid) => raid.stripe(),
            Map::Raid10(raid) => Bytes(raid.element.0 * u64::from(raid.pairs)),
        }
    }

    /// Drive reads for a read of `range`.
    pub(crate) fn read(&self, range: Range, parts: &mut Vec<Part>) {
        match &self.map {
            Map::Raid0(raid) => raid.parts(IoKind::Read, range, parts),
            Map::Raid5(raid) => raid.read(range, self.missing, parts),
            Map::Raid10(raid) => raid.read(range, self.missing, parts),
        }
    }

    /// Drive reads that must precede a write of `runs` of a stripe; often none. The runs are in
    /// order and disjoint.
    pub(crate) fn read_before_write(&self, stripe: u64, runs: &[Range], parts: &mut Vec<Part>) {
        match &self.map {
            Map::Raid0(_) | Map::Raid10(_) => {}
            Map::Raid5(raid) => raid.read_before_write(stripe, runs, self.missing, parts),
        }
    }

    /// Drive writes for a write of `runs` of a stripe. The runs are in order and disjoint.
    pub(crate) fn write(&self, stripe: u64, runs: &[Range], parts: &mut Vec<Part>) {
        let in_group = |run: &Range| Range {
            start: Bytes(stripe * self.stripe().0 + run.start.0),
            len: run.len,
        };
        match &self.map {
            Map::Raid0(raid) => {
                runs.iter().for_each(|run| raid.parts(IoKind::Write, in_group(run), parts));
            }
            Map::Raid5(raid) => raid.write(stripe, runs, self.missing, parts),
            Map::Raid10(raid) => {
                runs.iter().for_each(|run| raid.write(in_group(run), self.missing, parts));
            }
        }
    }

    /// Drive reads that reconstruct a range of `drive` from the others. None for RAID-0, where no
    /// other drive has the data.
    pub(crate) fn read_lost(&self, drive: u32, offset: Bytes, len: Bytes, parts: &mut Vec<Part>) {
        let part = |drive| Part { drive, kind: IoKind::Read, offset, len };
        match &self.map {
            Map::Raid0(_) => {}
            Map::Raid5(raid) => {
                parts.extend((0..raid.drives).filter(|other| *other != drive).map(part));
            }
            Map::Raid10(_) => parts.push(part(drive ^ 1)),
        }
    }
}
