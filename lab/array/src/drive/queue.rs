//! The drive's own queue: a bounded number of requests, and the choice among them.

use alloc::vec::Vec;
use core::cmp::Ordering;

use super::geometry::TrackSpan;
use super::head::{Departure, Head};
use super::{DriveParams, Request, Scheduling};
use crate::io::IoKind;
use crate::units::{Bytes, Nanos};

/// A request in the drive's queue, with its position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queued {
    pub(super) request: Request,
    pub(super) place: TrackSpan,
}

impl Queued {
    pub(super) fn target(&self) -> Target {
        let Queued { request: Request { kind, offset, .. }, place } = *self;
        Target { angle: place.angle, cylinder: place.first_cylinder, offset, kind }
    }
}

/// Fields of a request that the head reads whenever it is free. Two of them fill a line of the processor's cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) angle: f64,
    pub(super) cylinder: f64,
    pub(super) offset: Bytes,
    pub(super) kind: IoKind,
}

/// Arrival time of a request, and its number, which orders requests of equal time.
#[derive(Clone, Copy, Debug)]
struct Came {
    at: Nanos,
    number: u64,
}

/// Requests in any order, at most as many as the drive has command slots.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    targets: Vec<Target>,
    /// Requests and arrivals at the same indices as `targets`.
    entries: Vec<(Queued, Came)>,
    /// Cost of each request; kept for its capacity.
    costs: Vec<f64>,
    /// Number of all requests so far.
    came: u64,
    depth: usize,
    scheduling: Scheduling,
    ageing: f64,
}

impl Queue {
    pub(super) fn new(params: &DriveParams) -> Queue {
        let DriveParams { scheduling, ageing, queue_depth, .. } = *params;
        let depth = queue_depth as usize;
        let (entries, costs) = (Vec::with_capacity(depth), Vec::with_capacity(depth));
        let targets = Vec::with_capacity(depth);
        Queue { targets, entries, costs, came: 0, depth, scheduling, ageing }
    }

