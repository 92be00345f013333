//! `[volume.exchange]`: where the hosts of a volume meet, checked.

use std::fmt;

use bytesize::ByteSize;
use parda_config::Error;
use parda_exchange::SlotChoice;
use parda_exchange::region::{SlotCount, SlotIndex};

use super::etcd::{self, Etcd};
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
    /// Keys of an etcd cluster.
    Etcd(Etcd),
    /// One of these, and slots as its fall-back.
    WithFallback(Box<Exchange>, Slots),
}

impl Exchange {
    /// Its slots: its own, or those of its fall-back.
    #[must_use]
    pub fn slots(&self) -> Option<&Slots> {
        match self {
            Exchange::Slots(slots) | Exchange::WithFallback(_, slots) => Some(slots),
            Exchange::Udp(_) | Exchange::Etcd(_) => None,
        }
    }

    /// What it says of UDP, if that is a part of it.
    #[must_use]
    pub fn udp(&self) -> Option<&Udp> {
        match self {
            Exchange::Udp(udp) => Some(udp),
            Exchange::WithFallback(first, _) => first.udp(),
            Exchange::Slots(_) | Exchange::Etcd(_) => None,
        }
    }

    /// What it says of etcd, if that is a part of it.
    #[must_use]
    pub fn etcd(&self) -> Option<&Etcd> {
        match self {
            Exchange::Etcd(etcd) => Some(etcd),
            Exchange::WithFallback(first, _) => first.etcd(),
            Exchange::Slots(_) | Exchange::Udp(_) => None,
        }
    }

    /// Key of the file that its slots are in.
    pub(super) fn file_key(&self) -> &'static str {
        match self {
            Exchange::WithFallback(..) => "exchange.fallback.file",
            _ => "exchange.file",
        }
    }
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exchange::Slots(slots) => slots.place.fmt(f),
            Exchange::Udp(udp) => udp.fmt(f),
            Exchange::Etcd(etcd) => etcd.fmt(f),
            Exchange::WithFallback(first, slots) => {
                write!(f, "{first}, fall-back {}", slots.place)
            }
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

/// The keys that belong to one transport, with whether each is there, and why it is not for another one.
struct Keys {
    of: &'static str,
    is_for: &'static str,
    keys: Vec<(&'static str, bool)>,
}

fn keys(exchange: &file::Exchange) -> [Keys; 3] {
    let etcd = vec![
        ("exchange.prefix", exchange.prefix.is_some()),
        ("exchange.tls", exchange.tls.is_some()),
        ("exchange.plain", exchange.plain),
        ("exchange.user", exchange.user.is_some()),
        ("exchange.password_file", exchange.password_file.is_some()),
        ("exchange.data_dir", exchange.data_dir.is_some()),
    ];
    let slots = vec![
        ("exchange.slots", exchange.slots.is_some()),
        ("exchange.slot", exchange.slot.is_some()),
        ("exchange.offset", exchange.offset.is_some()),
    ];
    let udp = vec![
        ("exchange.peers", exchange.peers.is_some()),
        ("exchange.interface", exchange.interface.is_some()),
        ("exchange.key_file", exchange.key_file.is_some()),
    ];
    [
        Keys {
            of: "file",
            is_for: "is for file: only a file, device or export has slots",
            keys: slots,
        },
        Keys { of: "udp", is_for: "is for udp, and this exchange is another", keys: udp },
        Keys { of: "etcd", is_for: "is for etcd, and this exchange is another", keys: etcd },
    ]
}

pub(super) fn check(
    wrong: &dyn Fn(&str, String) -> Error,
    volume: &str,
    exchange: &file::Exchange,
) -> Result<Exchange, Error> {
    let only = |transport: &str| {
        let others = keys(exchange).into_iter().filter(|keys| keys.of != transport);
        let misplaced = others.flat_map(|Keys { is_for, keys, .. }| {
            keys.into_iter().filter(|(_, there)| *there).map(move |(key, _)| (key, is_for))
        });
        let first = misplaced.into_iter().next();
        first.map_or(Ok(()), |(key, is_for)| Err(wrong(key, is_for.into())))
    };
    match (&exchange.file, &exchange.udp, &exchange.etcd) {
        (None, None, None) => {
            let message = "names no place where hosts meet: add file, udp or etcd";
            Err(wrong("exchange", message.into()))
        }
        (Some(file), None, None) => {
            only("file")?;
            if exchange.fallback.is_some() {
                let message = "is for udp and etcd: a file is a fall-back itself";
                return Err(wrong("exchange.fallback", message.into()));
            }
            let written = Written {
                at: "exchange",
                file,
                slots: exchange.slots,
                slot: exchange.slot,
                offset: exchange.offset,
            };
            check_slots(wrong, volume, &written).map(Exchange::Slots)
        }
        (None, Some(address), None) => {
            only("udp")?;
            let udp = udp::check(wrong, address, exchange).map(Exchange::Udp)?;
            with_fallback(wrong, volume, udp, exchange.fallback.as_ref())
        }
        (None, None, Some(urls)) => {
            only("etcd")?;
            let etcd = etcd::check(wrong, urls, exchange).map(Exchange::Etcd)?;
            with_fallback(wrong, volume, etcd, exchange.fallback.as_ref())
        }
        (file, udp, _) => {
            let (key, other) = match (file, udp) {
                (Some(_), Some(_)) => ("exchange.udp", "file"),
                (Some(_), None) => ("exchange.etcd", "file"),
                (None, _) => ("exchange.etcd", "udp"),
            };
            let message = format!("contradicts {other}: an exchange is one of file, udp and etcd");
            Err(wrong(key, message))
        }
    }
}

fn with_fallback(
    wrong: &dyn Fn(&str, String) -> Error,
    volume: &str,
    first: Exchange,
    fallback: Option<&file::Fallback>,
) -> Result<Exchange, Error> {
    let Some(file::Fallback { file, slots, slot, offset }) = fallback else { return Ok(first) };
    let written =
        Written { at: "exchange.fallback", file, slots: *slots, slot: *slot, offset: *offset };
    let slots = check_slots(wrong, volume, &written)?;
    Ok(Exchange::WithFallback(Box::new(first), slots))
}

/// Slots as they are written, and the table where.
struct Written<'a> {
    at: &'a str,
    file: &'a str,
    slots: Option<u32>,
    slot: Option<u32>,
    offset: Option<ByteSize>,
}

fn check_slots(
    wrong: &dyn Fn(&str, String) -> Error,
    volume: &str,
    written: &Written<'_>,
) -> Result<Slots, Error> {
    let Written { at, file, .. } = *written;
    let key = |name: &str| format!("{at}.{name}");
    let mut place = place(file).map_err(|e| wrong(&key("file"), e))?;
    server_tls::check(wrong, &mut place, &key("file"), None)?;
    let slots = SlotCount::new(written.slots.unwrap_or_else(file::default_slots))
        .ok_or_else(|| wrong(&key("slots"), format!("must be from 1 to {}", SlotCount::MAX)))?;
    let choice = match written.slot {
        None => SlotChoice::Automatic,
        Some(slot) if slots.contains(SlotIndex(slot)) => SlotChoice::Fixed(SlotIndex(slot)),
        Some(_) => {
            let last = slots.get() - 1;
            return Err(wrong(&key("slot"), format!("must be from 0 to {last} (see slots)")));
        }
    };
    let offset = written.offset.map(|b| b.as_u64());
    if !offset.unwrap_or(0).is_multiple_of(REGION_ALIGNMENT) {
        return Err(wrong(&key("offset"), "must be a multiple of 4KiB".into()));
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
