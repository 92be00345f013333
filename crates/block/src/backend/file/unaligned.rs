//! Requests that begin or end inside a block, on a file that takes whole blocks only (O_DIRECT).
//!
//! Such a write reads the blocks at its edges, changes its part of them and writes them back, as
//! QEMU does. A neighbour's bytes in these blocks are written back as they were read, so nothing
//! may change them meanwhile. A request with edges and every overlapping write, trim and zeroes
//! under way wait for each other, over all connections of the disk. Requests of whole blocks do not
//! wait for each other; without edges under way, each costs an entry in a slab.

use std::collections::VecDeque;
use std::ops::Range;

use parda_disk::Extent;
use slab::Slab;

use crate::buffer::{ALIGN, Buffer};

/// One of the two blocks that a request has only a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Head,
    Tail,
}

/// A request, cut at the borders of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Start of the block in which the request begins. `None` if the request begins at the start of a block.
    head: Option<u64>,
    /// Start of the block in which the request ends. `None` if the request ends at the end of a block, or in the block of `head`.
    tail: Option<u64>,
    /// The whole blocks between both; may be empty.
    pub(super) middle: Extent,
}

impl Cut {
    pub(super) fn new(extent: Extent, block: u32) -> Self {
        let block = u64::from(block);
        let (start, end) = (extent.offset, extent.offset + extent.len);
        let (first, last) = (start.next_multiple_of(block), end - end % block);
        let head = (first != start).then(|| start - start % block);
        let tail = (last != end && head != Some(last)).then_some(last);
        let middle = Extent { offset: first, len: last.saturating_sub(first) };
        Self { head, tail, middle }
    }

    /// Offset of the block of a side.
    pub(super) fn block(&self, side: Side) -> Option<u64> {
        match side {
            Side::Head => self.head,
            Side::Tail => self.tail,
        }
    }

    /// The first side of which the request has a part.
    pub(super) fn first(&self) -> Option<Side> {
        [Side::Head, Side::Tail].into_iter().find(|side| self.block(*side).is_some())
    }

    /// The side after this one.
    pub(super) fn after(&self, side: Side) -> Option<Side> {
        (side == Side::Head && self.tail.is_some()).then_some(Side::Tail)
    }
}

/// The extent of all blocks that a request touches.
pub(super) fn whole_blocks(extent: Extent, block: u32) -> Extent {
    let block = u64::from(block);
    let start = extent.offset - extent.offset % block;
    let end = (extent.offset + extent.len).next_multiple_of(block);
    Extent { offset: start, len: end - start }
}

/// The patch of a block: which of its bytes change, and where these begin in the payload.
pub(super) fn patch(extent: Extent, block: Range<u64>) -> (Range<usize>, usize) {
    let end = extent.offset + extent.len;
    let (from, to) = (extent.offset.max(block.start), end.min(block.end));
    let inside = (from - block.start) as usize..(to - block.start) as usize;
    (inside, (from - extent.offset) as usize)
}

/// Moves the `len` bytes from `from` on, which is within the first block, to the front.
pub(super) fn shift(buffer: &mut Buffer, from: usize, len: usize) {
    let mut block = [0; ALIGN];
    for start in (0..if from > 0 { len } else { 0 }).step_by(ALIGN) {
        let n = ALIGN.min(len - start);
        buffer.copy_to(from + start, &mut block[..n]);
        let mut at = 0;
        for part in buffer.slices_mut(start..start + n) {
            let len = part.len();
            part.copy_from_slice(&block[at..at + len]);
            at += len;
        }
    }
}

/// A place in the exclusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChangeId(usize);

#[derive(Clone, Debug)]
struct Change {
    range: Range<u64>,
    edged: bool,
}

impl Change {
    fn excludes(&self, other: &Change) -> bool {
        (self.edged || other.edged)
            && self.range.start < other.range.end
            && other.range.start < self.range.end
    }
}

/// Mutual exclusion of changes that touch the same blocks, where one of them has an unaligned edge.
#[derive(Default)]
pub(super) struct Exclusion {
    under_way: Slab<Change>,
    /// In the order in which they came, each with its key.
    waiting: VecDeque<(usize, Change)>,
    /// Requests that may go on, with their keys.
    ready: VecDeque<(usize, ChangeId)>,
    /// Number of all of these that have edges.
    edged: usize,
}

impl Exclusion {
    /// Checks between two calls that no change under way excludes another.
    fn check(&self) {
        assert!(self.edged <= self.under_way.len() + self.waiting.len());
        debug_assert!(self.under_way.iter().all(|(key, change)| {
            self.under_way.iter().all(|(other, beside)| other == key || !change.excludes(beside))
        }));
    }

