//! A queue of a guest: descriptor chains in, used elements out.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use virtio_queue::desc::split::Descriptor;
use virtio_queue::{Error, Queue, QueueOwnedT, QueueT};
use vm_memory::{Address, Bytes, GuestAddress};

use crate::blk::{GuestRequest, HEADER, Scratch};
use crate::bounds::MAX_QUEUE_SIZE;
use crate::broken::{Broken, MAX_CHAIN};
use crate::inflight::{self, Inflight, Log};
use crate::memory::{Memory, Segments, skip, take_last};

/// Size of a descriptor, in bytes.
const DESCRIPTOR: u32 = 16;

/// A queue that was set up.
#[derive(Debug)]
pub struct Vring {
    queue: Queue,
    in_flight: u16,
    /// The guest was told once. Answers of a process before this one, of which it was not told, would have it wait for ever.
    told: bool,
    inflight: Option<Inflight>,
    /// Requests that another process had taken and not answered, the next one last.
    again: Vec<u16>,
    /// A write is durable before it is answered: the guest knows no flushes.
    is_write_through: bool,
}

impl Vring {
    /// A queue of `size` descriptors at these guest addresses: descriptors, available ring, used ring.
    ///
    /// # Errors
    /// The size is no power of two up to [`MAX_QUEUE_SIZE`], or a place is not aligned.
    pub fn at(
        size: u16,
        [descriptors, available, used]: [u64; 3],
        event_idx: bool,
    ) -> Result<Vring, Error> {
        let mut queue = Queue::new(MAX_QUEUE_SIZE)?;
        queue.try_set_size(size)?;
        queue.try_set_desc_table_address(GuestAddress(descriptors))?;
        queue.try_set_avail_ring_address(GuestAddress(available))?;
        queue.try_set_used_ring_address(GuestAddress(used))?;
        queue.set_event_idx(event_idx);
        Ok(Vring {
            queue,
            in_flight: 0,
            told: false,
            inflight: None,
            again: Vec::new(),
            is_write_through: false,
        })
    }

    /// The file of a new log, for queues of a size.
    ///
    /// # Errors
    /// The kernel has no memory, or there are too many queues.
    pub fn new_log(queues: u16, size: u16) -> std::io::Result<File> {
        let bytes = inflight::bytes(queues, size).ok_or(std::io::ErrorKind::InvalidInput)?;
        inflight::create(bytes)
    }

    /// The same queue, as the first of those in a log.
    ///
    /// # Errors
    /// The log cannot be mapped.
    pub fn logged(self, log: File) -> std::io::Result<Vring> {
        let log = Log::map(log, 0, 1, self.queue.size())?;
        Ok(Vring { inflight: log.of_queue(0, self.queue.size()), ..self })
    }

    /// Begins at the request of this number, with its part of a log.
    pub(crate) fn beginning(mut self, next: u16, inflight: Option<Inflight>) -> Vring {
        self.queue.set_next_avail(next);
        Vring { inflight, ..self }
    }

