//! Requests to the drives of a group.

use crate::io::IoKind;
use crate::units::Bytes;

/// A request to one drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Number of the drive in the group.
    pub(crate) drive: u32,
    pub(crate) kind: IoKind,
    pub(crate) offset: Bytes,
    pub(crate) len: Bytes,
}

/// A drive whose data is lost from stripe `from` on; earlier stripes have been rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) drive: u32,
    pub(crate) from: u64,
}

impl Missing {
    /// Whether `drive` is the missing one, and the stripe not yet rebuilt.
    pub(super) fn covers(self, drive: u32, stripe: u64) -> bool {
        self.drive == drive && stripe >= self.from
    }
}
