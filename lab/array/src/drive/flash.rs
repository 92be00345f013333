//! A flash drive: parallel units that read fast, program slowly, and stop at times to collect
//! garbage. A buffer in front of them makes writes fast until it is full.

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::{Request, Served, Wakes};
use crate::error::{ParamError, check};
use crate::io::IoKind;
use crate::units::{Bytes, Nanos};

/// A flash drive in the steady state after random writes over its whole capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlashParams {
    /// Capacity.
    pub capacity: Bytes,
    /// Units that work in parallel; neighbouring pages lie on different ones.
    pub units: u32,
    /// Bytes that a unit reads or programs at a time.
    pub page: Bytes,
    /// Time of the drive's controller for a command. Commands wait for one another.
    pub command_time: Nanos,
    /// Time added to each command, in parallel with other commands.
    pub command_overhead: Nanos,
    /// Time of a unit to read a page.
    pub read: Nanos,
    /// Time of a unit to program a page.
    pub program: Nanos,
    /// Number of programmed pages after which a unit stops to collect garbage.
    pub collect_after: u32,
    /// Time for which the unit then stops.
    pub collect: Nanos,
    /// Bytes of written data that may wait to be programmed. They survive a power cut.
    pub write_buffer: Bytes,
    /// Requests that the drive accepts at a time. Further ones wait, first come, first served.
    pub queue_depth: u32,
}

const LONGEST: Nanos = Nanos::from_millis(10_000);

/// Limit on the allocation of the model.
const MOST: u32 = 65_536;

impl FlashParams {
    pub(crate) fn validate(&self) -> Result<(), ParamError> {
        let few = |name, value: u32| {
            check((1..=MOST).contains(&value), name, value, "be from 1 to 65536")
        };
        let short = |name, time| check(time <= LONGEST, name, time, "be at most 10s");
        few("drive.units", self.units)?;
        let possible = (Bytes(512)..=Bytes::mib(1)).contains(&self.page);
        check(possible, "drive.page", self.page, "be from 512B to 1MiB")?;
        let possible = (self.page..=Bytes::gb(1_000_000)).contains(&self.capacity);
        check(possible, "drive.capacity", self.capacity, "be from one page to 1000TB")?;
        short("drive.command_time", self.command_time)?;
        short("drive.command_overhead", self.command_overhead)?;
        short("drive.read", self.read)?;
        short("drive.program", self.program)?;
        few("drive.collect_after", self.collect_after)?;
        short("drive.collect", self.collect)?;
        let possible = (self.page..=Bytes::gib(64)).contains(&self.write_buffer);
        check(possible, "drive.write_buffer", self.write_buffer, "be from one page to 64GiB")?;
        few("drive.queue_depth", self.queue_depth)
    }
}

/// Time at which a unit is free, and the pages that it has programmed since its last collection.
#[derive(Clone, Copy, Debug, Default)]
struct Unit {
    free_at: Nanos,
    programmed: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Flash {
    params: FlashParams,
    waiting: VecDeque<Request>,
    /// Completion times of the requests in service. Every unit works in order of arrival, so the
    /// times are known from the start.
    begun: BinaryHeap<Reverse<(Nanos, usize)>>,
    units: Vec<Unit>,
    controller_free_at: Nanos,
    /// Bytes in the write buffer, and the times at which they leave it.
    buffered: u64,
    leaving: BinaryHeap<Reverse<(Nanos, u64)>>,
}

impl Flash {
    pub(super) fn new(params: &FlashParams) -> Flash {
        Flash {
            params: *params,
            waiting: VecDeque::new(),
            begun: BinaryHeap::new(),
            units: alloc::vec![Unit::default(); params.units as usize],
            controller_free_at: Nanos::ZERO,
            buffered: 0,
            leaving: BinaryHeap::new(),
        }
    }

    pub(super) fn arrive(&mut self, now: Nanos, request: Request) -> Wakes {
        if self.begun.len() >= self.params.queue_depth as usize {
            self.waiting.push_back(request);
            return [None, None];
        }
        [Some(self.begin(now, request)), None]
    }

    pub(super) fn finish(&mut self, now: Nanos) -> Served {
        let owner = self.begun.pop().map(|Reverse((_, owner))| owner);
        let next = self.waiting.pop_front().map(|request| self.begin(now, request));
        Served { owner, next: [next, None] }
    }

    /// Data in the write buffer; freed room counts only from the next write on.
    pub(super) fn unwritten(&self) -> Bytes {
        Bytes(self.buffered)
    }

    /// Requests that are not done. The failed drive's requests in service become writes of length
    /// 0, which need no further work.
    pub(super) fn into_requests(self) -> impl Iterator<Item = Request> {
        let lost = |Reverse((_, owner))| Request {
            owner,
            kind: IoKind::Write,
            offset: Bytes(0),
            len: Bytes(0),
        };
        self.begun.into_iter().map(lost).chain(self.waiting)
    }

