//! A disk drive: a FIFO in the controller, the drive's own queue, its write cache, and the head.
//! The head serves one request at a time.

use alloc::collections::VecDeque;

use super::buffer::Buffer;
use super::head::Head;
use super::queue::Queue;
use super::{DriveParams, Request, Served, Wakes};
use crate::controller::Server;
use crate::io::IoKind;
use crate::units::{Bytes, Nanos};

#[derive(Clone, Debug)]
pub(crate) struct Disk {
    waiting: VecDeque<Request>,
    queue: Queue,
    head: Head,
    busy_with: Option<Work>,
    buffer: Option<Buffer>,
    /// Writes that wait for room in the buffer.
    no_room: VecDeque<Request>,
    /// Writes whose data the buffer has.
    acknowledged: Server<Request>,
    overhead: Nanos,
}

/// Request that the head serves.
#[derive(Clone, Copy, Debug)]
enum Work {
    Command(Request),
    /// A write from the buffer.
    Destage(Request),
}

impl Disk {
    /// Makes an idle drive. `spindle`: angle at time zero, as a fraction of a turn.
    pub(super) fn new(params: &DriveParams, spindle: f64) -> Disk {
        Disk {
            waiting: VecDeque::new(),
            queue: Queue::new(params),
            head: Head::new(params, spindle),
            busy_with: None,
            buffer: Buffer::new(params.write_cache),
            no_room: VecDeque::new(),
            acknowledged: Server::new(),
            overhead: params.command_overhead,
        }
    }

    /// Takes a request.
    pub(super) fn arrive(&mut self, now: Nanos, request: Request) -> Wakes {
        let mut acknowledged = None;
        if self.buffer.is_some() && request.kind == IoKind::Write {
            self.no_room.push_back(request);
            acknowledged = self.fill_buffer(now);
        } else if self.queue.is_full() {
            self.waiting.push_back(request);
        } else {
            self.queue.push(now, self.head.locate(request));
        }
        let begun = if self.busy_with.is_some() { None } else { self.begin(now) };
        [acknowledged, begun]
    }

    /// Completes the acknowledgement or the head's request that ends now.
    pub(super) fn finish(&mut self, now: Nanos) -> Served {
        if self.acknowledged.next == now {
            let owner = self.acknowledged.leave().map(|request| request.owner);
            let next = Some(self.acknowledged.next).filter(|at| *at != Nanos::NEVER);
            return Served { owner, next: [next, None] };
        }
        match self.busy_with.take() {
            None => Served { owner: None, next: [None, None] },
            Some(Work::Command(request)) => {
                Served { owner: Some(request.owner), next: [None, self.begin(now)] }
            }
            Some(Work::Destage(write)) => {
                if let Some(buffer) = &mut self.buffer {
                    buffer.release(write.len);
                }
                let acknowledged = self.fill_buffer(now);
                Served { owner: None, next: [acknowledged, self.begin(now)] }
            }
        }
    }

    /// Written data that only the buffer holds.
    pub(super) fn unwritten(&self) -> Bytes {
        self.buffer.as_ref().map_or(Bytes(0), Buffer::held)
    }

    /// Requests that are not done. Acknowledged writes that are not on the medium are lost.
    pub(super) fn into_requests(self) -> impl Iterator<Item = Request> {
        let busy_with = self.busy_with.and_then(|work| match work {
            Work::Command(request) => Some(request),
            Work::Destage(_) => None,
        });
        let writes = self.acknowledged.into_all().chain(self.no_room);
        busy_with.into_iter().chain(self.queue.into_requests()).chain(self.waiting).chain(writes)
    }

    /// Moves waiting writes into the buffer as far as it has room. Returns the time of the first
    /// acknowledgement, if none was due before.
    fn fill_buffer(&mut self, now: Nanos) -> Option<Nanos> {
        let buffer = self.buffer.as_mut()?;
        let none_before = self.acknowledged.next == Nanos::NEVER;
        while let Some(write) = self.no_room.front().copied().filter(|w| buffer.has_room(w.len)) {
            self.no_room.pop_front();
            buffer.put(write);
            self.acknowledged.hold(now, write, self.overhead);
        }
        Some(self.acknowledged.next).filter(|at| none_before && *at != Nanos::NEVER)
    }

    /// Starts the next request. Reads go first, because hosts wait for them. While writes wait for
    /// room, the buffer has every other turn.
    fn begin(&mut self, now: Nanos) -> Option<Nanos> {
        let turn_of_buffer =
            !self.no_room.is_empty() && self.head.last_kind() == Some(IoKind::Read);
        if (turn_of_buffer || self.queue.is_empty())
            && let Some(write) = self.buffer.as_mut().and_then(Buffer::take)
        {
            self.busy_with = Some(Work::Destage(write));
            return Some(self.head.destage(now, &self.head.locate(write)));
        }
        let from = self.head.departure(now);
        let next = self.queue.take(&self.head, &from)?;
        self.busy_with = Some(Work::Command(next.request));
        let done = self.head.serve(&from, &next);
        if let Some(request) = self.waiting.pop_front() {
            self.queue.push(now, self.head.locate(request));
        }
        Some(done)
    }
}