    /// Lets a change in; `None` if it has to wait, and [`Exclusion::ready`] brings its key then.
    pub(super) fn enter(&mut self, key: usize, extent: Extent, edged: bool) -> Option<ChangeId> {
        let range = extent.offset..extent.offset + extent.len;
        let change = Change { range, edged };
        self.edged += usize::from(edged);
        if self.edged > 0 {
            // Behind those that wait: or a stream of writes would hold one with edges for ever.
            if self.is_excluded(&change, self.waiting.len()) {
                self.waiting.push_back((key, change));
                return None;
            }
        }
        let id = ChangeId(self.under_way.insert(change));
        self.check();
        Some(id)
    }

    /// Whether a change under way, or one of the first that wait, excludes this one.
    fn is_excluded(&self, change: &Change, waiting: usize) -> bool {
        let under_way = self.under_way.iter().map(|(_, c)| c);
        let before = self.waiting.iter().take(waiting).map(|(_, c)| c);
        under_way.chain(before).any(|other| other.excludes(change))
    }

    /// A change is done.
    pub(super) fn leave(&mut self, change: ChangeId) {
        let done = self.under_way.remove(change.0);
        self.edged -= usize::from(done.edged);
        let mut at = 0;
        while let Some((_, change)) = self.waiting.get(at) {
            if self.is_excluded(change, at) {
                at += 1;
            } else if let Some((key, change)) = self.waiting.remove(at) {
                self.ready.push_back((key, ChangeId(self.under_way.insert(change))));
            }
        }
        self.check();
    }

    /// The next change that has waited and may go on.
    pub(super) fn ready(&mut self) -> Option<(usize, ChangeId)> {
        self.ready.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: u64, len: u64) -> Extent {
        Extent { offset, len }
    }

    #[test]
    fn a_request_is_cut_at_the_borders_of_blocks() {
        for offset in 0..20 {
            for len in 1..30 {
                let extent = at(offset, len);
                let cut = Cut::new(extent, 8);
                let mut bytes = vec![0; 64];
                bytes[cut.middle.offset as usize..][..cut.middle.len as usize].fill(1);
                for side in [Side::Head, Side::Tail] {
                    let Some(block) = cut.block(side) else { continue };
                    assert!(block.is_multiple_of(8));
                    let (inside, from) = patch(extent, block..block + 8);
                    assert!(inside.len() < 8, "a whole block needs no reading");
                    assert_eq!(offset as usize + from, block as usize + inside.start);
                    bytes[block as usize..][inside].iter_mut().for_each(|b| *b += 1);
                }
                let expected: Vec<i32> =
                    (0..64).map(|b| i32::from((offset..offset + len).contains(&b))).collect();
                assert_eq!(bytes, expected, "{extent:?}: {cut:?}");
                let whole = whole_blocks(extent, 8);
                assert!(whole.offset <= offset && whole.offset.is_multiple_of(8));
                assert!(whole.len.is_multiple_of(8) && whole.len < len + 16);
            }
        }
    }

    #[test]
    fn bytes_move_to_the_front_across_pieces() {
        let mut pool = crate::buffer::Pool::new(64 << 20);
        let len = 2 * crate::buffer::PIECE + 7000;
        let mut buffer = pool.take(len + ALIGN);
        for from in [0, 1, 512, 4095] {
            let all = 0..len + from;
            for (i, byte) in buffer.slices_mut(all).flatten().enumerate() {
                *byte = (i % 251) as u8;
            }
            shift(&mut buffer, from, len);
            let right = |(i, byte): (usize, &u8)| *byte == ((i + from) % 251) as u8;
            assert!(buffer.slices(0..len).flatten().enumerate().all(right), "{from}");
        }
    }

    #[test]
    fn changes_with_edges_are_alone_with_their_blocks_and_others_are_not_held() {
        let mut exclusion = Exclusion::default();
        let a = exclusion.enter(0, at(0, 4096), false).expect("nobody is there");
        let b =
            exclusion.enter(1, at(0, 4096), false).expect("whole blocks do not exclude each other");
        assert_eq!(exclusion.enter(2, at(0, 4096), true), None);
        assert_eq!(exclusion.enter(3, at(0, 8192), false), None, "behind the one that waits");
        let c = exclusion.enter(4, at(8192, 4096), true).expect("elsewhere");
        exclusion.leave(a);
        assert_eq!(exclusion.ready(), None);
        exclusion.leave(b);
        let (key, change) = exclusion.ready().expect("both are gone");
        assert_eq!((key, exclusion.ready()), (2, None));
        exclusion.leave(change);
        assert_eq!(exclusion.ready().map(|(key, _)| key), Some(3));
        exclusion.leave(c);
        assert_eq!(exclusion.edged, 0);
    }
}
