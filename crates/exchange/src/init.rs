//! Making a place: once, on purpose, and only where nothing is lost by it.
//!
//! A new place is a new file, an empty one, or zeros. All bytes are compared with zero, so no knowledge of other formats is
//! needed. Where a place is a region of something larger, libblkid is also asked about the whole of it.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use parda_awake::Instant;
use parda_control::Bytes;

use crate::found;
use crate::header::{Header, PlaceFault, VolumeName};
use crate::location::{Location, Site};
use crate::region::{
    Access, Block, Export, Kind, Opened, RegionFault, SlotCount, SlotIndex, Store,
};
use crate::slot::{Content, decode};

/// Bytes at the beginning of a device that must be zeros. No file system, volume manager or partition table leaves so many
/// without a mark.
const HEAD: u64 = 64 << 20;

/// Bytes at the end of a device that must be zeros: RAID and GPT have their marks there.
const TAIL: u64 = 1 << 20;

/// Blocks that one call reads: 1 MiB.
const PIECE: usize = (1 << 20) / Block::BYTES;

/// Longest time for which another program may hold a lock on the place.
const LOCKED: Duration = Duration::from_secs(10);

/// How a place was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Made {
    /// The exchange was made by this call.
    New(Header),
    /// Before, and just so. Nothing was changed.
    Already(Header),
}

/// Why a place was not made, as text. Nothing was changed, unless writing itself has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InitError(String);

impl InitError {
    fn at(place: &str, fault: &RegionFault) -> InitError {
        InitError(format!("exchange {place}: {fault}"))
    }
}

/// Advice for a place that is not empty.
const ADVICE: &str = "Is the path right? If all of it may be erased, fill it with zeros first";

/// Makes an exchange at `site`, for `volume` or for any. `limit` bounds each call to an NBD server.
///
/// # Errors
/// Nothing was changed, unless writing itself has failed.
pub fn init(
    site: &Site,
    slots: SlotCount,
    volume: Option<VolumeName>,
    limit: Duration,
) -> Result<Made, InitError> {
    init_as(site, Header::new(slots, volume), limit)
}

/// Makes an exchange at `site` with a given header, as [`init`] does with a new one. Two places with one header are one
/// exchange to a host that sees only one of them at a time. Example: the copies of a store whose replication has parted.
///
/// # Errors
/// Nothing was changed, unless writing itself has failed.
pub fn init_as(site: &Site, new: Header, limit: Duration) -> Result<Made, InitError> {
    let name = site.location.to_string();
    let at = |fault: RegionFault| InitError::at(&name, &fault);
    let (mut store, path, grows): (Box<dyn Store>, Option<&Path>, bool) = match &site.location {
        Location::Path(path) => {
            let opened = open(path, site, &name)?;
            let grows = opened.kind() == Kind::File && site.offset().is_none();
            (Box::new(opened), Some(path), grows)
        }
        Location::Nbd(uri) => (Box::new(Export::open(uri, limit).map_err(at)?), None, false),
    };
    let place = Place { site, name: &name, slots: new.slots, path, grows };
    if let Some(made) = place.made_already(&mut *store, &new)? {
        return Ok(made);
    }
    place.check(&mut *store)?;
    if grows {
        store.grow(new.slots.place_bytes()).map_err(at)?;
    }
    store.write(start(site), &new.encode()).map_err(at)?;
    store.sync().map_err(at)?;
    path.into_iter().for_each(sync_directory);
    Ok(Made::New(new))
}

/// Contents of a place: its header and its slots.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaceContents {
    /// Header of the exchange.
    pub header: Header,
    /// Content of each slot, in order.
    pub slots: Vec<Content>,
}

/// Looks at a place, and changes nothing. `limit` bounds each call to an NBD server.
///
/// # Errors
/// It cannot be read. The inner error: it is no exchange.
pub fn look(site: &Site, limit: Duration) -> Result<Result<PlaceContents, PlaceFault>, InitError> {
    let at = |fault: RegionFault| InitError::at(&site.location.to_string(), &fault);
    let mut store: Box<dyn Store> = match &site.location {
        Location::Path(path) => match Opened::open(path, Access::Read) {
            Err(RegionFault::Missing) => return Ok(Err(PlaceFault::Missing)),
            opened => Box::new(opened.map_err(at)?),
        },
        Location::Nbd(uri) => Box::new(Export::open(uri, limit).map_err(at)?),
    };
    let mut block = [Block::ZERO];
    store.read(start(site), &mut block).map_err(at)?;
    let header = match Header::decode(&block[0]) {
        Ok(header) => header,
        Err(fault) => return Ok(Err(named(&mut *store, site, fault))),
    };
    let mut blocks = vec![Block::ZERO; header.slots.get() as usize];
    store.read(start(site) + SlotIndex(0).offset(), &mut blocks).map_err(at)?;
    let slots =
        (0..).map(SlotIndex).zip(&blocks).map(|(slot, block)| decode(block, slot)).collect();
    Ok(Ok(PlaceContents { header, slots }))
}

