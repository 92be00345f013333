//! The header of a place: the block that says that its bytes are an exchange, and which one.
//! `docs/exchange-format.md` shows the same layout as a table.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::found;
use crate::identity::VolumeId;
use crate::region::{Block, SlotCount};
use crate::slot;

/// The version of the format that this code writes and the only one that it reads.
pub const FORMAT: u32 = 2;

const MAGIC: &[u8; 8] = b"PARDAXCH";

/// Offsets of the fields. All integers are little-endian.
mod at {
    use std::ops::Range;

    pub(super) const MAGIC: Range<usize> = 0..8;
    pub(super) const FORMAT: usize = 8;
    pub(super) const SLOTS: usize = 12;
    pub(super) const SLOT_BYTES: usize = 16;
    pub(super) const NAME_LEN: usize = 20;
    pub(super) const PLACE: usize = 24;
    pub(super) const MADE: usize = 40;
    pub(super) const VOLUME: usize = 48;
    pub(super) const NAME: Range<usize> = 56..311;
    pub(super) const CHECKSUM: usize = 508;
    pub(super) const PADDING: usize = 512;
}

/// The identity of a place, drawn when it is made: a place that is made anew is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PlaceId(pub u128);

impl PlaceId {
    /// An identity that no other place has.
    #[must_use]
    pub fn random() -> PlaceId {
        // Two keyed hashes, each with a key that the operating system drew.
        let half = || u128::from(RandomState::new().hash_one(SystemTime::now()));
        PlaceId((half() << 64) | half())
    }
}

impl fmt::Display for PlaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The volume that a place was made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeName(String);

/// A volume's name that a header cannot hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name of the volume has {0} bytes: 1 to {most} fit a header", most = VolumeName::MAX_BYTES)]
pub struct VolumeNameError(usize);

impl VolumeName {
    /// The longest name that fits a header, in bytes.
    pub const MAX_BYTES: usize = at::NAME.end - at::NAME.start;

    /// Checks `name`.
    ///
    /// # Errors
    /// It is empty or too long.
    pub fn new(name: &str) -> Result<VolumeName, VolumeNameError> {
        match name.len() {
            1..=Self::MAX_BYTES => Ok(VolumeName(name.to_owned())),
            len => Err(VolumeNameError(len)),
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The number that stands for the volume in records.
    #[must_use]
    pub fn id(&self) -> VolumeId {
        VolumeId::of(&self.0)
    }
}

/// What a place says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Which place it is.
    pub place: PlaceId,
    /// Number of slots that follow.
    pub slots: SlotCount,
    /// The volume that it is for; without one, for any.
    pub volume: Option<VolumeName>,
    /// When it was made, in nanoseconds since 1970 by the clock of the host that made it. For people.
    pub made_ns: u64,
}

impl Header {
    /// The header of a place that is made now.
    #[must_use]
    pub fn new(slots: SlotCount, volume: Option<VolumeName>) -> Header {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let made_ns = u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX);
        Header { place: PlaceId::random(), slots, volume, made_ns }
    }

    /// Writes it down as a whole block.
    #[must_use]
    pub fn encode(&self) -> Block {
        let mut block = Block::ZERO;
        let mut put = |at: usize, bytes: &[u8]| block.put(at, bytes);
        put(at::MAGIC.start, MAGIC);
        put(at::FORMAT, &FORMAT.to_le_bytes());
        put(at::SLOTS, &self.slots.get().to_le_bytes());
        put(at::SLOT_BYTES, &(Block::BYTES as u32).to_le_bytes());
        put(at::PLACE, &self.place.0.to_le_bytes());
        put(at::MADE, &self.made_ns.to_le_bytes());
        if let Some(volume) = &self.volume {
            put(at::NAME_LEN, &(volume.0.len() as u32).to_le_bytes());
            put(at::VOLUME, &volume.id().0.to_le_bytes());
            put(at::NAME.start, volume.0.as_bytes());
        }
        let checksum = crc32c::crc32c(&block.0[..at::CHECKSUM]);
        block.put(at::CHECKSUM, &checksum.to_le_bytes());
        block
    }

