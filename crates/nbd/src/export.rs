//! Exports of a server.

use std::fmt;

use crate::wire::{self, Framing, TransmissionFlags};

/// The name of an export: at most 4096 bytes, no NUL (spec, "Conventions"). May be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ExportName(String);

/// A string that cannot name an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportNameError {
    /// Longer than 4096 bytes.
    #[error("an export name has at most {max} bytes, this one has {0}", max = wire::MAX_STRING)]
    TooLong(usize),
    /// The name contains a NUL byte.
    #[error("an export name must not contain a NUL byte")]
    Nul,
}

impl ExportName {
    /// Checks that `name` can be an export's name.
    pub fn new(name: impl Into<String>) -> Result<Self, ExportNameError> {
        let name = name.into();
        if name.len() > wire::MAX_STRING {
            return Err(ExportNameError::TooLong(name.len()));
        }
        if name.contains('\0') {
            return Err(ExportNameError::Nul);
        }
        Ok(Self(name))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ExportName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Block size constraints, in bytes (spec, "Block size constraints").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    min: u32,
    preferred: u32,
    max: u32,
}

/// Block sizes that contradict the spec or each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "block sizes {min}/{preferred}/{max} are invalid: the minimum must be a power of two up to \
     65536, the preferred size a power of two from 512 and at least the minimum, the maximum at \
     least the preferred size and a multiple of the minimum"
)]
pub struct BlockSizeError {
    min: u32,
    preferred: u32,
    max: u32,
}

impl BlockSizes {
    /// Sizes that hold when the server names none: any byte, 4 KiB preferred, 32 MiB at most.
    pub const DEFAULT: Self = Self { min: 1, preferred: 4096, max: wire::DEFAULT_MAX_PAYLOAD };

    /// Sizes with the default maximum.
    ///
    /// `min`: what offsets and lengths must be a multiple of; 4 KiB or, if larger, `min` is the
    /// preferred size.
    pub fn with_min(min: u32) -> Result<Self, BlockSizeError> {
        Self::from_wire([min, min.max(4096), wire::DEFAULT_MAX_PAYLOAD])
    }

    /// Sizes in the order of the wire: minimum, preferred, maximum.
    pub fn from_wire([min, preferred, max]: [u32; 3]) -> Result<Self, BlockSizeError> {
        let sizes = Self { min, preferred, max };
        let ok = min.is_power_of_two()
            && min <= 1 << 16
            && preferred.is_power_of_two()
            && preferred >= min.max(512)
            && max >= preferred
            // All ones means "no limit" and is exempt from being a multiple.
            && (max % min == 0 || max == u32::MAX);
        if ok { Ok(sizes) } else { Err(BlockSizeError { min, preferred, max }) }
    }

    /// Offsets and lengths are multiples of this, a power of two.
    #[must_use]
    pub fn min(self) -> u32 {
        self.min
    }

    /// The size that performs well.
    #[must_use]
    pub fn preferred(self) -> u32 {
        self.preferred
    }

    /// The largest payload of one request.
    #[must_use]
    pub fn max(self) -> u32 {
        self.max
    }
}

/// One export as a server offers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Name by which clients choose the export.
    pub name: ExportName,
    /// A description for people; may be empty.
    pub description: String,
    /// Its size in bytes.
    pub size: u64,
    /// Sizes that its requests must respect.
    pub blocks: BlockSizes,
    /// Whether the export refuses writes.
    pub read_only: bool,
    /// Whether TRIM is offered to clients.
    pub trim: bool,
    /// Whether WRITE_ZEROES is offered to clients.
    pub write_zeroes: bool,
    /// FAST_ZERO is offered; only with WRITE_ZEROES.
    pub fast_zero: bool,
    /// Whether CACHE is offered to clients.
    pub cache: bool,
    /// A flush on one connection covers the writes acknowledged on every other.
    pub multi_conn: bool,
}

impl Export {
    /// The transmission flags that tell a client about this export.
    ///
    /// FLUSH and FUA are always offered: a server that could not honour them would have to
    /// promise durability it cannot give.
    #[must_use]
    pub fn flags(&self, framing: Framing) -> TransmissionFlags {
        type F = TransmissionFlags;
        let zeroes = self.write_zeroes && !self.read_only;
        F::HAS_FLAGS
            .with(F::SEND_FLUSH, true)
            .with(F::SEND_FUA, true)
            .with(F::READ_ONLY, self.read_only)
            .with(F::SEND_TRIM, self.trim && !self.read_only)
            .with(F::SEND_WRITE_ZEROES, zeroes)
            .with(F::SEND_FAST_ZERO, zeroes && self.fast_zero)
            .with(F::SEND_CACHE, self.cache)
            .with(F::SEND_DF, framing.has_chunks())
            .with(F::CAN_MULTI_CONN, self.multi_conn)
    }
}
