//! Bytes that one turn copies from the page cache.

use parda_disk::Op;

use crate::backend::file::File;

/// Most bytes that one turn reads of a disk from the page cache, rounded up to a whole request. So
/// a client that reads much delays no other one by more.
const PER_DISK: u64 = 128 << 10;

/// The same of all disks.
const PER_TURN: u64 = 4 << 20;

/// Fewer reads are not divided. Where clients have no processor of their own, each turn costs as much as some reads.
const FEW: usize = 8;

/// Reads of this turn from the page cache.
///
/// The kernel copies them while the clients wait. So a turn does half of what it could, and clients
/// take these replies while the thread goes on.
#[derive(Debug, Default)]
pub(super) struct Copied {
    bytes: u64,
    reads: usize,
    disks: u64,
    /// Requests may be left for the next turn.
    pub(super) held_up: bool,
}

impl Copied {
    /// A request is begun. `is_first`: of its disk in this turn.
    pub(super) fn add(&mut self, file: &File, op: Op, is_first: bool) {
        self.disks += u64::from(is_first);
        if let Op::Read(extent) = op
            && file.is_cached()
        {
            self.bytes += extent.len;
            self.reads += 1;
        }
    }

    /// Whether the rest waits for the next turn, where `requests` are not answered.
    pub(super) fn is_enough(&self, requests: usize) -> bool {
        let most = (self.disks * PER_DISK).min(PER_TURN);
        let half = requests.div_ceil(2).max(FEW);
        self.reads > 0 && (self.reads >= half || self.bytes >= most)
    }
}
