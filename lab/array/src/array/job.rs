//! Jobs of the array: IOs of hosts, and work of its own.

use crate::controller::{FetchId, LineId};
use crate::io::ArrayIo;
use crate::units::{Bytes, IoTag};

/// A unit of the array's work, aligned to one line of the processor's cache. A drive with a long queue completes it long after its
/// arrival.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Job {
    pub(super) task: Task,
    pub(super) step: Step,
    /// Drive requests of this step that are not done. For a read that waits for prefetch: segments that have not arrived.
    pub(super) parts_left: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    /// A host's IO.
    Io { id: IoTag, io: ArrayIo },
    /// A stripe on its way from the write cache to the drives.
    Destage(LineId),
    /// A segment on its way into the read cache, as a read of its LUN.
    Fetch { id: FetchId, io: ArrayIo },
    /// A piece of a replaced drive.
    Rebuild { offset: Bytes, len: Bytes },
}

/// Step of a job at the drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Read,
    ReadBeforeWrite,
    Write,
}
