//! Exports of a server.

use parda_address::ExportName;
use parda_disk::Geometry;

use crate::wire::{Framing, TransmissionFlags};

/// One export as a server offers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Name by which clients choose the export.
    pub name: ExportName,
    /// A description for people; may be empty.
    pub description: String,
    /// Size, block sizes and abilities.
    pub geometry: Geometry,
}

impl Export {
    /// The transmission flags that tell a client about this export.
    ///
    /// FLUSH and FUA are always offered: a server that could not honour them would have to
    /// promise durability it cannot give.
    #[must_use]
    pub fn flags(&self, framing: Framing) -> TransmissionFlags {
        type F = TransmissionFlags;
        let Geometry { read_only, trim, write_zeroes, fast_zero, cache, .. } = self.geometry;
        let zeroes = write_zeroes && !read_only;
        F::HAS_FLAGS
            .with(F::SEND_FLUSH, true)
            .with(F::SEND_FUA, true)
            .with(F::READ_ONLY, read_only)
            .with(F::SEND_TRIM, trim && !read_only)
            .with(F::SEND_WRITE_ZEROES, zeroes)
            .with(F::SEND_FAST_ZERO, zeroes && fast_zero)
            .with(F::SEND_CACHE, cache)
            .with(F::SEND_DF, framing.has_chunks())
            // A flush on one connection covers the writes acknowledged on every other.
            .with(F::CAN_MULTI_CONN, true)
    }
}
