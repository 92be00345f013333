//! Number of a disk of a volume.

/// A disk of a running volume. Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskId(pub(crate) u64);
