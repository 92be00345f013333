//! Ranges of a disk.

/// A range of bytes of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte, counted from the start of the disk.
    pub offset: u64,
    /// Number of bytes. More than 32 bits hold only for requests without a payload.
    pub len: u64,
}

impl Extent {
    /// The first byte after the range, or `None` if that is past 2⁶⁴.
    #[must_use]
    pub fn end(self) -> Option<u64> {
        self.offset.checked_add(self.len)
    }
}
