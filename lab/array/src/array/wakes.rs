//! Times at which drives have their next events.

use alloc::collections::BinaryHeap;
use alloc::collections::binary_heap::PeekMut;
use core::cmp::Reverse;

use super::pace::Pace;
use crate::units::Nanos;

/// A time, in the drives' time, and a drive, in one number: the heap compares two without a branch. The order is
/// reversed, as the heap yields its greatest entry first. At equal times the lower drive comes first.
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

/// Completion times of the busy drives' requests in service.
#[derive(Clone, Debug)]
pub(super) struct Wakes {
    heap: BinaryHeap<Wake>,
    /// Map between the array's time and the drives' time.
    pace: Pace,
    /// Earliest completion in the array's time: read at every event of the array.
    pub(super) next: Nanos,
}

impl Wakes {
    pub(super) fn new() -> Wakes {
        Wakes { heap: BinaryHeap::new(), pace: Pace::EVEN, next: Nanos::NEVER }
    }

    /// Earliest completion, in the drives' time, and its drive.
    pub(super) fn first(&self) -> Option<(Nanos, u32)> {
        self.heap.peek().map(|wake| (wake.at(), wake.drive()))
    }

    /// Replaces the first entry with the drive's next time, or removes it.
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

    /// Adds a drive's next event, in the drives' time, if there is one.
    pub(super) fn add(&mut self, at: Option<Nanos>, drive: u32) {
        if let Some(at) = at {
            self.heap.push(Wake::new(at, drive));
            self.find_next();
        }
    }

    /// Removes the entries of a failed drive.
    pub(super) fn forget(&mut self, drive: u32) {
        self.heap.retain(|wake| wake.drive() != drive);
        self.find_next();
    }

    /// Stretches all times of the drives by `slow` from `now` on.
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
