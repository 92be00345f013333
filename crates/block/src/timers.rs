//! Timers, in the order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use parda_control::Instant;

/// Things to do later. Nothing is ever taken out before its time: whoever is named by an entry
/// finds out whether there still is anything to do.
#[derive(Debug)]
pub(crate) struct Timers<T: Ord> {
    heap: BinaryHeap<Reverse<(Instant, T)>>,
}

impl<T: Ord> Timers<T> {
    pub(crate) fn new() -> Self {
        Self { heap: BinaryHeap::new() }
    }

    pub(crate) fn add(&mut self, at: Instant, what: T) {
        self.heap.push(Reverse((at, what)));
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
        self.heap.pop().map(|Reverse((_, what))| what)
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
}
