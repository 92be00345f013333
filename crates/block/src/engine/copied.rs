//! What one turn copies from the page cache.

use parda_disk::Op;

use crate::backend::file::File;

/// Reads of this turn from the page cache.
#[derive(Debug, Default)]
pub(super) struct Copied {
    pub(super) bytes: u64,
    pub(super) reads: usize,
    /// Requests may be left for the next turn.
    pub(super) held_up: bool,
}

impl Copied {
    /// A request is begun.
    pub(super) fn add(&mut self, file: &File, op: Op) {
        if let Op::Read(extent) = op
            && file.is_cached()
        {
            self.bytes += extent.len;
            self.reads += 1;
        }
    }

    pub(super) fn is_held_up(&self) -> bool {
        self.held_up
    }
}
