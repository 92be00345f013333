//! Timers, in the order of time.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use parda_control::Instant;

/// Things to do later. Nothing is ever taken out before its time: whoever is named by an entry
/// finds out whether there still is anything to do.
#[derive(Debug)]
pub(crate) struct Timers<T: Ord> {
    heap: BinaryHeap<Reverse<(Instant, T)>>,
    /// Subjects that [`Timers::ensure`] has added and that are not due yet.
    ensured: BTreeSet<T>,
}

impl<T: Ord + Copy> Timers<T> {
    pub(crate) fn new() -> Self {
        Self { heap: BinaryHeap::new(), ensured: BTreeSet::new() }
    }

    pub(crate) fn add(&mut self, at: Instant, what: T) {
        self.heap.push(Reverse((at, what)));
    }

    /// Adds something that is not there already by this: nobody need remember that it is.
    pub(crate) fn ensure(&mut self, at: Instant, what: T) {
        if self.ensured.insert(what) {
            self.add(at, what);
        }
    }

    /// When the next one is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// One that is due.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<T> {
        if self.next()? > now {
            return None;
        }
        let Reverse((_, what)) = self.heap.pop()?;
        self.ensured.remove(&what);
        Some(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_comes_in_the_order_of_time() {
        let mut timers = Timers::new();
        for at in [30, 10, 20] {
            timers.add(Instant(at), at);
        }
        assert_eq!(timers.next(), Some(Instant(10)));
        assert_eq!(timers.pop(Instant(9)), None);
        assert_eq!(timers.pop(Instant(20)), Some(10));
        assert_eq!(timers.pop(Instant(20)), Some(20));
        assert_eq!(timers.pop(Instant(20)), None);
        assert_eq!(timers.next(), Some(Instant(30)));
    }

    #[test]
    fn what_is_ensured_is_there_once_until_it_is_due() {
        let mut timers = Timers::new();
        for at in [20, 10, 30] {
            timers.ensure(Instant(at), 'a');
        }
        assert_eq!((timers.pop(Instant(19)), timers.pop(Instant(20))), (None, Some('a')));
        assert_eq!(timers.next(), None);
        timers.ensure(Instant(40), 'a');
        assert_eq!(timers.next(), Some(Instant(40)));
    }
}
