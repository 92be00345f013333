//! Size of a disk that follows from the size of its backend.

/// Rule by which a disk's size follows from that of its backend, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizing {
    /// Byte of the backend at which the disk begins.
    pub(crate) base: u64,
    /// Largest size of the disk in bytes, if it is a region.
    len: Option<u64>,
    /// Alignment of its size, in bytes.
    min: u64,
    /// The backend's size when it was last looked at.
    pub(crate) backend: u64,
}

impl Sizing {
    /// For a backend of `backend` bytes, where the size is a multiple of `min`.
    pub(crate) fn new(base: u64, len: Option<u64>, min: u32, backend: u64) -> Self {
        Self { base, len, min: u64::from(min.max(1)), backend }
    }

    /// The size of the disk on a backend of this size.
    pub(crate) fn size(&self, backend: u64) -> u64 {
        let there = backend.saturating_sub(self.base);
        let whole = there - there % self.min;
        self.len.map_or(whole, |len| len.min(whole))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_what_of_its_backend_belongs_to_it_in_whole_blocks() {
        let whole = Sizing::new(0, None, 512, 0);
        assert_eq!([0, 511, 512, 1025].map(|bytes| whole.size(bytes)), [0, 0, 512, 1024]);
        let region = Sizing::new(4096, Some(8192), 1, 0);
        assert_eq!(
            [0, 4096, 5000, 12288, 99999].map(|bytes| region.size(bytes)),
            [0, 0, 904, 8192, 8192]
        );
        let rest = Sizing::new(4096, None, 4096, 0);
        assert_eq!(rest.size(3 * 4096 + 1), 2 * 4096);
    }
}
