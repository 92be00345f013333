//! A queue of a guest: descriptor chains in, used elements out.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use virtio_queue::{Error, Queue, QueueOwnedT, QueueT};

use crate::blk::{HEADER, Request, Scratch};
use crate::memory::{Memory, skip, take_last};

/// Queues that a device can have.
pub const MAX_QUEUES: u16 = 256;

/// Descriptors that a queue can have, and unanswered requests.
pub const MAX_QUEUE_SIZE: u16 = 1024;

/// Descriptors of one request at most: Linux takes no more pieces of memory in one IO (UIO_MAXIOV).
const MAX_CHAIN: usize = 1024;

/// Violation of virtio by a guest, or of vhost-user by its hypervisor. The guest's disk stops until it is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// A descriptor leads out of the guest's memory.
    #[error("a descriptor of {len} bytes at {address:#x} is outside of the guest's memory")]
    Outside {
        /// Guest address.
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

/// A queue that was set up.
#[derive(Debug)]
pub struct Vring {
    queue: Queue,
    in_flight: u16,
}

impl Vring {
    pub(crate) fn new(queue: Queue) -> Vring {
        Vring { queue, in_flight: 0 }
    }

    /// Checks the queue's place, and takes over how far the guest's queue had come. To be called once, before any other
    /// function.
    ///
    /// # Errors
    /// It is not in memory.
    pub fn begin(&mut self, memory: &Memory) -> Result<(), Broken> {
        self.queue.set_ready(true);
        if !self.queue.is_valid(memory.map_ref()) {
            return Err(Broken::Queue);
        }
        let used = self.queue.used_idx(memory.map_ref(), Ordering::Acquire)?;
        self.queue.set_next_used(used.0);
        Ok(())
    }

    /// Requests that were taken and not answered.
    #[must_use]
    pub fn in_flight(&self) -> u16 {
        self.in_flight
    }

    /// The number of the next chain that would be taken, modulo 2¹⁶.
    #[must_use]
    pub fn position(&self) -> u16 {
        self.queue.next_avail()
    }

    /// Whether as many requests are unanswered as the queue has descriptors. A guest that keeps the rules adds none then.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.in_flight >= self.queue.size()
    }

    /// Takes the next request. Its data and status are in `scratch`.
    ///
    /// # Errors
    /// The guest broke the rules.
    pub fn take<'a>(
        &mut self,
        memory: &'a Arc<Memory>,
        scratch: &'a mut Scratch,
    ) -> Result<Option<Request<'a>>, Broken> {
        let Some(mut chain) = self.queue.iter(memory.map_ref())?.next() else { return Ok(None) };
        let head = chain.head_index();
        scratch.clear();
        let Scratch { readable, writable } = scratch;
        let (mut count, mut goes_on) = (0, true);
        for descriptor in &mut chain {
            count += 1;
            if count > MAX_CHAIN {
                return Err(Broken::Long);
            }
            goes_on = descriptor.has_next();
            if !descriptor.is_write_only() && !writable.is_empty() {
                return Err(Broken::Order);
            }
            let parts = if descriptor.is_write_only() { &mut *writable } else { &mut *readable };
            memory.places(descriptor.addr(), descriptor.len(), parts)?;
        }
        if goes_on {
            return Err(Broken::Endless);
        }
        let mut header = [0; HEADER];
        let read = crate::Segments::new(memory, readable).read(&mut header);
        let status = take_last(writable).filter(|_| read == HEADER).ok_or(Broken::Short)?;
        skip(readable, HEADER as u32);
        intact(memory)?;
        self.in_flight += 1;
        Ok(Some(Request::new(head, header, status, memory, scratch)))
    }

    /// Gives a request back to the guest. `written`: the bytes of its memory that were written.
    ///
    /// # Errors
    /// The queue is not in memory.
    pub fn answer(&mut self, memory: &Memory, head: u16, written: u32) -> Result<(), Broken> {
        self.in_flight -= 1;
        self.queue.add_used(memory.map_ref(), head, written)?;
        intact(memory)
    }

    /// Forgets a request without an answer.
    pub fn give_up(&mut self) {
        self.in_flight -= 1;
    }

    /// Whether the guest is to be told of the answers since the last call.
    ///
    /// # Errors
    /// The queue is not in memory.
    pub fn wants_call(&mut self, memory: &Memory) -> Result<bool, Broken> {
        Ok(self.queue.needs_notification(memory.map_ref())?)
    }

    /// Asks to be told of the next request. Whether there is one already.
    ///
    /// # Errors
    /// The queue is not in memory.
    pub fn ask_for_kick(&mut self, memory: &Memory) -> Result<bool, Broken> {
        Ok(self.queue.enable_notification(memory.map_ref())?)
    }
}

/// Zeroes that took the place of lost memory are not believed.
fn intact(memory: &Memory) -> Result<(), Broken> {
    if memory.is_intact() { Ok(()) } else { Err(Broken::Memory) }
}
