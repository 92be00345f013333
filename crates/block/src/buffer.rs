//! Memory for requests and replies: buffers that the kernel reads from and writes to, and the pool
//! that they come from.
//!
//! A buffer is a list of pieces. A piece is a power of two from 4 KiB to 256 KiB, aligned to 4 KiB
//! for O_DIRECT. Requests of up to 256 KiB have one piece; longer ones have pieces of 256 KiB and
//! one of the size that the rest needs. A buffer can begin empty and grow while its data arrives,
//! so that a request whose data never comes takes no memory.
//!
//! Pieces are parts of chunks of 256 KiB, which come from mmap. Nothing is zeroed by hand: new
//! pages are zero, and a page takes no memory until it is touched. Pieces that are put back are
//! used again, up to a bound; beyond it their pages return to the kernel.
//!
//! A buffer may also be memory of a guest, in pieces of any size and place ([`Buffer::lent`]). It never enters the
//! pool. The guest changes it at any time, so that nobody here has a reference to it: the kernel, or
//! `copy_from` and `copy_to`, move its bytes.

use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, ThreadId};

use parda_vhost::{Memory, Segments};
use rustix::mm::{self, Advice, MapFlags, ProtFlags};

/// Alignment and smallest size of a piece, in bytes: no logical block of a disk is larger.
pub(crate) const ALIGN: usize = 4096;

/// Sizes of pieces are powers of two from [`ALIGN`] to [`PIECE`]. Miri takes a millisecond for what takes a
/// processor a microsecond, so that pieces are smaller there.
const CLASSES: usize = if cfg!(miri) { 2 } else { 7 };

/// The largest piece, and the size of a chunk, in bytes.
pub(crate) const PIECE: usize = ALIGN << (CLASSES - 1);

/// The size class of the smallest piece with `len` bytes, at most the largest.
fn class_of(len: usize) -> usize {
    let class = len.div_ceil(ALIGN).next_power_of_two().trailing_zeros() as usize;
    class.min(CLASSES - 1)
}

/// The memory that a buffer for `len` bytes takes, in bytes.
pub(crate) fn allocated(len: usize) -> usize {
    let whole = len / PIECE * PIECE;
    if len > whole { whole + (ALIGN << class_of(len - whole)) } else { whole }
}

/// [`PIECE`] bytes from mmap, given back with the last piece of them.
struct Chunk(NonNull<u8>);

impl Chunk {
    fn map() -> (NonNull<u8>, Rc<Self>) {
        // SAFETY: a new mapping of anonymous memory at a place that the kernel chooses.
        let mapped = unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            mm::mmap_anonymous(ptr::null_mut(), PIECE, access, MapFlags::PRIVATE)
        };
        let start = mapped.ok().and_then(|start| NonNull::new(start.cast()));
        let layout = std::alloc::Layout::new::<[u8; PIECE]>();
        let start = start.unwrap_or_else(|| std::alloc::handle_alloc_error(layout));
        (start, Rc::new(Self(start)))
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no piece of it is left. An error would leave it mapped.
        let _ = unsafe { mm::munmap(self.0.as_ptr().cast(), PIECE) };
    }
}

/// What keeps the memory of a piece, and is kept by it.
enum Owner {
    /// It is the only piece with these bytes.
    Chunk {
        size_class: u8,
        chunk: Rc<Chunk>,
    },
    Guest {
        memory: Arc<Memory>,
    },
}

/// A part of a chunk, or of a guest's memory.
struct Piece {
    start: NonNull<u8>,
    len: u32,
    owner: Owner,
}

impl Piece {
    fn new(start: NonNull<u8>, class: usize, chunk: Rc<Chunk>) -> Self {
        let owner = Owner::Chunk { size_class: class as u8, chunk };
        Self { start, len: (ALIGN << class) as u32, owner }
    }

    fn len(&self) -> usize {
        self.len as usize
    }

    fn is_lent(&self) -> bool {
        matches!(self.owner, Owner::Guest { .. })
    }

