//! Geometry and abilities of a disk.

/// Largest data of one read or write, in bytes, unless a disk says otherwise: the most that an NBD
/// client may send without having agreed on more.
pub const MAX_PAYLOAD: u32 = 32 << 20;

/// Block size constraints, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    min: u32,
    preferred: u32,
    max: u32,
}

/// Block sizes that contradict each other or the bounds of any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "block sizes {min}/{preferred}/{max} are invalid: the minimum must be a power of two up to \
     65536, the preferred size a power of two from 512 and at least the minimum, the maximum at \
     least the preferred size and a multiple of the minimum",
    min = .0.min, preferred = .0.preferred, max = .0.max
)]
pub struct BlockSizeError(BlockSizes);

impl BlockSizes {
    /// Sizes of a disk that names none: any byte, 4 KiB preferred, 32 MiB at most.
    pub const DEFAULT: Self = Self { min: 1, preferred: 4096, max: MAX_PAYLOAD };

    /// Sizes with the default maximum.
    ///
    /// `min`: what offsets and lengths must be a multiple of; 4 KiB or, if larger, `min` is the
    /// preferred size.
    pub fn with_min(min: u32) -> Result<Self, BlockSizeError> {
        Self::new([min, min.max(4096), MAX_PAYLOAD])
    }

    /// Sizes in this order: minimum, preferred, maximum.
    pub fn new([min, preferred, max]: [u32; 3]) -> Result<Self, BlockSizeError> {
        let sizes = Self { min, preferred, max };
        let ok = min.is_power_of_two()
            && min <= 1 << 16
            && preferred.is_power_of_two()
            && preferred >= min.max(512)
            && max >= preferred
            // All ones means "no limit" and is exempt from being a multiple.
            && (max % min == 0 || max == u32::MAX);
        if ok { Ok(sizes) } else { Err(BlockSizeError(sizes)) }
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

/// Size, block sizes and abilities of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Its size in bytes.
    pub size: u64,
    /// Sizes that its requests must respect.
    pub blocks: BlockSizes,
    /// Whether it refuses writes.
    pub read_only: bool,
    /// Whether it can give up the contents of a range.
    pub trim: bool,
    /// Whether it can write zeroes without their data.
    pub write_zeroes: bool,
    /// Whether zeroes that would be slow can be refused at once.
    pub fast_zero: bool,
    /// Whether there is a cache into which data can be fetched.
    pub cache: bool,
}

impl Geometry {
    /// A disk that can be read, written and flushed, and no more.
    #[must_use]
    pub fn new(size: u64, blocks: BlockSizes) -> Self {
        let (read_only, trim, write_zeroes) = (false, false, false);
        Self { size, blocks, read_only, trim, write_zeroes, fast_zero: false, cache: false }
    }
}
