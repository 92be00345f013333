//! The drive's own queue: a bounded number of requests, and which of them goes next.

use alloc::vec::Vec;

use super::geometry::Place;
use super::head::Head;
use super::{Request, Scheduling};
use crate::units::Nanos;

/// A request in the drive's queue, with where it lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queued {
    pub(super) request: Request,
    pub(super) place: Place,
}

/// Requests in order of arrival, at most as many as the drive has command slots.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    entries: Vec<Queued>,
    depth: usize,
    scheduling: Scheduling,
}

impl Queue {
    pub(super) fn new(depth: u32, scheduling: Scheduling) -> Queue {
        let depth = depth as usize;
        Queue { entries: Vec::with_capacity(depth), depth, scheduling }
    }

    pub(super) fn is_full(&self) -> bool {
        self.entries.len() == self.depth
    }

    pub(super) fn push(&mut self, queued: Queued) {
        debug_assert!(!self.is_full());
        self.entries.push(queued);
    }

    /// Takes out the request that goes next, for a head that is free at `now`.
    pub(super) fn take(&mut self, head: &Head, now: Nanos) -> Option<Queued> {
        let next = match self.scheduling {
            Scheduling::Fcfs => 0,
            Scheduling::Sptf => self.soonest(head, now),
            Scheduling::Elevator => self.onward(head.cylinder()),
        };
        (next < self.entries.len()).then(|| self.entries.remove(next))
    }

    /// The request whose first byte the head can reach soonest; the oldest of equals.
    fn soonest(&self, head: &Head, now: Nanos) -> usize {
        let from = head.departure(now);
        let mut best = (f64::INFINITY, 0);
        for (i, queued) in self.entries.iter().enumerate() {
            let cost = head.positioning(&from, queued);
            if cost < best.0 {
                best = (cost, i);
            }
        }
        best.1
    }

    /// The nearest request further in; when none is left, the outermost one.
    fn onward(&self, cylinder: u32) -> usize {
        let key = |q: &Queued| (q.place.first_cylinder < cylinder, q.place.first_cylinder);
        let indexed = self.entries.iter().enumerate();
        indexed.min_by_key(|(_, q)| key(q)).map_or(0, |(i, _)| i)
    }
}
