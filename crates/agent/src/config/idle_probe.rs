//! The checked setting `idle_probe` of a volume.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

/// A file or block device, or a part of one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target {
    /// The file or the block device.
    pub(crate) path: PathBuf,
    /// The part that is read, in bytes. `None`: all of it.
    pub(crate) region: Option<Range<u64>>,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

/// The setting `idle_probe = "daily"` of a volume.
#[derive(Clone, Debug, PartialEq)]
pub struct IdleProbe {
    /// Disk or device from which the probe reads.
    pub(crate) target: Target,
    /// The file of the stored probe, which is replaced.
    pub(crate) probe: PathBuf,
}
