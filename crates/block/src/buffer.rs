//! Buffers that the kernel reads from and writes to: aligned for O_DIRECT, and used again.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Alignment and smallest size, in bytes: no logical block of a disk is larger.
pub(crate) const ALIGN: usize = 4096;

/// Sizes are powers of two from [`ALIGN`] to 32 MiB, the largest payload of a request.
const CLASSES: usize = 14;

/// A heap buffer, aligned to [`ALIGN`], always initialised.
pub(crate) struct Buffer {
    start: NonNull<u8>,
    class: usize,
}

impl Buffer {
    fn layout(class: usize) -> Layout {
        // A power of two far below isize::MAX is a valid layout for every class.
        Layout::from_size_align(ALIGN << class, ALIGN).unwrap_or(Layout::new::<u8>())
    }

    fn new(class: usize) -> Self {
        let layout = Self::layout(class);
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        Self { start, class }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: `start` was allocated with this layout, and is given back just once.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.class)) }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points to that many initialised bytes, which this buffer owns.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), ALIGN << self.class) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), ALIGN << self.class) }
    }
}

/// Buffers that are not in use, so that the data path does not allocate.
pub(crate) struct Pool {
    free: [Vec<Buffer>; CLASSES],
    idle_bytes: usize,
}

/// What a pool keeps at most, in bytes; beyond it buffers go back to the allocator.
const MAX_IDLE_BYTES: usize = 64 << 20;

impl Pool {
    pub(crate) fn new() -> Self {
        Self { free: Default::default(), idle_bytes: 0 }
    }

    /// A buffer of at least `len` bytes (at most 32 MiB). What it holds is left over from its
    /// last use: whoever sends it must have filled it.
    pub(crate) fn take(&mut self, len: usize) -> Buffer {
        let class = len.div_ceil(ALIGN).next_power_of_two().trailing_zeros() as usize;
        debug_assert!(class < CLASSES, "no request is longer than the largest class");
        match self.free.get_mut(class).and_then(Vec::pop) {
            Some(buffer) => {
                self.idle_bytes -= buffer.len();
                buffer
            }
            None => Buffer::new(class),
        }
    }

    pub(crate) fn put(&mut self, buffer: Buffer) {
        if self.idle_bytes + buffer.len() <= MAX_IDLE_BYTES
            && let Some(free) = self.free.get_mut(buffer.class)
        {
            self.idle_bytes += buffer.len();
            free.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_large_enough_and_used_again() {
        let mut pool = Pool::new();
        for len in [1, 4096, 4097, 131_072, 32 << 20] {
            let buffer = pool.take(len);
            assert!(buffer.len() >= len && buffer.len() < 2 * len.max(ALIGN));
            assert_eq!(buffer.as_ptr() as usize % ALIGN, 0);
            let start = buffer.as_ptr();
            pool.put(buffer);
            assert_eq!(pool.take(len).as_ptr(), start);
        }
    }

    #[test]
    fn the_pool_keeps_a_bounded_number_of_bytes() {
        let mut pool = Pool::new();
        let buffers: Vec<_> = (0..4).map(|_| pool.take(32 << 20)).collect();
        buffers.into_iter().for_each(|b| pool.put(b));
        assert_eq!(pool.idle_bytes, MAX_IDLE_BYTES);
    }
}