    fn bytes(&self) -> &[u8] {
        assert!(!self.is_lent(), "a guest changes its memory while we look at it");
        // SAFETY: the bytes are a part of a chunk, which is kept, and initialised, as mapped memory is. Only this
        // piece has them, and it is borrowed.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len()) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(!self.is_lent(), "a guest changes its memory while we look at it");
        // SAFETY: as in `bytes`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len()) }
    }

    /// Returns the pages to the kernel. They read as zeroes from then on.
    fn discard(&mut self) {
        if cfg!(miri) {
            // Miri has no madvise. Zeroes by hand are what a reader sees of it.
            return self.bytes_mut().fill(0);
        }
        // SAFETY: the pages belong to this piece alone, and are anonymous and private. After an
        // error they keep their content, which is as valid.
        let _ =
            unsafe { mm::madvise(self.start.as_ptr().cast(), self.len(), Advice::LinuxDontNeed) };
    }
}

/// Memory of a request. Its bytes are initialised, but left over from an earlier use unless they
/// were written since.
#[derive(Default)]
pub(crate) struct Buffer {
    first: Option<Piece>,
    /// All pieces of the pool but the last have [`PIECE`] bytes.
    rest: Vec<Piece>,
}

impl Buffer {
    /// Memory of a guest.
    pub(crate) fn lent(segments: Segments<'_>) -> Self {
        let owner = || Owner::Guest { memory: Arc::clone(segments.memory()) };
        let mut pieces = segments.places().map(|(start, len)| Piece { start, len, owner: owner() });
        Self { first: pieces.next(), rest: pieces.collect() }
    }

    /// A part of a guest's memory, which is lent as well.
    pub(crate) fn part(&self, range: Range<usize>) -> Buffer {
        let (all, mut at) = (self.first.iter().chain(&self.rest), 0);
        let mut pieces = all.filter_map(|piece| {
            let part = within(&range, &mut at, piece.len())?;
            let Owner::Guest { memory } = &piece.owner else {
                unreachable!("a part of the pool's memory has no owner")
            };
            // SAFETY: the part is within the piece.
            let start = unsafe { piece.start.add(part.start) };
            let owner = Owner::Guest { memory: Arc::clone(memory) };
            Some(Piece { start, len: part.len() as u32, owner })
        });
        Buffer { first: pieces.next(), rest: pieces.collect() }
    }

    /// The bytes that there is room for.
    pub(crate) fn len(&self) -> usize {
        self.first.iter().chain(&self.rest).map(Piece::len).sum()
    }

    /// Whether it is memory of a guest.
    pub(crate) fn is_lent(&self) -> bool {
        self.first.as_ref().is_some_and(Piece::is_lent)
    }

    /// Whether all of its pieces begin and end at multiples of `align`.
    pub(crate) fn is_aligned(&self, align: u32) -> bool {
        let mut all = self.first.iter().chain(&self.rest);
        all.all(|p| (p.start.as_ptr() as usize | p.len()).is_multiple_of(align as usize))
    }

    /// Place and length of each piece of a range, for the kernel.
    pub(crate) fn places(&self, range: Range<usize>) -> impl Iterator<Item = (*mut u8, usize)> {
        let (pieces, mut at) = (self.first.iter().chain(&self.rest), 0);
        pieces.filter_map(move |piece| {
            let part = within(&range, &mut at, piece.len())?;
            Some((piece.start.as_ptr().wrapping_add(part.start), part.len()))
        })
    }

    /// The bytes of a range, piece by piece. Not of a guest's memory.
    pub(crate) fn slices(&self, range: Range<usize>) -> impl Iterator<Item = &[u8]> {
        let (pieces, mut at) = (self.first.iter().chain(&self.rest), 0);
        pieces.filter_map(move |piece| Some(&piece.bytes()[within(&range, &mut at, piece.len())?]))
    }

    /// The bytes of a range, piece by piece, to be written.
    pub(crate) fn slices_mut(&mut self, range: Range<usize>) -> impl Iterator<Item = &mut [u8]> {
        let (pieces, mut at) = (self.first.iter_mut().chain(&mut self.rest), 0);
        pieces.filter_map(move |piece| {
            let part = within(&range, &mut at, piece.len())?;
            Some(&mut piece.bytes_mut()[part])
        })
    }

