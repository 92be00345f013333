//! Faults of guests and front ends with a queue.

use virtio_queue::Error;

/// Descriptors of one request at most: Linux takes no more pieces of memory in one IO (UIO_MAXIOV).
pub(crate) const MAX_CHAIN: usize = 1024;

/// Violation of virtio by a guest, or of vhost-user by its hypervisor. The guest's disk stops until it is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// A descriptor leads out of the guest's memory.
    #[error("a descriptor of {len} bytes at {address:#x} is outside of the guest's memory")]
    Outside {
        /// Address in the guest's address space.
        address: u64,
        /// Bytes from there on.
        len: u32,
    },
    /// Descriptors lead in a circle, out of their table, or to a table that is none.
    #[error("a descriptor chain has no end, or leaves its table")]
    Endless,
    /// A chain is too long.
    #[error("a descriptor chain has more than {MAX_CHAIN} descriptors")]
    Long,
    /// A chain has a readable descriptor behind a writable one.
    #[error("a descriptor to be read follows one to be written")]
    Order,
    /// A chain has no room for a header or for the status.
    #[error("a descriptor chain is no request: it has no header or no room for a status")]
    Short,
    /// The index of available chains jumps.
    #[error("more requests are announced than the queue has descriptors")]
    Index,
    /// The log of unanswered requests is not one of this queue.
    #[error("the log of unanswered requests that the front end has kept is not of this queue")]
    Log,
    /// The queue itself is not in memory.
    #[error("a queue is not in the guest's memory")]
    Queue,
    /// The file of the guest's memory was truncated, or huge pages ran out.
    #[error("a part of the guest's memory is gone")]
    Memory,
}

impl From<Error> for Broken {
    fn from(error: Error) -> Broken {
        match error {
            Error::InvalidAvailRingIndex => Broken::Index,
            _ => Broken::Queue,
        }
    }
}
