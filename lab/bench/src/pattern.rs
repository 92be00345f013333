//! Sequence of requests of one connection.

use std::ops::Range;

use fastrand::Rng;
use parda_disk::{Extent, Op};

use crate::plan::Operation;

/// Generator of the requests of one connection.
pub(crate) struct Pattern {
    operation: Operation,
    start: u64,
    blocks: u64,
    block: u32,
    /// The next block of a sequential load.
    next: u64,
    rng: Rng,
}

impl Pattern {
    /// The pattern of connection `index` of `count`. Sequential loads begin at a different offset on
    /// each connection.
    pub(crate) fn new(
        operation: Operation,
        range: &Range<u64>,
        block: u32,
        (index, count): (u32, u32),
        seed: u64,
    ) -> Self {
        let blocks = ((range.end - range.start) / u64::from(block)).max(1);
        let next = blocks * u64::from(index) / u64::from(count.max(1));
        let rng = Rng::with_seed(seed.wrapping_mul(0x9e37_79b9).wrapping_add(u64::from(index)));
        Self { operation, start: range.start, blocks, block, next, rng }
    }

    pub(crate) fn next(&mut self) -> Op {
        let at = if self.operation.is_random() {
            self.rng.u64(0..self.blocks)
        } else {
            let at = self.next;
            self.next = (at + 1) % self.blocks;
            at
        };
        let len = u64::from(self.block);
        let extent = Extent { offset: self.start + at * len, len };
        let write = match self.operation {
            Operation::Read | Operation::RandomRead => false,
            Operation::Write | Operation::RandomWrite => true,
            Operation::Mixed { reads } => self.rng.u8(0..100) >= reads,
        };
        if write { Op::Write { extent, fua: false } } else { Op::Read(extent) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents(operation: Operation, connection: (u32, u32), n: usize) -> Vec<Extent> {
        let mut pattern = Pattern::new(operation, &(8192..8192 + 10 * 4096), 4096, connection, 7);
        (0..n)
            .map(|_| match pattern.next() {
                Op::Read(extent) | Op::Write { extent, .. } => extent,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn in_order_wraps_around_and_connections_begin_apart() {
        let offsets = |connection| -> Vec<u64> {
            let all = extents(Operation::Read, connection, 11);
            all.iter().map(|e| (e.offset - 8192) / 4096).collect()
        };
        assert_eq!(offsets((0, 2)), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0]);
        assert_eq!(offsets((1, 2))[..6], [5, 6, 7, 8, 9, 0]);
    }

    #[test]
    fn anywhere_stays_within_the_range_and_reaches_all_of_it() {
        let mut seen = [false; 10];
        for extent in extents(Operation::RandomWrite, (0, 1), 500) {
            assert!(extent.offset >= 8192 && extent.offset.is_multiple_of(4096));
            seen[((extent.offset - 8192) / 4096) as usize] = true;
        }
        assert_eq!(seen, [true; 10]);
    }

    #[test]
    fn a_mix_has_the_reads_that_were_asked_for() {
        let mixed = Operation::Mixed { reads: 70 };
        let mut pattern = Pattern::new(mixed, &(0..1 << 20), 4096, (0, 1), 1);
        let reads = (0..10_000).filter(|_| matches!(pattern.next(), Op::Read(_))).count();
        assert!((6_700..7_300).contains(&reads), "{reads}");
    }
}