/// Names what a place without a header holds: some formats have their mark behind the first block.
fn named(store: &mut dyn Store, site: &Site, fault: PlaceFault) -> PlaceFault {
    match fault {
        PlaceFault::Foreign(_) | PlaceFault::Blank if site.offset().is_none() => {
            match describe(store, start(site)) {
                Ok(Some(what)) => PlaceFault::Foreign(what),
                _ => fault,
            }
        }
        fault => fault,
    }
}

fn start(site: &Site) -> u64 {
    site.offset().map_or(0, |offset| offset.0)
}

/// Opens an existing place, or creates it if it is a file of its own. Other programs are shut out as far as possible.
fn open(path: &Path, site: &Site, place: &str) -> Result<Opened, InitError> {
    let in_use = |by: &str| InitError(format!("{place} is in use: {by}. Nothing was changed"));
    let opened = match Opened::open(path, Access::Alone) {
        Err(RegionFault::Missing) if site.offset().is_none() => {
            match Opened::open(path, Access::Create) {
                // Somebody else has just created it.
                Err(RegionFault::Create(e)) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                    Opened::open(path, Access::Alone)
                }
                opened => opened,
            }
        }
        opened => opened,
    };
    let mut opened = opened.map_err(|fault| match fault {
        RegionFault::Open(e) if e.kind() == std::io::ErrorKind::ResourceBusy => {
            in_use("it is mounted, or a part of LVM, RAID, multipath or another device")
        }
        fault => InitError::at(place, &fault),
    })?;
    let began = Instant::now();
    while !opened.lock() {
        if began.elapsed() > LOCKED {
            return Err(in_use(
                "another program holds a lock on it, as agents, qemu and qemu-nbd do",
            ));
        }
        sleep(Duration::from_millis(20));
    }
    // The last holder of the lock may have made the file longer. No second opening: closing any descriptor of a file gives up
    // all locks of the process on it.
    opened.measure().map_err(|fault| InitError::at(place, &fault))?;
    Ok(opened)
}

/// A place that is to be made.
struct Place<'a> {
    site: &'a Site,
    name: &'a str,
    slots: SlotCount,
    /// The file or device, if it is one.
    path: Option<&'a Path>,
    /// Whether it is a file of its own, which grows as needed.
    grows: bool,
}

impl Place<'_> {
    fn at(&self, fault: RegionFault) -> InitError {
        InitError::at(self.name, &fault)
    }

    fn not_empty(&self, what: &str, advice: &str) -> InitError {
        let name = self.name;
        InitError(format!("{name} is not empty: it holds {what}. Nothing was changed. {advice}"))
    }

    /// Header at the place, if the place already is such an exchange.
    fn made_already(&self, store: &mut dyn Store, new: &Header) -> Result<Option<Made>, InitError> {
        let mut block = [Block::ZERO];
        store.read(start(self.site), &mut block).map_err(|fault| self.at(fault))?;
        let what = match Header::decode(&block[0]) {
            Ok(header) if (header.slots, &header.volume) == (new.slots, &new.volume) => {
                return Ok(Some(Made::Already(header)));
            }
            Ok(header) => {
                return Err(InitError(format!(
                    "{} is an exchange already, {header}: nothing was changed. Use it as it is, or make another one \
                     elsewhere",
                    self.name
                )));
            }
            Err(PlaceFault::OldFormat) => "an exchange of format 1, which had no header".to_owned(),
            Err(PlaceFault::Format(format)) => format!("an exchange of format {format}"),
            Err(PlaceFault::Damaged) => "a torn or damaged header of an exchange".to_owned(),
            Err(_) => return Ok(None),
        };
        let advice = "Make a new one elsewhere; or fill it with zeros, if no host uses it";
        Err(self.not_empty(&what, advice))
    }

    /// Checks that no data is lost. There is room, and zeros are where the place is going to be. Unless a region was asked for
    /// explicitly, zeros are also wherever other formats have their marks.
    fn check(&self, store: &mut dyn Store) -> Result<(), InitError> {
        let at = |fault| self.at(fault);
        let not_empty = |what: String| self.not_empty(&what, ADVICE);
        let (size, start, needed) = (store.size(), start(self.site), self.slots.place_bytes());
        let found = size.saturating_sub(start);
        if !self.grows && found < needed {
            return Err(at(RegionFault::TooSmall { needed: Bytes(needed), found: Bytes(found) }));
        }
        let is_region = self.site.offset().is_some();
        let (head, tail) = match is_region {
            true => (start..start + needed, 0..0),
            false => (0..HEAD.min(size), size.saturating_sub(TAIL) / 4096 * 4096..size),
        };
        for range in [head, tail] {
            if let Some(at_byte) = first_nonzero(store, range).map_err(at)? {
                let what = match describe(store, 0).map_err(at)? {
                    Some(what) if !is_region => what,
                    _ => format!("data at byte {at_byte}"),
                };
                return Err(not_empty(blkid(self.path).ok().flatten().unwrap_or(what)));
            }
        }
        // After the check for zeros: the contents say more than the length.
        if self.grows && size > needed {
            let (name, slots) = (self.name, self.slots.get());
            return Err(InitError(format!(
                "{name} has {size} bytes, but an exchange of {slots} slots is a file of {needed}: nothing was changed. Name a \
                 file that is new, empty or just so long; with an offset, a region of this one"
            )));
        }
        if !is_region {
            return Ok(());
        }
        if let Some(outer) = surrounding(store, start).map_err(at)? {
            return Err(not_empty(format!("another exchange around it, from byte {outer} on")));
        }
        // The rest is not ours, and not all of it can be read: is it anything that is known?
        let mark = describe(store, 0).map_err(at)?;
        let mark = mark.filter(|what| !what.starts_with("other data"));
        let known = blkid(self.path).map_err(|why| {
            let name = self.name;
            InitError(format!(
                "{name}: cannot find out whether it holds anything: {why}. Nothing was changed"
            ))
        })?;
        match known.or(mark) {
            Some(what) => Err(not_empty(format!("{what}, a part of which the region would be"))),
            None => Ok(()),
        }
    }
}

