//! The drive's own queue: a bounded number of requests, and which of them goes next.

use alloc::vec::Vec;

use super::geometry::TrackSpan;
use super::head::{Departure, Head};
use super::{DriveParams, Request, Scheduling};
use crate::units::Nanos;

/// A request in the drive's queue, with where it lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queued {
    pub(super) request: Request,
    pub(super) place: TrackSpan,
    /// What a write waits for until the head is still, in nanoseconds.
    pub(super) settle: f64,
}

/// Requests in order of arrival, at most as many as the drive has command slots.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    /// With the time at which each of them came.
    entries: Vec<(Queued, Nanos)>,
    /// What each would cost; kept only for its room.
    costs: Vec<f64>,
    depth: usize,
    scheduling: Scheduling,
    ageing: f64,
}

impl Queue {
    pub(super) fn new(params: &DriveParams) -> Queue {
        let DriveParams { scheduling, ageing, queue_depth, .. } = *params;
        let depth = queue_depth as usize;
        let (entries, costs) = (Vec::with_capacity(depth), Vec::with_capacity(depth));
        Queue { entries, costs, depth, scheduling, ageing }
    }

    pub(super) fn is_full(&self) -> bool {
        self.entries.len() == self.depth
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn push(&mut self, now: Nanos, queued: Queued) {
        debug_assert!(!self.is_full());
        self.entries.push((queued, now));
    }

    pub(super) fn into_requests(self) -> impl Iterator<Item = Request> {
        self.entries.into_iter().map(|(queued, _)| queued.request)
    }

    /// Takes out the request that goes next, for a head that is free.
    pub(super) fn take(&mut self, head: &Head, from: &Departure) -> Option<Queued> {
        let next = match self.scheduling {
            Scheduling::Fcfs => 0,
            Scheduling::Sptf => self.soonest(head, from),
            Scheduling::Elevator => self.onward(head.cylinder),
        };
        (next < self.entries.len()).then(|| self.entries.remove(next).0)
    }

    /// The request whose first byte the head can reach soonest, what it has waited taken into account; the oldest
    /// of equals.
    fn soonest(&mut self, head: &Head, from: &Departure) -> usize {
        // All costs and the least of them first, then its place: to remember the place of the best so far would
        // make the processor guess, and wait for the cost whenever it guesses wrong.
        let (ageing, mut least) = (self.ageing, f64::INFINITY);
        self.costs.clear();
        self.costs.extend(self.entries.iter().map(|(queued, since)| {
            let mut cost = head.positioning(from, queued);
            if ageing > 0.0 {
                cost -= ageing * from.waited(*since);
            }
            least = if cost < least { cost } else { least };
            cost
        }));
        self.costs.iter().position(|cost| *cost == least).unwrap_or(0)
    }

    /// The nearest request further in; when none is left, the outermost one.
    fn onward(&self, cylinder: f64) -> usize {
        let key = |q: &Queued| (q.place.first_cylinder < cylinder, q.place.first_cylinder as u32);
        let indexed = self.entries.iter().enumerate();
        indexed.min_by_key(|(_, (q, _))| key(q)).map_or(0, |(i, _)| i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::IoKind;
    use crate::preset::Preset;
    use crate::units::Bytes;
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

    /// Requests near the outer edge, a new one whenever one has gone, beside one at 400 GB that came first: how many
    /// go before it, of at most a thousand.
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
        // A seek of some 16 ms more is made up for by 160 ms of waiting, in which the others do 20 to 40.
        let passed = passed_by(0.1);
        assert!((10..60).contains(&passed), "{passed}");
        // Only those that came with it.
        assert!(passed_by(1000.0) < 10);
    }

    proptest! {
        /// Of all requests in the queue, SPTF takes one whose data comes first when it is served.
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
