//! An IO of a host, as the array gets it.

use crate::units::{Bytes, LunId, Nanos};

/// Direction of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoKind {
    /// From the array to the host.
    Read,
    /// From the host to the array.
    Write,
    /// No transfer: the array forgets the data. The drives see writes to the extent map.
    Trim,
}

/// One IO on one LUN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ArrayIo {
    /// The LUN.
    pub lun: LunId,
    /// Direction of the data.
    pub kind: IoKind,
    /// The first byte, from the start of the LUN. Any alignment.
    pub offset: Bytes,
    /// Length; not 0.
    pub len: Bytes,
}

/// Reason for refusing an IO. The array's state is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// There is no such LUN.
    #[error("LUN {} does not exist: the array has {luns}", .lun.0)]
    UnknownLun {
        /// The LUN asked for.
        lun: LunId,
        /// Number of LUNs; the first is LUN 0.
        luns: usize,
    },
    /// The IO has no length.
    #[error("an IO of no length")]
    Empty,
    /// The IO reaches past the end of the LUN.
    #[error("{len} at {offset} reaches past the end of LUN {}, which has {size}", .lun.0)]
    OutOfRange {
        /// The LUN asked for.
        lun: LunId,
        /// First byte of the range of the IO.
        offset: Bytes,
        /// Length of the range of the IO.
        len: Bytes,
        /// The LUN's size.
        size: Bytes,
    },
    /// The time given is before the array's clock.
    #[error("time runs backwards: {now} after {clock}")]
    TimeRanBack {
        /// The time given.
        now: Nanos,
        /// The latest time given before.
        clock: Nanos,
    },
}
