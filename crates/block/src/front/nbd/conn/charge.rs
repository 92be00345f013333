//! The memory that requests are charged for.

use parda_disk::Op;
use parda_disk::status::MAX_EXTENTS;

use crate::buffer::allocated;
use crate::front::nbd::budget;

/// The longest payload that is given memory before any of it has come, in bytes.
const SMALL_PAYLOAD: usize = 64 << 10;

/// Most bytes of a reply to a request for block status with extended headers: twice those without.
pub(super) const STATUS_REPLY: usize = 16 * MAX_EXTENTS;

/// The data that a request brings or fetches, in bytes.
pub(super) fn room(op: Op) -> usize {
    match op {
        Op::Read(_) | Op::Write { .. } => op.extent().len as usize,
        Op::BlockStatus { .. } => STATUS_REPLY,
        Op::Flush | Op::Trim { .. } | Op::WriteZeroes { .. } | Op::Cache(_) => 0,
    }
}

/// The memory that a request takes while it is in flight, in bytes.
pub(super) fn cost(op: Op) -> usize {
    budget::REQUEST + allocated(room(op))
}

/// Whether it is a write that gets its memory as its payload comes.
pub(super) fn is_late(op: Op) -> bool {
    matches!(op, Op::Write { .. }) && room(op) > SMALL_PAYLOAD
}