    /// Copies the bytes from `at` on.
    pub(crate) fn copy_to(&self, at: usize, to: &mut [u8]) {
        let mut done = 0;
        for (from, len) in self.places(at..at + to.len()) {
            // SAFETY: `places` are mapped while `self` is borrowed, no piece is a part of `to`, which is borrowed
            // mutably, and `len` bytes are left there. What a guest changes meanwhile may be torn.
            unsafe { ptr::copy_nonoverlapping(from, to[done..done + len].as_mut_ptr(), len) };
            done += len;
        }
    }

    /// Overwrites its first `len` bytes with those of another from `at` on. One of both is not lent.
    pub(crate) fn copy_from(&mut self, other: &Buffer, at: usize, len: usize) {
        assert!(!(self.is_lent() && other.is_lent()), "memory of two guests, or of one twice");
        if !self.is_lent() {
            let mut at = at;
            for part in self.slices_mut(0..len) {
                other.copy_to(at, part);
                at += part.len();
            }
            return;
        }
        let mut done = at;
        for part in other.slices(at..at + len) {
            let (mut from, start) = (part, done - at);
            for (to, n) in self.places(start..start + part.len()) {
                // SAFETY: as in `copy_to`: the place is mapped, and of no Rust reference, and `from` has `n` bytes.
                unsafe { ptr::copy_nonoverlapping(from[..n].as_ptr(), to, n) };
                from = &from[n..];
            }
            done += part.len();
        }
    }

    /// The first piece: all of a buffer that was taken for up to [`PIECE`] bytes.
    pub(crate) fn front(&self) -> &[u8] {
        self.first.as_ref().map_or(&[], Piece::bytes)
    }

    /// The first piece, to be written.
    pub(crate) fn front_mut(&mut self) -> &mut [u8] {
        self.first.as_mut().map_or(&mut [], Piece::bytes_mut)
    }

    /// Writes zeroes to a range.
    pub(crate) fn zero(&mut self, range: Range<usize>) {
        self.slices_mut(range).for_each(|slice| slice.fill(0));
    }
}

/// A buffer that another thread may read, until it is back on the thread that it came from.
/// Dropping it elsewhere leaks the buffer.
pub(crate) struct Lent {
    buffer: ManuallyDrop<Buffer>,
    home: ThreadId,
}

// SAFETY: on another thread only `places` can be called, for bytes that nobody of ours changes
// while the buffer is in here. The reference counts of the chunks are not atomic, but they are
// touched only by `back`, which checks the thread; dropping this does nothing.
unsafe impl Send for Lent {}

impl Lent {
    pub(crate) fn new(buffer: Buffer) -> Self {
        Self { buffer: ManuallyDrop::new(buffer), home: thread::current().id() }
    }

    /// Place and length of each piece of a range, for the kernel.
    pub(crate) fn places(&self, range: Range<usize>) -> impl Iterator<Item = (*mut u8, usize)> {
        self.buffer.places(range)
    }

    /// The buffer; `None` on any thread but the one that it came from.
    pub(crate) fn back(self) -> Option<Buffer> {
        (thread::current().id() == self.home).then(|| ManuallyDrop::into_inner(self.buffer))
    }
}

/// The part of a piece that is within `range` of the buffer. The piece begins `at` and has `len`
/// bytes; `at` becomes its end.
fn within(range: &Range<usize>, at: &mut usize, len: usize) -> Option<Range<usize>> {
    let start = std::mem::replace(at, *at + len);
    let part = range.start.max(start) - start..range.end.min(*at).checked_sub(start)?;
    (part.start < part.end).then_some(part)
}

/// Where the buffers of a volume come from.
pub(crate) struct Pool {
    /// Pieces that were used and have their pages.
    warm: [Vec<Piece>; CLASSES],
    /// The least number of warm pieces of each class since the last [`Pool::cool`].
    least: [usize; CLASSES],
    /// Free pieces whose pages were given back to the system.
    cold: [Vec<Piece>; CLASSES],
    used: usize,
    idle: usize,
    /// Bound on the sum of `used` and `idle`, in bytes.
    limit: usize,
}

