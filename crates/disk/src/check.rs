//! Whether a disk can take a request, whatever the protocol by which it came.

use crate::geometry::Geometry;
use crate::op::Op;

/// Reason why a disk cannot take a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It would change a read-only disk.
    ReadOnly,
    /// The range has no bytes.
    Empty,
    /// Its data is longer than the largest payload.
    TooLong,
    /// The range ends behind the disk.
    BeyondEnd,
    /// Offset or length are no multiples of the minimum block size.
    Unaligned,
}

impl Fault {
    /// The reason, for people.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::ReadOnly => "the export is read-only",
            Self::Empty => "a length of zero",
            Self::TooLong => "longer than the maximum block size",
            Self::BeyondEnd => "beyond the end of the export",
            Self::Unaligned => "not aligned to the minimum block size",
        }
    }
}

impl Geometry {
    /// Judges a request: permission, then range.
    ///
    /// # Errors
    /// Its fault: the permission, or else the range.
    pub fn check(&self, op: Op) -> Result<(), Fault> {
        let carries_payload = matches!(op, Op::Read(_) | Op::Write { .. });
        match self.check_range(op) {
            Err(fault @ (Fault::ReadOnly | Fault::Empty)) => Err(fault),
            _ if carries_payload && op.extent().len > u64::from(self.blocks.max()) => {
                Err(Fault::TooLong)
            }
            judged => judged,
        }
    }

    /// As [`Geometry::check`], for a request of any length: whoever has it cuts it.
    ///
    /// # Errors
    /// Its fault: the permission, or else the range.
    pub fn check_range(&self, op: Op) -> Result<(), Fault> {
        if op.changes() && self.read_only {
            return Err(Fault::ReadOnly);
        }
        if op == Op::Flush {
            return Ok(());
        }
        let extent = op.extent();
        if extent.len == 0 {
            return Err(Fault::Empty);
        }
        if extent.end().is_none_or(|end| end > self.size) {
            return Err(Fault::BeyondEnd);
        }
        if (extent.offset | extent.len) & u64::from(self.blocks.min() - 1) != 0 {
            return Err(Fault::Unaligned);
        }
        Ok(())
    }
}
