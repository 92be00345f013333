//! Slots in an NBD export.

mod connection;

use std::time::Duration;

use parda_address::Uri;
use parda_control::Bytes;
use parda_disk::Errno;

pub use self::connection::{Connection, RequestFailure};
use super::{
    Block, Misaligned, Region, RegionFault, RegionImage, SlotCount, SlotIndex, Store, aligned,
};

/// An export that is connected and takes IOs of a block's size.
#[derive(Debug)]
pub(crate) struct Export {
    connection: Connection,
    limit: Duration,
    /// The connection is of no more use.
    broken: bool,
}

impl Export {
    /// Connects. This and every call gives up after `limit`; only the look-up of a host's address may
    /// take longer.
    pub(crate) fn open(uri: &Uri, limit: Duration) -> Result<Export, RegionFault> {
        let connection = Connection::open(uri, limit)?;
        let blocks = &connection.agreed().blocks;
        let (min, max) = (blocks.min(), blocks.max());
        if !(min..=max).contains(&(Block::BYTES as u32)) {
            return Err(RegionFault::BlockSize { min, max });
        }
        Ok(Export { connection, limit, broken: false })
    }

    fn done<T>(
        &mut self,
        result: Result<T, RequestFailure>,
        refused: impl FnOnce(Errno) -> RegionFault,
    ) -> Result<T, RegionFault> {
        result.map_err(|failure| match failure {
            RequestFailure::Refused(errno) => refused(errno),
            RequestFailure::Broken(fault) => {
                self.broken = true;
                fault
            }
        })
    }
}

impl Store for Export {
    fn size(&self) -> u64 {
        self.connection.agreed().size
    }

    fn read(&mut self, at: u64, blocks: &mut [Block]) -> Result<(), RegionFault> {
        self.connection.restart_clock(self.limit);
        let there = self.size().saturating_sub(at);
        let len = there.min((blocks.len() * Block::BYTES) as u64) as usize;
        let read = self.connection.read(at, len);
        let bytes = self.done(read, |errno| RegionFault::Read(os_error(errno)))?;
        for (block, bytes) in blocks.iter_mut().zip(bytes.chunks(Block::BYTES)) {
            block.0[..bytes.len()].copy_from_slice(bytes);
        }
        Ok(())
    }

    fn write(&mut self, at: u64, block: &Block) -> Result<(), RegionFault> {
        self.connection.restart_clock(self.limit);
        let written = self.connection.write(at, &block.0);
        self.done(written, |errno| match errno {
            Errno::NoSpc => RegionFault::NoSpace { needed: Bytes(at + Block::BYTES as u64) },
            Errno::Perm => RegionFault::ReadOnly,
            other => RegionFault::Write(os_error(other)),
        })
    }

    fn sync(&mut self) -> Result<(), RegionFault> {
        self.connection.restart_clock(self.limit);
        let flushed = self.connection.flush();
        self.done(flushed, |errno| RegionFault::Write(os_error(errno)))
    }
}

fn os_error(errno: Errno) -> std::io::Error {
    // NBD has taken its error codes from Linux.
    std::io::Error::from_raw_os_error(errno.code() as i32)
}

/// Slots in an NBD export, from an offset on: never extended.
///
/// The connection is kept between calls: a new one would cost several round trips each period. After
/// an error it is made anew. A write goes over the connection of the read before it.
#[derive(Debug)]
pub struct NbdRegion {
    uri: Uri,
    place: String,
    offset: Bytes,
    slots: SlotCount,
    limit: Duration,
    export: Option<Export>,
    /// A read went over this connection, and no write since.
    open: bool,
}

impl NbdRegion {
    /// Slots from `offset` on. Every call, with the connecting that it needs, gives up after `limit`.
    /// Only the look-up of a host's address may take longer. Connects with the first call.
    ///
    /// # Errors
    /// The offset is no multiple of a slot.
    pub fn new(
        uri: Uri,
        offset: Bytes,
        slots: SlotCount,
        limit: Duration,
    ) -> Result<NbdRegion, Misaligned> {
        let place = format!("{}/{}", uri.address, uri.export.as_str());
        let offset = aligned(offset)?;
        Ok(NbdRegion { uri, place, offset, slots, limit, export: None, open: false })
    }

    /// Does `io` over the kept connection, or over a new one.
    fn connected<T>(
        &mut self,
        io: impl FnOnce(&mut Export) -> Result<T, RegionFault>,
    ) -> Result<T, RegionFault> {
        let mut export = match self.export.take() {
            Some(export) => export,
            None => self.connect()?,
        };
        let result = io(&mut export);
        if !export.broken {
            self.export = Some(export);
        }
        result
    }

    fn connect(&self) -> Result<Export, RegionFault> {
        let export = Export::open(&self.uri, self.limit)?;
        let found = export.size().saturating_sub(self.offset.0);
        let needed = self.slots.place_bytes();
        if found < needed {
            return Err(RegionFault::TooSmall { needed: Bytes(needed), found: Bytes(found) });
        }
        Ok(export)
    }
}

impl Region for NbdRegion {
    fn place(&self) -> &str {
        &self.place
    }

    fn slots(&self) -> SlotCount {
        self.slots
    }

    fn read_front(&mut self, slots: SlotCount) -> Result<RegionImage, RegionFault> {
        let mut image = RegionImage::blank(slots);
        let start = self.offset.0;
        let read = self.connected(|export| export.read(start, &mut image.0));
        self.open = read.is_ok();
        read.map(|()| image)
    }

    fn write(&mut self, slot: SlotIndex, block: &Block) -> Result<(), RegionFault> {
        if !std::mem::take(&mut self.open) {
            return Err(RegionFault::NotOpen);
        }
        let start = self.offset.0 + slot.offset();
        self.connected(|export| export.write(start, block))
    }

    fn close(&mut self) {
        self.open = false;
    }
}