    pub(super) fn is_full(&self) -> bool {
        self.entries.len() == self.depth
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn push(&mut self, now: Nanos, queued: Queued) {
        debug_assert!(!self.is_full());
        self.targets.push(queued.target());
        self.entries.push((queued, Came { at: now, number: self.came }));
        self.came += 1;
    }

    /// Requests in order of arrival.
    pub(super) fn into_requests(mut self) -> impl Iterator<Item = Request> {
        self.entries.sort_unstable_by_key(|(_, came)| came.number);
        self.entries.into_iter().map(|(queued, _)| queued.request)
    }

    /// Removes the next request, for a head that is free.
    pub(super) fn take(&mut self, head: &Head, from: &Departure) -> Option<Queued> {
        let next = match self.scheduling {
            Scheduling::Fcfs => self.first(|_, _| Ordering::Equal),
            Scheduling::Sptf => self.soonest(head, from),
            Scheduling::Elevator => self.onward(head.cylinder),
        };
        let next = next?;
        self.targets.swap_remove(next);
        Some(self.entries.swap_remove(next).0)
    }

    /// Index of the least entry by a comparison of two indices, the oldest of equals.
    fn first(&self, order: impl Fn(usize, usize) -> Ordering) -> Option<usize> {
        let number = |i: usize| self.entries[i].1.number;
        let both = |a: &usize, b: &usize| order(*a, *b).then(number(*a).cmp(&number(*b)));
        (0..self.entries.len()).min_by(both)
    }

    /// Index of the request with the least positioning time, less credit for waiting; the oldest of equals.
    fn soonest(&mut self, head: &Head, from: &Departure) -> Option<usize> {
        // All costs and their minimum first, then its index. Tracking the index of the best so far would need a
        // branch that the processor often mispredicts.
        let (ageing, mut least) = (self.ageing, f64::INFINITY);
        self.costs.clear();
        self.costs.extend(self.targets.iter().map(|target| head.positioning(from, target)));
        if ageing > 0.0 {
            for (cost, (_, came)) in self.costs.iter_mut().zip(&self.entries) {
                *cost -= ageing * from.waited(came.at);
            }
        }
        for cost in &self.costs {
            least = if *cost < least { *cost } else { least };
        }
        let place = self.costs.iter().position(|cost| *cost == least)?;
        if self.costs[place + 1..].contains(&least) {
            return self.first(|a, b| self.costs[a].total_cmp(&self.costs[b]));
        }
        Some(place)
    }

    /// The nearest request further in; when none is left, the outermost one.
    fn onward(&self, cylinder: f64) -> Option<usize> {
        let key = |i: usize| {
            let to = self.targets[i].cylinder;
            (to < cylinder, to as u32)
        };
        self.first(|a, b| key(a).cmp(&key(b)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset::Preset;
    use proptest::prelude::*;

    fn drive() -> DriveParams {
        *Preset::Drive7200.params().drive.disk_mut().unwrap()
    }

    fn read(head: &Head, owner: usize, offset: Bytes) -> Queued {
        head.locate(Request { owner, kind: IoKind::Read, offset, len: Bytes::kib(4) })
    }

    /// The order in which requests at these gigabytes are taken, the head moving with them.
    fn order(scheduling: Scheduling, gigabytes: &[u64]) -> Vec<u64> {
        let mut head = Head::new(&drive(), 0.0);
        let mut queue = Queue::new(&DriveParams { scheduling, queue_depth: 16, ..drive() });
        for (owner, gb) in gigabytes.iter().enumerate() {
            queue.push(Nanos::ZERO, read(&head, owner, Bytes::gb(*gb)));
        }
        let mut now = Nanos::ZERO;
        let mut taken = Vec::new();
        while let Some(next) = queue.take(&head, &head.departure(now)) {
            now = head.serve(&head.departure(now), &next);
            taken.push(gigabytes[next.request.owner]);
        }
        taken
    }

    #[test]
    fn fcfs_keeps_the_order_and_the_elevator_sweeps_inward() {
        let asked = [300, 20, 400, 100, 10];
        assert_eq!(order(Scheduling::Fcfs, &asked), asked);
        assert_eq!(order(Scheduling::Elevator, &asked), [10, 20, 100, 300, 400]);
    }

    #[test]
    fn the_elevator_returns_to_the_outermost() {
        let mut head = Head::new(&drive(), 0.0);
        let inward = read(&head, 0, Bytes::gb(200));
        head.serve(&head.departure(Nanos::ZERO), &inward);
        let mut queue = Queue::new(&DriveParams {
            scheduling: Scheduling::Elevator,
            queue_depth: 16,
            ..drive()
        });
        for (owner, gb) in [100, 50, 300].into_iter().enumerate() {
            queue.push(Nanos::ZERO, read(&head, owner, Bytes::gb(gb)));
        }
        let now = Nanos::from_millis(50);
        let mut take = || queue.take(&head, &head.departure(now)).map(|next| next.request.owner);
        assert_eq!([take(), take(), take(), take()], [Some(2), Some(1), Some(0), None]);
    }

    /// Number of requests near the outer edge, of at most 1000, that pass an older one at 400 GB. Each request
    /// served is replaced by a new one.
    fn passed_by(ageing: f64) -> usize {
        let mut head = Head::new(&drive(), 0.0);
        let mut queue = Queue::new(&DriveParams { ageing, ..drive() });
        queue.push(Nanos::ZERO, read(&head, 0, Bytes::gb(400)));
        let mut now = Nanos::ZERO;
        for owner in 1..1000 {
            while !queue.is_full() {
                let place = Bytes(owner as u64 * 7_654_321 % 1_000_000_000);
                queue.push(now, read(&head, owner, place));
            }
            let next = queue.take(&head, &head.departure(now)).unwrap();
            now = head.serve(&head.departure(now), &next);
            if next.request.owner == 0 {
                return owner - 1;
            }
        }
        1000
    }

    #[test]
    fn who_ages_is_not_passed_by_for_ever() {
        assert_eq!(passed_by(0.0), 1000);
        // 160 ms of waiting make up for a seek of some 16 ms more. Meanwhile 20 to 40 others are served.
        let passed = passed_by(0.1);
        assert!((10..60).contains(&passed), "{passed}");
        // Only requests that came with it pass it.
        assert!(passed_by(1000.0) < 10);
    }

    proptest! {
        /// SPTF takes a request of the queue whose data comes under the head first.
        #[test]
        fn sptf_is_soonest(
            offsets in prop::collection::vec(0..500_000_000_000_u64, 1..12),
            at in 0..10_000_000_000_u64,
        ) {
            let head = Head::new(&drive(), 0.3);
            let mut queue = Queue::new(&DriveParams { queue_depth: 16, ..drive() });
            let now = Nanos(at);
            let begins = |queued: &Queued| {
                (head.clone().serve(&head.departure(now), queued) - Nanos::round(queued.place.transfer)).0
            };
            let all = offsets.iter().enumerate();
            let all: Vec<_> = all.map(|(i, o)| read(&head, i, Bytes(*o))).collect();
            all.iter().for_each(|queued| queue.push(Nanos::ZERO, *queued));
            let taken = queue.take(&head, &head.departure(now)).unwrap();
            prop_assert_eq!(Some(begins(&taken)), all.iter().map(begins).min());
        }
    }
}