    /// The same queue, whose writes are durable before they are answered, or not.
    pub(crate) fn write_through(self, is_write_through: bool) -> Vring {
        Vring { is_write_through, ..self }
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
        let used = self.queue.used_idx(memory.map_ref(), Ordering::Acquire)?.0;
        self.queue.set_next_used(used);
        if let Some(inflight) = &mut self.inflight {
            self.again = inflight.begin(self.queue.size(), used)?;
            self.again.reverse();
            // All that was taken is either answered or logged.
            self.queue.set_next_avail(used.wrapping_add(self.again.len() as u16));
        }
        intact(memory)
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
    ) -> Result<Option<GuestRequest<'a>>, Broken> {
        let again = self.again.pop();
        let head = match again {
            Some(head) => head,
            None => match self.queue.iter(memory.map_ref())?.next() {
                Some(chain) => chain.head_index(),
                None => return Ok(None),
            },
        };
        scratch.clear();
        walk(memory, GuestAddress(self.queue.desc_table()), self.queue.size(), head, scratch)?;
        let Scratch { readable, writable } = scratch;
        let mut header = [0; HEADER];
        let read = Segments::new(memory, readable).read(&mut header);
        let status = take_last(writable).filter(|_| read == HEADER).ok_or(Broken::Short)?;
        skip(readable, HEADER as u32);
        intact(memory)?;
        if let (Some(inflight), None) = (&mut self.inflight, again) {
            inflight.taken(head)?;
        }
        self.in_flight += 1;
        let stable = self.is_write_through;
        Ok(Some(GuestRequest::new((head, header, status), stable, memory, scratch)))
    }

    /// Gives a request back to the guest. `written`: the bytes of its memory that were written.
    ///
    /// # Errors
    /// The queue is not in memory.
    pub fn answer(&mut self, memory: &Memory, head: u16, written: u32) -> Result<(), Broken> {
        self.in_flight -= 1;
        if let Some(inflight) = &mut self.inflight {
            inflight.answering(head)?;
        }
        self.queue.add_used(memory.map_ref(), head, written)?;
        if let Some(inflight) = &mut self.inflight {
            inflight.answered(head, self.queue.next_used())?;
            inflight.intact()?;
        }
        intact(memory)
    }

    /// Forgets a request without an answer. In the log it stays.
    pub fn give_up(&mut self) {
        self.in_flight -= 1;
    }

    /// Whether the guest is to be told of the answers since the last call; the first time it is in any case.
    ///
    /// # Errors
    /// The queue is not in memory.
    pub fn wants_call(&mut self, memory: &Memory) -> Result<bool, Broken> {
        let first = !std::mem::replace(&mut self.told, true);
        Ok(self.queue.needs_notification(memory.map_ref())? || first)
    }

    /// Whether there is a request. One who looks again and again need not be told: [`Vring::hush`].
    #[must_use]
    pub fn has_news(&self, memory: &Memory) -> bool {
        let next = self.queue.avail_idx(memory.map_ref(), Ordering::Relaxed);
        // What is wrong with it is found when the request is taken.
        !self.again.is_empty() || next.map_or(true, |next| next.0 != self.queue.next_avail())
    }

    /// Asks not to be told of requests, until [`Vring::ask_for_kick`]. Where kicks are asked for by index, that is so
    /// after each.
    ///
    /// # Errors
    /// The queue is not in memory.
    pub fn hush(&mut self, memory: &Memory) -> Result<(), Broken> {
        Ok(self.queue.disable_notification(memory.map_ref())?)
    }

    /// Asks to be told of the next request. Whether there is one already.
    ///
    /// # Errors
    /// The queue is not in memory.
    pub fn ask_for_kick(&mut self, memory: &Memory) -> Result<bool, Broken> {
        Ok(self.queue.enable_notification(memory.map_ref())? || !self.again.is_empty())
    }
}

/// Zeroes that took the place of lost memory are not believed.
fn intact(memory: &Memory) -> Result<(), Broken> {
    if memory.is_intact() { Ok(()) } else { Err(Broken::Memory) }
}

/// Follows a chain of descriptors, and notes the places that they are about.
fn walk(
    memory: &Memory,
    table: GuestAddress,
    size: u16,
    head: u16,
    scratch: &mut Scratch,
) -> Result<(), Broken> {
    let Scratch { readable, writable } = scratch;
    let (mut table, mut size, mut index, mut indirect) =
        (table, u32::from(size), u32::from(head), false);
    let (mut steps, mut all) = (0, 0);
    loop {
        (steps, all) = (steps + 1, all + 1);
        if index >= size || steps > size {
            return Err(Broken::Endless);
        }
        if all > MAX_CHAIN {
            return Err(Broken::Long);
        }
        let outside = Broken::Outside { address: table.0, len: size * DESCRIPTOR };
        let place = table.checked_add(u64::from(index * DESCRIPTOR)).ok_or(outside)?;
        let descriptor: Descriptor = memory.map_ref().read_obj(place).map_err(|_| outside)?;
        if descriptor.refers_to_indirect_table() {
            if indirect || !descriptor.len().is_multiple_of(DESCRIPTOR) {
                return Err(Broken::Endless);
            }
            (table, size) = (descriptor.addr(), descriptor.len() / DESCRIPTOR);
            (index, steps, indirect) = (0, 0, true);
            // Larger ones are no chains of ours.
            size = size.min(MAX_CHAIN as u32 + 1);
            continue;
        }
        let writes = descriptor.is_write_only();
        if !writes && !writable.is_empty() {
            return Err(Broken::Order);
        }
        let parts = if writes { &mut *writable } else { &mut *readable };
        memory.places(descriptor.addr(), descriptor.len(), parts)?;
        if !descriptor.has_next() {
            return Ok(());
        }
        index = descriptor.next().into();
    }
}
