//! Requests that exceed the disk's largest request, or the memory that a copy gets at once.
//!
//! A guest that knows the largest request keeps to it. Firmware asks for files of any length by one request. Such a request is handed over
//! in pieces, and answered once.

use parda_disk::{Extent, MAX_PAYLOAD, Op};

use crate::buffer::{ALIGN, Buffer, PIECE, allocated};
use crate::client::Offered;
use crate::front::Loan;

/// Bytes of a request that are copied at once, at most.
const COPIED: u64 = 4 << 20;

/// A part of a request that the disk has.
pub(super) struct Piece {
    /// Its request, in the guest's list.
    pub(super) of: usize,
    /// Memory for a copy of its data.
    pub(super) loan: Option<Loan>,
}

/// Reason why a request was not handed over to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitsFor {
    /// Others have their turn first.
    Turn,
    /// There are many pieces that are not answered.
    Answers,
    /// There is no memory for a copy.
    Memory,
}

/// The part of a request that was not handed over yet.
pub(super) struct Rest {
    /// The request, in the guest's list.
    pub(super) of: usize,
    pub(super) waits_for: WaitsFor,
    op: Op,
    /// Memory of all of its data, the pieces before included.
    buffer: Option<Buffer>,
    /// Offset of the next piece in `buffer`.
    at: usize,
}

/// Length of a piece, and the memory that a copy of its data takes, if one is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) len: u64,
    pub(super) copy: Option<usize>,
}

impl Rest {
    /// All of a request.
    pub(super) fn new(of: usize, op: Op, buffer: Option<Buffer>) -> Rest {
        Rest { of, waits_for: WaitsFor::Turn, op, buffer, at: 0 }
    }

    /// The next piece. Copies of one guest take up to `most` bytes.
    pub(super) fn next(&self, disk: &Offered, most: usize) -> Cut {
        let Extent { offset, len } = self.op.extent();
        // Requests without data are not cut here.
        let Some(buffer) = &self.buffer else { return Cut { len, copy: None } };
        let straight = disk.direct.is_some_and(|align| {
            (offset | len).is_multiple_of(align.into()) && buffer.is_aligned(align)
        });
        let largest = u64::from(disk.geometry.blocks.max().min(MAX_PAYLOAD));
        // Pieces begin at multiples of the smallest block, and where there is room for that, of a page.
        let whole = |largest: u64| {
            let unit = u64::from(disk.geometry.blocks.min()).max(512);
            let unit = if largest < ALIGN as u64 { unit } else { unit.max(ALIGN as u64) };
            len.min((largest - largest % unit).max(unit))
        };
        if straight {
            return Cut { len: whole(largest), copy: None };
        }
        let room = (most as u64).saturating_sub(2 * ALIGN as u64).max(PIECE as u64);
        let len = whole(largest.min(COPIED).min(room));
        // With the rest of blocks of which it has a part.
        Cut { len, copy: Some(allocated(len as usize + 2 * ALIGN)) }
    }

    /// Takes the next `len` bytes off.
    pub(super) fn take(&mut self, len: u64) -> (Op, Option<Buffer>) {
        let Extent { offset, len: all } = self.op.extent();
        let piece = self.op.at(Extent { offset, len });
        self.op = self.op.at(Extent { offset: offset + len, len: all - len });
        let end = self.at + len as usize;
        let buffer = match &self.buffer {
            Some(buffer) if len < all || self.at > 0 => Some(buffer.part(self.at..end)),
            _ => self.buffer.take(),
        };
        self.at = end;
        (piece, buffer)
    }

    /// Whether all was handed over.
    pub(super) fn is_over(&self) -> bool {
        self.op.extent().len == 0
    }
}
