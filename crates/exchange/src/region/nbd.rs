//! Slots in an NBD export.

mod connection;

use std::time::Duration;

use parda_control::Bytes;
use parda_nbd::Errno;
use parda_nbd::uri::Uri;

pub use self::connection::{Connection, Failure};
use super::{Block, Misaligned, Region, RegionError, RegionFault, SlotCount, SlotIndex, aligned};

/// Slots in an NBD export, from an offset on: never extended.
///
/// The connection is kept between calls, as a new one would cost several round trips each period,
/// and is made anew after an error.
#[derive(Debug)]
pub struct NbdRegion {
    uri: Uri,
    place: String,
    offset: Bytes,
    slots: SlotCount,
    limit: Duration,
    connection: Option<Connection>,
}

impl NbdRegion {
    /// Slots from `offset` on. Every call, with the connecting that it needs, gives up after
    /// `limit`; only the look-up of a host's address may take longer. Connects with the first
    /// call.
    pub fn new(
        uri: Uri,
        offset: Bytes,
        slots: SlotCount,
        limit: Duration,
    ) -> Result<NbdRegion, Misaligned> {
        let place = format!("{}/{}", uri.address, uri.export.as_str());
        Ok(NbdRegion { uri, place, offset: aligned(offset)?, slots, limit, connection: None })
    }

    /// Does `io` over the kept connection, or over a new one.
    fn connected<T>(
        &mut self,
        io: impl FnOnce(&mut Connection) -> Result<T, Failure>,
        refused: impl FnOnce(Errno) -> RegionFault,
    ) -> Result<T, RegionError> {
        let connection = match self.connection.take() {
            Some(mut connection) => {
                connection.restart_clock(self.limit);
                Ok(connection)
            }
            None => self.connect(),
        };
        let mut connection = connection.map_err(|fault| fault.at(&self.place))?;
        let result = io(&mut connection);
        if !matches!(result, Err(Failure::Broken(_))) {
            self.connection = Some(connection);
        }
        result.map_err(|failure| {
            match failure {
                Failure::Refused(errno) => refused(errno),
                Failure::Broken(fault) => fault,
            }
            .at(&self.place)
        })
    }

    fn connect(&self) -> Result<Connection, RegionFault> {
        let connection = Connection::open(&self.uri, self.limit)?;
        let agreed = connection.agreed();
        let (min, max) = (agreed.blocks.min(), agreed.blocks.max());
        if !(min..=max).contains(&(Block::BYTES as u32)) {
            return Err(RegionFault::BlockSize { min, max });
        }
        let found = agreed.size.saturating_sub(self.offset.0);
        let needed = self.slots.bytes();
        if found < needed {
            return Err(RegionFault::TooSmall { needed: Bytes(needed), found: Bytes(found) });
        }
        Ok(connection)
    }
}

fn os_error(errno: Errno) -> std::io::Error {
    // NBD has taken its error codes from Linux.
    std::io::Error::from_raw_os_error(errno.code() as i32)
}

impl Region for NbdRegion {
    fn place(&self) -> &str {
        &self.place
    }

    fn slots(&self) -> SlotCount {
        self.slots
    }

    fn read(&mut self) -> Result<Vec<Block>, RegionError> {
        let (start, len) = (self.offset.0, self.slots.bytes() as usize);
        let bytes = self.connected(
            |connection| connection.read(start, len),
            |errno| RegionFault::Read(os_error(errno)),
        )?;
        let mut blocks = self.slots.blank();
        for (block, bytes) in blocks.iter_mut().zip(bytes.chunks_exact(Block::BYTES)) {
            block.0.copy_from_slice(bytes);
        }
        Ok(blocks)
    }

    fn write(&mut self, slot: SlotIndex, block: &Block) -> Result<(), RegionError> {
        let start = self.offset.0 + slot.offset();
        let needed = Bytes(self.slots.bytes());
        self.connected(
            |connection| connection.write(start, &block.0),
            |errno| match errno {
                Errno::NoSpc => RegionFault::NoSpace { needed },
                Errno::Perm => RegionFault::ReadOnly,
                other => RegionFault::Write(os_error(other)),
            },
        )
    }
}
