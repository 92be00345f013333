//! `[volume.exchange]`: where the hosts of a volume meet, checked.

use std::fmt;

use parda_address::Place;
use parda_config::{Error, TablePart};
use parda_exchange::SlotChoice;
use parda_exchange::region::{SlotCount, SlotIndex};

use super::etcd::{self, Etcd};
use super::place::{REGION_ALIGNMENT, place};
use super::server_tls;
use super::udp::{self, Udp};
use crate::file;

/// Meeting place of the hosts of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The way by which they meet.
    pub transport: Transport,
    /// Slots where they meet while that fails.
    pub fallback: Option<Slots>,
}

/// A way by which hosts meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// In slots of a file, block device or NBD export.
    Slots(Slots),
    /// Datagrams on the network.
    Udp(Udp),
    /// Keys of an etcd cluster.
    Etcd(Etcd),
}

impl Exchange {
    /// Its slots: its own, or those of its fall-back.
    #[must_use]
    pub fn slots(&self) -> Option<&Slots> {
        match &self.transport {
            Transport::Slots(slots) => Some(slots),
            Transport::Udp(_) | Transport::Etcd(_) => self.fallback.as_ref(),
        }
    }

    /// The UDP settings, if the medium is UDP.
    #[must_use]
    pub fn udp(&self) -> Option<&Udp> {
        if let Transport::Udp(udp) = &self.transport { Some(udp) } else { None }
    }

    /// The etcd settings, if the medium uses etcd.
    #[must_use]
    pub fn etcd(&self) -> Option<&Etcd> {
        if let Transport::Etcd(etcd) = &self.transport { Some(etcd) } else { None }
    }

    /// Key of the file that its slots are in.
    pub(super) fn file_key(&self) -> &'static str {
        if self.fallback.is_some() { "exchange.fallback.file" } else { "exchange.file" }
    }
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.transport {
            Transport::Slots(slots) => slots.place.fmt(f),
            Transport::Udp(udp) => udp.fmt(f),
            Transport::Etcd(etcd) => etcd.fmt(f),
        }?;
        let fallback = self.fallback.as_ref();
        fallback.map_or(Ok(()), |slots| write!(f, ", fall-back {}", slots.place))
    }
}

/// An exchange of slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    /// File or device that contains the slots.
    pub place: Place,
    /// Start of the slots in `place`, if they are a region of a larger device.
    pub offset: Option<u64>,
    /// Number of slots: the most hosts that can meet.
    pub slots: SlotCount,
    /// Slot of this host: a given one, or any that is free.
    pub choice: SlotChoice,
    /// The command that makes it, for messages.
    pub make: String,
}

/// Refuses keys of other transports than the one that is used.
fn only(at: &TablePart<'_>, exchange: &file::ExchangeTable, transport: &str) -> Result<(), Error> {
    let of_file = "is for file: only a file, device or export has slots";
    let of_udp = "is for udp, and this exchange is another";
    let of_etcd = "is for etcd, and this exchange is another";
    let keys = [
        ("file", of_file, "slots", exchange.slots.is_some()),
        ("file", of_file, "slot", exchange.slot.is_some()),
        ("file", of_file, "offset", exchange.offset.is_some()),
        ("udp", of_udp, "peers", exchange.peers.is_some()),
        ("udp", of_udp, "interface", exchange.interface.is_some()),
        ("udp", of_udp, "key_file", exchange.key_file.is_some()),
    ];
    let etcd = exchange.keys_of_etcd().map(|(key, is_there)| ("etcd", of_etcd, key, is_there));
    for (of, message, key, is_there) in keys.into_iter().chain(etcd) {
        at.refuse_if(is_there && of != transport, key, message)?;
    }
    Ok(())
}

/// Checks `[volume.exchange]`. `at`: the volume, whose hosts meet under the name `volume`.
pub(super) fn check(
    at: &TablePart<'_>,
    volume: &str,
    exchange: &file::ExchangeTable,
) -> Result<Exchange, Error> {
    let (volume_at, at) = (at, &at.part("exchange"));
    let file::ExchangeTable { file, slots, slot, offset, fallback, .. } = exchange;
    let transport = match (file, &exchange.udp, &exchange.etcd) {
        (None, None, None) => {
            let message = "names no place where hosts meet: add file, udp or etcd";
            return Err(volume_at.error("exchange", message));
        }
        (Some(file), None, None) => {
            only(at, exchange, "file")?;
            let message = "is for udp and etcd: a file is a fall-back itself";
            at.refuse_if(fallback.is_some(), "fallback", message)?;
            let (file, slots, slot, offset) = (file.clone(), *slots, *slot, *offset);
            let written = file::Fallback { file, slots, slot, offset };
            Transport::Slots(check_slots(at, volume, &written)?)
        }
        (None, Some(address), None) => {
            only(at, exchange, "udp")?;
            Transport::Udp(udp::check(at, address, exchange)?)
        }
        (None, None, Some(urls)) => {
            only(at, exchange, "etcd")?;
            Transport::Etcd(etcd::check(at, urls, exchange)?)
        }
        (file, udp, _) => {
            let (key, other) = match (file, udp) {
                (Some(_), Some(_)) => ("udp", "file"),
                (Some(_), None) => ("etcd", "file"),
                (None, _) => ("etcd", "udp"),
            };
            let message = format!("contradicts {other}: an exchange is one of file, udp and etcd");
            return Err(at.error(key, message));
        }
    };
    let fallback = fallback.as_ref();
    let fallback = fallback.map(|written| check_slots(&at.part("fallback"), volume, written));
    Ok(Exchange { transport, fallback: fallback.transpose()? })
}

fn check_slots(at: &TablePart<'_>, volume: &str, written: &file::Fallback) -> Result<Slots, Error> {
    let file = &written.file;
    let mut place = at.read("file", place(file))?;
    server_tls::check(at, &mut place, "file", None)?;
    let slots = SlotCount::new(written.slots.unwrap_or(file::SLOTS));
    let slots = slots.ok_or_else(|| format!("must be from 1 to {}", SlotCount::MAX));
    let slots = at.read("slots", slots)?;
    let choice = match written.slot.map(SlotIndex) {
        None => SlotChoice::Automatic,
        Some(slot) => {
            let message = format!("must be from 0 to {} (see slots)", slots.get() - 1);
            at.refuse_if(!slots.contains(slot), "slot", message)?;
            SlotChoice::Fixed(slot)
        }
    };
    let offset = written.offset.map(|b| b.as_u64());
    let aligned = offset.unwrap_or(0).is_multiple_of(REGION_ALIGNMENT);
    at.refuse_if(!aligned, "offset", "must be a multiple of 4KiB")?;
    let mut make = format!("parda exchange init {}", quoted(file));
    if slots.get() != file::SLOTS {
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
