//! `[volume.exchange]`: where the hosts of a volume meet, checked.

use std::fmt;

use parda_config::Error;
use parda_exchange::SlotChoice;
use parda_exchange::region::{SlotCount, SlotIndex};

use super::place::{Place, REGION_ALIGNMENT, place};
use super::server_tls;
use super::udp::{self, Udp};
use crate::file;

/// Where the hosts of a volume meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// In slots of a file, block device or NBD export.
    Slots(Slots),
    /// Datagrams on the network.
    Udp(Udp),
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exchange::Slots(slots) => slots.place.fmt(f),
            Exchange::Udp(udp) => udp.fmt(f),
        }
    }
}

/// An exchange of slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Where the slots are.
    pub place: Place,
    /// Where they begin there, if it is a region of a larger device.
    pub offset: Option<u64>,
    /// How many there are.
    pub slots: SlotCount,
    /// Slot of this host: a given one, or any that is free.
    pub choice: SlotChoice,
    /// The command that makes it, for messages.
    pub make: String,
}

pub(super) fn check(
    wrong: &dyn Fn(&str, String) -> Error,
    volume: &str,
    exchange: &file::Exchange,
) -> Result<Exchange, Error> {
    let of_slots = [
        ("exchange.slots", exchange.slots.is_some()),
        ("exchange.slot", exchange.slot.is_some()),
        ("exchange.offset", exchange.offset.is_some()),
    ];
    let of_udp = [
        ("exchange.peers", exchange.peers.is_some()),
        ("exchange.interface", exchange.interface.is_some()),
        ("exchange.key_file", exchange.key_file.is_some()),
    ];
    let misplaced = |keys: &[(&'static str, bool)]| keys.iter().find(|(_, there)| *there).copied();
    match (&exchange.file, &exchange.udp) {
        (Some(_), Some(_)) => {
            let message = "contradicts file: an exchange is either a file or on the network";
            Err(wrong("exchange.udp", message.into()))
        }
        (None, None) => {
            let message = "names no place where hosts meet: add file or udp";
            Err(wrong("exchange", message.into()))
        }
        (Some(file), None) => match misplaced(&of_udp) {
            Some((key, _)) => Err(wrong(key, "is for udp, and this exchange is a file".into())),
            None => check_slots(wrong, volume, file, exchange).map(Exchange::Slots),
        },
        (None, Some(address)) => match misplaced(&of_slots) {
            Some((key, _)) => Err(wrong(key, "is for file: datagrams have no slots".into())),
            None => udp::check(wrong, address, exchange).map(Exchange::Udp),
        },
    }
}

fn check_slots(
    wrong: &dyn Fn(&str, String) -> Error,
    volume: &str,
    file: &str,
    exchange: &file::Exchange,
) -> Result<Slots, Error> {
    let mut place = place(file).map_err(|e| wrong("exchange.file", e))?;
    server_tls::check(wrong, &mut place, "exchange.file", None)?;
    let slots = SlotCount::new(exchange.slots.unwrap_or_else(file::default_slots))
        .ok_or_else(|| wrong("exchange.slots", format!("must be from 1 to {}", SlotCount::MAX)))?;
    let choice = match exchange.slot {
        None => SlotChoice::Automatic,
        Some(slot) if slots.contains(SlotIndex(slot)) => SlotChoice::Fixed(SlotIndex(slot)),
        Some(_) => {
            let last = slots.get() - 1;
            return Err(wrong("exchange.slot", format!("must be from 0 to {last} (see slots)")));
        }
    };
    let offset = exchange.offset.map(|b| b.as_u64());
    if !offset.unwrap_or(0).is_multiple_of(REGION_ALIGNMENT) {
        return Err(wrong("exchange.offset", "must be a multiple of 4KiB".into()));
    }
    let mut make = format!("parda exchange init {}", quoted(file));
    if slots.get() != file::default_slots() {
        make += &format!(" --slots {}", slots.get());
    }
    if let Some(offset) = offset {
        make += &format!(" --offset {offset}");
    }
    make += &format!(" --volume {}", quoted(volume));
    Ok(Slots { place, offset, slots, choice, make })
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._:+-".contains(c);
    if word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}
