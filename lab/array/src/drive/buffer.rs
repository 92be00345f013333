//! A drive's write cache: a write is done when the cache has its data. Writes leave in elevator
//! order. The cache is volatile: a drive that must not lose writes has it switched off.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;
use core::mem;

use super::Request;
use crate::io::IoKind;
use crate::units::Bytes;

/// Writes that have not begun on the medium.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    free: u64,
    capacity: u64,
    /// Offset of the write that left last.
    at: Bytes,
    /// Writes at or beyond `at`, and writes that wait for the next sweep.
    onward: BinaryHeap<Reverse<(Bytes, Bytes)>>,
    next_sweep: BinaryHeap<Reverse<(Bytes, Bytes)>>,
}

impl Buffer {
    /// Makes an empty buffer; `None` for a capacity of 0.
    pub(super) fn new(capacity: Bytes) -> Option<Buffer> {
        let (onward, next_sweep) = (BinaryHeap::new(), BinaryHeap::new());
        let (free, capacity) = (capacity.0, capacity.0);
        (capacity > 0).then_some(Buffer { free, capacity, at: Bytes(0), onward, next_sweep })
    }

    /// Whether a write of this length fits. A write longer than the buffer fits when the buffer is
    /// empty.
    pub(super) fn has_room(&self, len: Bytes) -> bool {
        len.0.min(self.capacity) <= self.free
    }

    /// Bytes in the buffer.
    pub(super) fn held(&self) -> Bytes {
        Bytes(self.capacity - self.free)
    }

    /// Adds a write. The caller has checked for room.
    pub(super) fn put(&mut self, write: Request) {
        self.free -= write.len.0.min(self.capacity);
        let onward = write.offset >= self.at;
        let sweep = if onward { &mut self.onward } else { &mut self.next_sweep };
        sweep.push(Reverse((write.offset, write.len)));
    }

    /// The next write of the sweep; its room is [released](Buffer::release) when the medium has it.
    pub(super) fn take(&mut self) -> Option<Request> {
        if self.onward.is_empty() {
            mem::swap(&mut self.onward, &mut self.next_sweep);
        }
        let Reverse((offset, len)) = self.onward.pop()?;
        self.at = offset;
        Some(Request { owner: usize::MAX, kind: IoKind::Write, offset, len })
    }

    pub(super) fn release(&mut self, len: Bytes) {
        self.free += len.0.min(self.capacity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn write(offset: u64) -> Request {
        Request { owner: 0, kind: IoKind::Write, offset: Bytes(offset), len: Bytes(10) }
    }

    #[test]
    fn sweeps_inward_and_begins_again() {
        let mut buffer = Buffer::new(Bytes(60)).unwrap();
        [500, 100, 300].into_iter().for_each(|offset| buffer.put(write(offset)));
        let mut left = Vec::from([buffer.take().unwrap().offset.0]);
        [50, 400, 100].into_iter().for_each(|offset| buffer.put(write(offset)));
        assert!(!buffer.has_room(Bytes(1)), "until the medium has it");
        buffer.release(Bytes(10));
        assert!(buffer.has_room(Bytes(10)));
        left.extend(core::iter::from_fn(|| buffer.take().map(|write| write.offset.0)));
        assert_eq!(left, [100, 100, 300, 400, 500, 50]);
    }

    #[test]
    fn a_write_longer_than_the_buffer_goes_through_alone() {
        let mut buffer = Buffer::new(Bytes(5)).unwrap();
        assert!(buffer.has_room(Bytes(10)));
        buffer.put(write(0));
        assert!(!buffer.has_room(Bytes(10)) && !buffer.has_room(Bytes(1)));
        assert_eq!(buffer.take().unwrap().len, Bytes(10));
        buffer.release(Bytes(10));
        assert!(buffer.has_room(Bytes(5)));
        assert!(Buffer::new(Bytes(0)).is_none());
    }
}