fn first_nonzero(
    store: &mut dyn Store,
    range: std::ops::Range<u64>,
) -> Result<Option<u64>, RegionFault> {
    let mut blocks = vec![Block::ZERO; PIECE];
    let mut at = range.start;
    while at < range.end {
        let needed = (range.end - at).div_ceil(Block::BYTES as u64).min(PIECE as u64) as usize;
        let piece = &mut blocks[..needed];
        piece.fill(Block::ZERO);
        store.read(at, piece)?;
        if let Some(i) = piece.iter().position(|block| *block != Block::ZERO) {
            let within = piece[i].0.iter().position(|byte| *byte != 0).unwrap_or(0);
            return Ok(Some(at + (i * Block::BYTES + within) as u64));
        }
        at += (needed * Block::BYTES) as u64;
    }
    Ok(None)
}

/// Description of the first bytes from `at` on; `None` if they are zeros.
fn describe(store: &mut dyn Store, at: u64) -> Result<Option<String>, RegionFault> {
    let mut blocks = vec![Block::ZERO; found::TELLING / Block::BYTES];
    store.read(at, &mut blocks)?;
    if blocks.iter().all(|block| *block == Block::ZERO) {
        return Ok(None);
    }
    let bytes: Vec<u8> = blocks.iter().flat_map(|block| block.0).collect();
    Ok(Some(found::describe(&bytes)))
}

/// Beginning of an exchange that has slots at `start`.
fn surrounding(store: &mut dyn Store, start: u64) -> Result<Option<u64>, RegionFault> {
    let reach = u64::from(SlotCount::MAX) * Block::BYTES as u64;
    let from = start.saturating_sub(reach);
    let mut blocks = vec![Block::ZERO; ((start - from) / Block::BYTES as u64) as usize];
    store.read(from, &mut blocks)?;
    let outer = blocks.iter().enumerate().find_map(|(i, block)| {
        let at = from + (i * Block::BYTES) as u64;
        let header = Header::decode(block).ok()?;
        (at + header.slots.place_bytes() > start).then_some(at)
    });
    Ok(outer)
}

/// Description of a file or device by libblkid. An error if libblkid cannot be asked.
fn blkid(path: Option<&Path>) -> Result<Option<String>, String> {
    let Some(path) = path else { return Ok(None) };
    let mut why = String::new();
    // A user's search path may lack the directories of the system's tools.
    for program in ["blkid", "/usr/sbin/blkid", "/sbin/blkid"] {
        let asked = Command::new(program)
            .args(["--probe", "--output", "export", "--"])
            .arg(path)
            .stdin(Stdio::null())
            .output();
        let answer = match asked {
            Ok(answer) => answer,
            Err(e) => {
                why = format!("blkid of util-linux cannot be run: {e}");
                continue;
            }
        };
        return match answer.status.code() {
            Some(0) => Ok(said(&String::from_utf8_lossy(&answer.stdout))),
            Some(2) => Ok(None),
            Some(8) => Ok(Some("signatures of several things, says libblkid".to_owned())),
            _ => Err(format!("blkid: {}", String::from_utf8_lossy(&answer.stderr).trim())),
        };
    }
    Err(why)
}

/// A file system, RAID member or the like, or else a partition table. Other output of blkid, such as block sizes, is no
/// signature.
fn said(answer: &str) -> Option<String> {
    let value = |key: &str| {
        let mut values =
            answer.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        values.next()
    };
    let what = value("TYPE").map(|what| format!("{what}, says libblkid"));
    what.or_else(|| {
        value("PTTYPE").map(|kind| format!("a partition table ({kind}), says libblkid"))
    })
}

/// So that a new file outlives a crash.
fn sync_directory(path: &Path) {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    // A file system that cannot do this loses the name of the file, at worst.
    let _ = std::fs::File::open(directory.unwrap_or(Path::new("."))).and_then(|dir| dir.sync_all());
}
