//! Requests that were taken and not answered, in memory that outlives this process (vhost-user, "Inflight I/O tracking").
//!
//! The front end keeps the memory and hands it to the next process, which does these requests again. A finished request whose answer the
//! guest has not got is done twice. The guest cannot see that: it brings no other request of the same place before the answer.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use vm_memory::{AtomicAccess, Bytes, GuestAddress};

use crate::{Broken, MAX_QUEUE_SIZE, MAX_QUEUES, Memory, MemoryRegion};

/// Layout of the part of a queue (`QueueRegionSplit`): version, number of descriptors, last answered descriptor, index of the used ring.
/// Then 16 bytes for each descriptor.
const VERSION: u64 = 8;
const COUNT: u64 = 10;
const LAST: u64 = 12;
const USED: u64 = 14;
const STATES: u64 = 16;

/// Layout of a descriptor's state (`DescStateSplit`).
const STATE: u64 = 16;
const NEXT: u64 = 6;
const COUNTER: u64 = 8;

/// The memory of all queues.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    memory: Arc<Memory>,
    queues: u16,
    size: u16,
}

/// Bytes for a queue of so many descriptors.
fn part(size: u16) -> u64 {
    (STATES + STATE * u64::from(size)).next_multiple_of(64)
}

/// Bytes for all queues. `None` if there are none, or too many.
pub(crate) fn bytes(queues: u16, size: u16) -> Option<u64> {
    let possible = 1..=MAX_QUEUES;
    (possible.contains(&queues) && (1..=MAX_QUEUE_SIZE).contains(&size))
        .then(|| part(size) * u64::from(queues))
}

/// New memory, all zeroes, that nobody can truncate.
pub(crate) fn create(bytes: u64) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd: OwnedFd = memfd_create(c"parda-inflight", flags)?;
    ftruncate(&fd, bytes)?;
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(fd.into())
}

impl Log {
    /// Maps the memory that a front end has kept.
    pub(crate) fn map(file: File, offset: u64, queues: u16, size: u16) -> io::Result<Log> {
        let bytes = bytes(queues, size).ok_or(io::ErrorKind::InvalidInput)?;
        let region = MemoryRegion { guest: 0, size: bytes, user: 0, offset, file };
        Ok(Log { memory: Arc::new(Memory::map(vec![region])?), queues, size })
    }

    /// The part of a queue. `None` if there is none of its size.
    pub(crate) fn of_queue(&self, queue: u16, size: u16) -> Option<Inflight> {
        (queue < self.queues && size <= self.size).then(|| Inflight {
            memory: Arc::clone(&self.memory),
            start: part(self.size) * u64::from(queue),
            counter: 0,
        })
    }
}

/// The log of one queue.
#[derive(Debug)]
pub(crate) struct Inflight {
    memory: Arc<Memory>,
    start: u64,
    /// Number of the request that was taken last.
    counter: u64,
}

impl Inflight {
    fn load<T: AtomicAccess>(&self, at: u64) -> Result<T, Broken> {
        let place = GuestAddress(self.start + at);
        self.memory.map_ref().load(place, Ordering::Relaxed).map_err(|_| Broken::Queue)
    }

    fn store<T: AtomicAccess>(&self, at: u64, value: T) -> Result<(), Broken> {
        let place = GuestAddress(self.start + at);
        self.memory.map_ref().store(value, place, Ordering::Relaxed).map_err(|_| Broken::Queue)
    }

    fn state(head: u16) -> u64 {
        STATES + STATE * u64::from(head)
    }

    /// Begins to log a queue of that size, whose used ring is at `used`. Returns the heads of requests that were taken and
    /// not answered before, in the order in which they came.
    pub(crate) fn begin(&mut self, size: u16, used: u16) -> Result<Vec<u16>, Broken> {
        let (version, count): (u16, u16) = (self.load(VERSION)?, self.load(COUNT)?);
        if version == 0 {
            self.store(COUNT, size)?;
            self.store(USED, used)?;
            fence(Ordering::Release);
            self.store(VERSION, 1u16)?;
            return Ok(Vec::new());
        }
        if version != 1 || count != size {
            return Err(Broken::Log);
        }
        if self.load::<u16>(USED)? != used {
            // The last answer was in the used ring, and its request was not crossed out yet.
            let last: u16 = self.load(LAST)?;
            if last >= size {
                return Err(Broken::Log);
            }
            self.store(Self::state(last), 0u8)?;
            self.store(USED, used)?;
        }
        let mut open = Vec::new();
        for head in 0..size {
            let state = Self::state(head);
            if self.load::<u8>(state)? != 0 {
                open.push((self.load::<u64>(state + COUNTER)?, head));
            }
        }
        open.sort_unstable();
        self.counter = open.last().map_or(0, |(counter, _)| *counter);
        self.intact()?;
        Ok(open.into_iter().map(|(_, head)| head).collect())
    }

    /// A request is taken.
    pub(crate) fn taken(&mut self, head: u16) -> Result<(), Broken> {
        self.counter = self.counter.wrapping_add(1);
        let state = Self::state(head);
        self.store(state + COUNTER, self.counter)?;
        fence(Ordering::Release);
        self.store(state, 1u8)
    }

    /// A request is about to be answered.
    pub(crate) fn answering(&mut self, head: u16) -> Result<(), Broken> {
        let last: u16 = self.load(LAST)?;
        self.store(Self::state(head) + NEXT, last)?;
        self.store(LAST, head)?;
        fence(Ordering::Release);
        Ok(())
    }

    /// Records an answered request: the used ring is at `used`.
    pub(crate) fn answered(&mut self, head: u16, used: u16) -> Result<(), Broken> {
        fence(Ordering::Release);
        self.store(Self::state(head), 0u8)?;
        fence(Ordering::Release);
        self.store(USED, used)
    }

    /// Whether the log has its memory.
    pub(crate) fn intact(&self) -> Result<(), Broken> {
        if self.memory.is_intact() { Ok(()) } else { Err(Broken::Memory) }
    }
}
