//! Times at which drives are asked again.

use alloc::collections::BinaryHeap;
use alloc::collections::binary_heap::PeekMut;
use core::cmp::Reverse;

use super::pace::Pace;
use crate::units::Nanos;

/// A time, in the drives' time, and a drive, in one number: the heap compares two of them without a branch. The earliest
/// is the greatest, as the heap gives the greatest first; of two at one time, the one of the lower drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wake(Reverse<u128>);

impl Wake {
    fn new(at: Nanos, drive: u32) -> Wake {
        Wake(Reverse(u128::from(at.0) << u32::BITS | u128::from(drive)))
    }

    fn at(self) -> Nanos {
        Nanos((self.0.0 >> u32::BITS) as u64)
    }

    fn drive(self) -> u32 {
        self.0.0 as u32
    }
}

/// When each busy drive's request in service is done.
#[derive(Clone, Debug)]
pub(super) struct Wakes {
    heap: BinaryHeap<Wake>,
    /// How the drives' time goes by.
    pace: Pace,
    /// When the first is done, in the array's time: asked for at every event of the array.
    pub(super) next: Nanos,
}

impl Wakes {
    pub(super) fn new() -> Wakes {
        Wakes { heap: BinaryHeap::new(), pace: Pace::EVEN, next: Nanos::NEVER }
    }

    /// When the first is done, in the drives' time, and which drive it is.
    pub(super) fn first(&self) -> Option<(Nanos, u32)> {
        self.heap.peek().map(|wake| (wake.at(), wake.drive()))
    }

    /// The first is done. Its drive is to be asked again then, if at all.
    pub(super) fn again(&mut self, at: Option<Nanos>) {
        let Some(mut first) = self.heap.peek_mut() else { return };
        match at {
            // Changed in place, the entry sinks once; taken out and put back it would move twice.
            Some(at) => {
                *first = Wake::new(at, first.drive());
                drop(first);
            }
            None => {
                PeekMut::pop(first);
            }
        }
        self.find_next();
    }

    /// A drive is to be asked again at a time of the drives', if at all.
    pub(super) fn add(&mut self, at: Option<Nanos>, drive: u32) {
        if let Some(at) = at {
            self.heap.push(Wake::new(at, drive));
            self.find_next();
        }
    }

    /// A drive is gone.
    pub(super) fn forget(&mut self, drive: u32) {
        self.heap.retain(|wake| wake.drive() != drive);
        self.find_next();
    }

    /// From `now` on the drives take `slow` times as long for everything as they were made to.
    pub(super) fn set_slow(&mut self, now: Nanos, slow: f64) {
        self.pace.change(now, slow);
        self.find_next();
    }

    /// The drives' time at a time of the array's.
    pub(super) fn to_drives(&self, at: Nanos) -> Nanos {
        self.pace.to_drives(at)
    }

    fn find_next(&mut self) {
        let first = self.heap.peek();
        self.next = first.map_or(Nanos::NEVER, |wake| self.pace.to_array(wake.at()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_the_earliest_and_the_next_is_in_the_arrays_time() {
        let mut wakes = Wakes::new();
        assert_eq!((wakes.first(), wakes.next), (None, Nanos::NEVER));
        for (at, drive) in [(Some(30), 2), (Some(20), 1), (None, 3), (Some(20), 0)] {
            wakes.add(at.map(Nanos), drive);
        }
        assert_eq!((wakes.first(), wakes.next), (Some((Nanos(20), 0)), Nanos(20)));
        wakes.again(Some(Nanos(40)));
        assert_eq!(wakes.first(), Some((Nanos(20), 1)));
        wakes.set_slow(Nanos(10), 2.0);
        assert_eq!((wakes.next, wakes.to_drives(Nanos(30))), (Nanos(30), Nanos(20)));
        wakes.forget(1);
        assert_eq!((wakes.first(), wakes.next), (Some((Nanos(30), 2)), Nanos(50)));
        wakes.again(None);
        assert_eq!((wakes.first(), wakes.next), (Some((Nanos(40), 0)), Nanos(70)));
    }
}
