//! What a host notices of the slots: events, errors and counters of [`SlotExchange`](crate::SlotExchange).

use std::fmt;

use crate::header::{PlaceFault, PlaceId};
use crate::identity::{Identity, VolumeId};
use crate::region::{RegionError, SlotCount, SlotIndex};
use crate::slot::{InvalidReport, SlotFault};

/// Something about the slots that an operator should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotEvent {
    /// Automatic choice has taken a slot.
    SlotChosen(SlotIndex),
    /// Somebody else writes to our slot.
    SlotConflict {
        /// Index of the contested slot.
        slot: SlotIndex,
        /// Host or program that writes there.
        rival: Rival,
        /// We look for another slot; else both go on, and each is heard only until the other
        /// writes.
        moving: bool,
    },
    /// The place was made anew, and the new one is used.
    MadeAnew {
        /// Identity of the new place.
        found: PlaceId,
        /// Identity of the place before it.
        known: PlaceId,
    },
    /// The path of the exchange leads to another file than before, which is a copy of the same place.
    OtherFile {
        /// Inode of the file that is there now.
        found: u64,
        /// Inode of the file before it.
        known: u64,
    },
    /// The file of the exchange was cut within its slots.
    Cut {
        /// Its length, in bytes.
        bytes: u64,
        /// The length that it should have.
        needed: u64,
    },
}

/// Who else writes to a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rival {
    /// A host of this volume; one of our own name if two have the same.
    Host(Identity),
    /// A host that uses the same place for another volume.
    OtherVolume {
        /// Host that writes there.
        host: Identity,
        /// Volume of that host.
        volume: VolumeId,
    },
    /// A program that writes another version of the format.
    OtherVersion(u32),
}

impl fmt::Display for Rival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rival::Host(host) => host.fmt(f),
            Rival::OtherVolume { host, volume } => write!(f, "{host} for volume {volume}"),
            Rival::OtherVersion(version) => {
                write!(f, "a program that writes format version {version}")
            }
        }
    }
}

impl fmt::Display for SlotEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SlotEvent::SlotChosen(slot) => write!(f, "using exchange slot {slot}"),
            SlotEvent::SlotConflict { slot, rival, moving: true } => {
                write!(f, "exchange slot {slot} is also written by {rival}: taking another slot")
            }
            SlotEvent::SlotConflict { slot, rival, moving: false } => write!(
                f,
                "exchange slot {slot} is also written by {rival}: \
                 give every host a slot and a name of its own, and every volume a file of its own"
            ),
            SlotEvent::MadeAnew { found, known } => {
                write!(
                    f,
                    "the exchange was made anew: this host uses place {found} in place of {known}"
                )
            }
            SlotEvent::OtherFile { found, known } => write!(
                f,
                "the path of the exchange leads to another file, inode {found} in place of {known}, with the same \
                 header: a copy. This host uses it; do all hosts see it?"
            ),
            SlotEvent::Cut { bytes, needed } => write!(
                f,
                "the file of the exchange was cut to {bytes} bytes of {needed}: it grows again, and each host writes \
                 its slot again"
            ),
        }
    }
}

/// A place that is not this volume's exchange, and is therefore not written.
#[derive(Debug, thiserror::Error)]
#[error("exchange {place}: {fault}. Nothing was written{advice}")]
pub struct Unusable {
    /// The place, as it is configured.
    pub place: String,
    /// Reason why the place is not this volume's exchange.
    pub fault: PlaceFault,
    /// What to do, after a colon or a full stop.
    pub advice: String,
}

/// The slots could not be read, or our slot not be written.
#[derive(Debug, thiserror::Error)]
pub enum SlotError {
    /// The medium of the slots failed.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// What is there is not this volume's exchange.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// The report holds what cannot be written down.
    #[error(transparent)]
    Report(#[from] InvalidReport),
    /// Nothing could be read yet, so it is not known what a write would destroy.
    #[error("exchange {place}: not written before it could be read once")]
    NotRead {
        /// The place, as it is configured.
        place: String,
    },
    /// No slot is free for automatic choice.
    #[error("exchange {place}: none of its {} slots is free: {}", slots.get(), remedy(*noise))]
    NoFreeSlot {
        /// The place, as it is configured.
        place: String,
        /// How many there are.
        slots: SlotCount,
        /// How many of them hold neither zeros nor a record.
        noise: usize,
    },
    /// Our slot holds data that is not ours to destroy.
    #[error(
        "exchange {place}: slot {slot} {}; not written. If it may be erased, fill it with zeros",
        SlotFault::NotARecord
    )]
    NotARecord {
        /// The place, as it is configured.
        place: String,
        /// Index of the slot.
        slot: SlotIndex,
    },
}

/// What to do where no slot is free and so many hold what no host has written.
fn remedy(noise: usize) -> String {
    match noise {
        0 => "make a larger exchange and raise `slots` on all hosts, or wait until those of dead hosts expire"
            .to_owned(),
        _ => format!(
            "{noise} of them {}, so that no host takes them; `parda exchange show` lists them. If that data \
             may be erased, fill these slots with zeros",
            if noise == 1 { "holds neither zeros nor a record" } else { "hold neither zeros nor a record" }
        ),
    }
}