    fn begin(&mut self, now: Nanos, request: Request) -> Nanos {
        self.controller_free_at = self.controller_free_at.max(now) + self.params.command_time;
        let ready = self.controller_free_at + self.params.command_overhead;
        let done = match request.kind {
            IoKind::Read => self.read(ready, &request),
            IoKind::Write | IoKind::Trim => self.write(ready, &request),
        };
        self.begun.push(Reverse((done, request.owner)));
        done
    }

    fn read(&mut self, ready: Nanos, request: &Request) -> Nanos {
        let mut done = ready;
        for unit in self.units_of(request) {
            let unit = &mut self.units[unit];
            unit.free_at = unit.free_at.max(ready) + self.params.read;
            done = done.max(unit.free_at);
        }
        done
    }

    /// Completion time of a write: when the buffer has room for it. Its pages are programmed later.
    fn write(&mut self, ready: Nanos, request: &Request) -> Nanos {
        let capacity = self.params.write_buffer.0;
        let mut accepted = ready;
        while let Some(Reverse((left, bytes))) = self.leaving.peek().copied()
            && (left <= accepted || self.buffered + request.len.0.min(capacity) > capacity)
        {
            accepted = accepted.max(left);
            self.buffered -= bytes;
            self.leaving.pop();
        }
        let mut programmed = accepted;
        for unit in self.units_of(request) {
            let unit = &mut self.units[unit];
            unit.free_at = unit.free_at.max(accepted) + self.params.program;
            programmed = programmed.max(unit.free_at);
            unit.programmed += 1;
            if unit.programmed >= self.params.collect_after {
                unit.programmed = 0;
                unit.free_at = unit.free_at + self.params.collect;
            }
        }
        let bytes = request.len.0.min(capacity);
        self.buffered += bytes;
        self.leaving.push(Reverse((programmed, bytes)));
        accepted
    }

    /// The unit of each page that a request touches.
    fn units_of(&self, request: &Request) -> impl Iterator<Item = usize> + use<> {
        let (page, units) = (self.params.page.0, self.units.len() as u64);
        let pages = request.offset.0 / page..(request.offset.0 + request.len.0).div_ceil(page);
        pages.map(move |page| (page % units) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Nanos = Nanos(1_000);

    fn flash() -> Flash {
        Flash::new(&FlashParams {
            capacity: Bytes::gb(1),
            units: 4,
            page: Bytes::kib(4),
            command_time: US,
            command_overhead: Nanos(9_000),
            read: Nanos(50_000),
            program: Nanos(200_000),
            collect_after: 2,
            collect: Nanos(3_000_000),
            write_buffer: Bytes::kib(16),
            queue_depth: 3,
        })
    }

    fn request(kind: IoKind, page: u64, pages: u64) -> Request {
        Request {
            owner: page as usize,
            kind,
            offset: Bytes::kib(4 * page),
            len: Bytes::kib(4 * pages),
        }
    }

    fn arrive(flash: &mut Flash, kind: IoKind, page: u64) -> Option<u64> {
        flash.arrive(Nanos::ZERO, request(kind, page, 1))[0].map(|at| at.0 / 1_000)
    }

    #[test]
    fn units_work_side_by_side_and_each_in_order() {
        let mut flash = flash();
        assert_eq!(arrive(&mut flash, IoKind::Read, 0), Some(60));
        assert_eq!(arrive(&mut flash, IoKind::Read, 1), Some(61));
        assert_eq!(arrive(&mut flash, IoKind::Read, 4), Some(110), "behind the first");
        assert_eq!(arrive(&mut flash, IoKind::Read, 2), None, "no more than the queue takes");
        let served = flash.finish(Nanos(60_000));
        assert_eq!((served.owner, served.next[0]), (Some(0), Some(Nanos(120_000))));
    }

    #[test]
    fn writes_are_fast_until_the_buffer_is_full_and_garbage_stops_a_unit() {
        let mut flash = flash();
        flash.params.queue_depth = 100;
        let done: Vec<_> = (0..6).map(|i| arrive(&mut flash, IoKind::Write, 4 * i)).collect();
        // All pages on one unit: two of 200 us, then 3 ms of collecting, and so on.
        let expected = [10, 11, 12, 13, 210, 410].map(Some);
        assert_eq!(done, expected);
        assert_eq!(arrive(&mut flash, IoKind::Write, 24), Some(3_610));
        let behind = arrive(&mut flash, IoKind::Read, 0).unwrap();
        assert!(behind > 9_000, "{behind}: reads wait for the unit, too");
        assert_eq!(arrive(&mut flash, IoKind::Read, 1), Some(68), "not on another unit");
    }
}