    /// Reads a block that should be a header. Every bit of it counts: what differs anywhere from what
    /// [`encode`](Self::encode) writes is no header.
    ///
    /// # Errors
    /// It is not the header of an exchange, or of another format.
    pub fn decode(block: &Block) -> Result<Header, PlaceFault> {
        let from = &block.0;
        if *block == Block::ZERO {
            return Err(PlaceFault::Blank);
        }
        if from[at::MAGIC] != *MAGIC {
            return Err(match slot::is_record(block) {
                true => PlaceFault::OldFormat,
                false => PlaceFault::Foreign(found::describe(from)),
            });
        }
        // Magic and format stand where they stand in every format; the rest need not.
        let format = u32::from_le_bytes(block.get(at::FORMAT));
        if format != FORMAT {
            return Err(PlaceFault::Format(format));
        }
        let checksum = u32::from_le_bytes(block.get(at::CHECKSUM));
        if crc32c::crc32c(&from[..at::CHECKSUM]) != checksum {
            return Err(PlaceFault::Damaged);
        }
        if from[at::PADDING..] != Block::ZERO.0[at::PADDING..] {
            return Err(PlaceFault::Foreign(format!(
                "the header of an exchange, and over it {}",
                found::describe(from)
            )));
        }
        let header = fields(block).ok_or(PlaceFault::Damaged)?;
        // Reserved bytes, the length of a slot and the volume's number, all at once.
        if header.encode() == *block { Ok(header) } else { Err(PlaceFault::Damaged) }
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "with {} slots, for ", self.slots.get())?;
        match &self.volume {
            Some(volume) => write!(f, "the volume {:?}", volume.0),
            None => write!(f, "any volume"),
        }
    }
}

fn fields(from: &Block) -> Option<Header> {
    let name = from.0[at::NAME].get(..u32::from_le_bytes(from.get(at::NAME_LEN)) as usize)?;
    let volume = match name {
        [] => None,
        name => Some(VolumeName::new(str::from_utf8(name).ok()?).ok()?),
    };
    Some(Header {
        place: PlaceId(u128::from_le_bytes(from.get(at::PLACE))),
        slots: SlotCount::new(u32::from_le_bytes(from.get(at::SLOTS)))?,
        volume,
        made_ns: u64::from_le_bytes(from.get(at::MADE)),
    })
}

/// Why a place cannot be used as this volume's exchange. Nothing is ever written to such a place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceFault {
    /// There is no file or device at the place.
    #[error("it is not there (is the volume mounted?)")]
    Missing,
    /// Zeros where the header should be.
    #[error("it was never made an exchange: there are zeros in place of its header")]
    Blank,
    /// Zeros where a header was that this host has read before.
    #[error("its header is gone: there are zeros in its place")]
    Erased,
    /// The file is shorter than its header.
    #[error("it was cut to {0} bytes, and its header with it")]
    Cut(u64),
    /// A file from before places had a header.
    #[error(
        "it is an exchange of format 1, which had no header; this program writes format {FORMAT}"
    )]
    OldFormat,
    /// The header has a later format than this program reads.
    #[error("it is an exchange of format {0}; this program knows format {FORMAT}")]
    Format(u32),
    /// The magic of a header, and not the rest.
    #[error("its header is torn or damaged")]
    Damaged,
    /// The place holds data of another program.
    #[error("it is no exchange: it holds {0}")]
    Foreign(String),
    /// The configuration says another number of slots.
    #[error("it has {found} slots, but the configuration says slots = {configured}")]
    Slots {
        /// Number of slots in the header.
        found: u32,
        /// Configured number of slots.
        configured: u32,
    },
    /// The place was made for another volume.
    #[error("it was made for the volume {0:?}, not for this one")]
    Volume(String),
    /// The place differs from the one used before.
    #[error(
        "it was replaced: it is place {found}, which was not made later than {known}, the one that this agent used. \
         If that is meant, reload the agents of all hosts"
    )]
    Replaced {
        /// Place that was found.
        found: PlaceId,
        /// Identity in the header that was found.
        known: PlaceId,
    },
}

#[cfg(test)]
mod tests;