/// What the warm pieces of a pool have at most, in bytes.
const MAX_IDLE: usize = 64 << 20;

impl Pool {
    /// A pool that keeps nothing warm beyond `limit` bytes in all. It does not bound what is in
    /// use, which is what [`crate::front::Budget`] is for.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            warm: Default::default(),
            least: [0; CLASSES],
            cold: Default::default(),
            used: 0,
            idle: 0,
            limit,
        }
    }

    /// Changes the limit of the memory, in bytes.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Bytes in buffers that are in use.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Bytes of pieces that wait to be used again.
    pub(crate) fn idle(&self) -> usize {
        self.idle
    }

    /// A buffer of at least `len` bytes. What it holds is left over from an earlier use: whoever
    /// sends a byte of it to a client must have written that byte.
    pub(crate) fn take(&mut self, len: usize) -> Buffer {
        let mut buffer = Buffer::default();
        self.grow(&mut buffer, len);
        buffer
    }

    /// Makes a buffer at least `len` bytes long. What it has stays. A buffer that is to grow again
    /// must be grown to a multiple of [`PIECE`].
    pub(crate) fn grow(&mut self, buffer: &mut Buffer, len: usize) {
        let mut has = buffer.len();
        debug_assert!(has >= len || has.is_multiple_of(PIECE), "only the last piece is smaller");
        while has < len {
            let piece = self.piece(class_of(len - has));
            has += piece.len();
            match &mut buffer.first {
                None => buffer.first = Some(piece),
                Some(_) => buffer.rest.push(piece),
            }
        }
    }

    /// Takes a buffer back.
    pub(crate) fn put(&mut self, buffer: Buffer) {
        for piece in buffer.first.into_iter().chain(buffer.rest) {
            let (len, &Owner::Chunk { size_class, .. }) = (piece.len(), &piece.owner) else {
                continue;
            };
            assert!(len <= self.used, "a buffer goes back to the pool that it came from");
            self.used -= len;
            if self.idle + len <= MAX_IDLE && self.used + self.idle + len <= self.limit {
                self.idle += len;
                self.warm[usize::from(size_class)].push(piece);
            } else {
                self.chill(piece);
            }
        }
    }

    /// Returns pages to the kernel that were not needed since the last call.
    pub(crate) fn cool(&mut self) {
        for class in 0..CLASSES {
            let surplus = self.least[class].min(self.warm[class].len());
            for piece in self.warm[class].drain(..surplus).collect::<Vec<_>>() {
                self.idle -= piece.len();
                self.chill(piece);
            }
            self.least[class] = self.warm[class].len();
        }
    }

    fn piece(&mut self, class: usize) -> Piece {
        self.used += ALIGN << class;
        if let Some(piece) = self.warm[class].pop() {
            self.idle -= piece.len();
            self.least[class] = self.least[class].min(self.warm[class].len());
            return piece;
        }
        // A piece that gets its pages must not take the pool beyond its limit.
        while self.used + self.idle > self.limit
            && let Some(surplus) = self.warm.iter_mut().rev().find_map(Vec::pop)
        {
            self.idle -= surplus.len();
            self.chill(surplus);
        }
        if let Some(piece) = self.cold[class].pop() {
            return piece;
        }
        let (start, chunk) = Chunk::map();
        let parts = (0..PIECE).step_by(ALIGN << class).rev().map(|offset| {
            // SAFETY: the offset is within the mapping.
            let start = unsafe { start.add(offset) };
            Piece::new(start, class, Rc::clone(&chunk))
        });
        let mut parts: Vec<Piece> = parts.collect();
        let piece = parts.pop();
        self.cold[class].append(&mut parts);
        // A chunk has at least one piece of every class.
        piece.unwrap_or_else(|| Piece::new(start, class, chunk))
    }

    /// Returns a piece's pages to the kernel, and its chunk where it is all of one.
    fn chill(&mut self, mut piece: Piece) {
        let class = class_of(piece.len());
        if class < CLASSES - 1 {
            piece.discard();
            self.cold[class].push(piece);
        } else {
            let Owner::Chunk { chunk, .. } = &piece.owner else { return };
            debug_assert_eq!(Rc::strong_count(chunk), 1, "the chunk has no other piece");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_large_enough_and_used_again() {
        let mut pool = Pool::new(64 << 20);
        let large = if cfg!(miri) { 4 * PIECE } else { 32 << 20 };
        for len in [1, 4096, 4097, PIECE / 4, PIECE / 2, PIECE, PIECE + 1, 4 * PIECE, large] {
            let buffer = pool.take(len);
            assert!(buffer.len() >= len && buffer.len() < 2 * len.max(ALIGN));
            assert_eq!((buffer.len(), pool.used()), (allocated(len), allocated(len)));
            assert!(buffer.slices(0..len).all(|s| (s.as_ptr() as usize).is_multiple_of(ALIGN)));
            assert_eq!(buffer.slices(0..len).map(<[u8]>::len).sum::<usize>(), len);
            let start = buffer.front().as_ptr();
            pool.put(buffer);
            assert_eq!(pool.used(), 0);
            if len <= PIECE {
                assert_eq!(pool.take(len).front().as_ptr(), start);
                pool = Pool::new(64 << 20);
            }
        }
    }

    #[test]
    fn ranges_are_read_and_written_across_pieces() {
        let mut pool = Pool::new(64 << 20);
        let len = 2 * PIECE + 5000;
        let mut buffer = pool.take(len);
        let all: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let mut from = 0;
        for part in buffer.slices_mut(0..len) {
            part.copy_from_slice(&all[from..from + part.len()]);
            from += part.len();
        }
        for range in [0..len, 0..1, PIECE - 1..PIECE + 1, PIECE..PIECE, 17..2 * PIECE, PIECE..len] {
            let read = buffer.slices(range.clone()).collect::<Vec<_>>().concat();
            assert!(read == all[range]);
        }
        buffer.zero(PIECE - 3..PIECE + 3);
        assert_eq!(buffer.slices(PIECE - 4..PIECE + 4).flatten().filter(|b| **b == 0).count(), 6);
    }

    #[test]
    fn a_buffer_grows_and_keeps_what_it_has() {
        let mut pool = Pool::new(64 << 20);
        let mut buffer = Buffer::default();
        assert_eq!((buffer.len(), buffer.slices(0..0).count()), (0, 0));
        for len in [PIECE, 2 * PIECE, 2 * PIECE + 4096] {
            pool.grow(&mut buffer, len);
            assert_eq!(buffer.len(), len);
            buffer.slices_mut(len - 1..len).for_each(|s| s.fill(7));
        }
        assert_eq!(buffer.slices(0..2 * PIECE + 4096).flatten().filter(|b| **b == 7).count(), 3);
    }

    #[test]
    fn used_and_idle_together_stay_below_the_limit() {
        let limit = 4 * PIECE;
        let mut pool = Pool::new(limit);
        let small: Vec<_> = (0..2 * PIECE / ALIGN).map(|_| pool.take(ALIGN)).collect();
        small.into_iter().for_each(|b| pool.put(b));
        assert_eq!((pool.used(), pool.idle()), (0, 2 * PIECE));
        let large = pool.take(PIECE * 3);
        assert_eq!(pool.used() + pool.idle(), limit, "small pieces made room");
        pool.put(large);
        assert_eq!(pool.idle(), limit);
        pool.cool();
        pool.cool();
        assert_eq!(pool.idle(), 0, "nothing of it was needed");
    }

    #[test]
    fn pages_that_were_returned_read_as_zeroes() {
        let mut pool = Pool::new(64 << 20);
        let mut buffer = pool.take(ALIGN);
        buffer.front_mut().fill(0xaa);
        pool.put(buffer);
        pool.cool();
        pool.cool();
        assert!(pool.take(ALIGN).front().iter().all(|b| *b == 0));
    }
}
