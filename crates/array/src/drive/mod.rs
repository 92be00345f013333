//! One disk drive: a FIFO that the controller keeps above it, the drive's own bounded queue, and
//! the head that serves one request at a time.

mod geometry;
mod head;
mod params;
mod queue;
mod seek;

use alloc::collections::VecDeque;

use crate::io::IoKind;
use crate::units::{Bytes, Nanos};

use head::Head;
use queue::Queue;

pub use params::{DriveParams, Scheduling};
pub use seek::SeekParams;

/// What the controller asks of a drive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Whose request it is: handed back when it is done.
    pub(crate) owner: usize,
    pub(crate) kind: IoKind,
    /// Where on the drive, and how much.
    pub(crate) offset: Bytes,
    pub(crate) len: Bytes,
}

/// Whose request is done, and when the one begun after it will be.
pub(crate) struct Served {
    pub(crate) owner: Option<usize>,
    pub(crate) next: Option<Nanos>,
}

/// A drive. Whoever holds it remembers when its request in service will be done.
#[derive(Clone, Debug)]
pub(crate) struct Drive {
    waiting: VecDeque<Request>,
    queue: Queue,
    head: Head,
    in_service: Option<Request>,
}

impl Drive {
    /// `spindle`: where the spindle stands at time zero, as a fraction of a turn.
    pub(crate) fn new(params: &DriveParams, spindle: f64) -> Drive {
        Drive {
            waiting: VecDeque::new(),
            queue: Queue::new(params.queue_depth, params.scheduling),
            head: Head::new(params, spindle),
            in_service: None,
        }
    }

    /// Takes a request. If the drive was idle it begins at once; returns when it will be done.
    pub(crate) fn arrive(&mut self, now: Nanos, request: Request) -> Option<Nanos> {
        if self.queue.is_full() {
            self.waiting.push_back(request);
            return None;
        }
        self.queue.push(self.head.locate(request));
        if self.in_service.is_some() { None } else { self.begin(now) }
    }

    /// Ends the request in service, at the time that was given for it, and begins the next.
    pub(crate) fn finish(&mut self, now: Nanos) -> Served {
        let owner = self.in_service.take().map(|request| request.owner);
        Served { owner, next: self.begin(now) }
    }

    /// What the drive has not done yet.
    pub(crate) fn into_requests(self) -> impl Iterator<Item = Request> {
        self.in_service.into_iter().chain(self.queue.into_requests()).chain(self.waiting)
    }

    fn begin(&mut self, now: Nanos) -> Option<Nanos> {
        let next = self.queue.take(&self.head, now)?;
        self.in_service = Some(next.request);
        let done = self.head.serve(now, &next);
        if let Some(request) = self.waiting.pop_front() {
            self.queue.push(self.head.locate(request));
        }
        Some(done)
    }
}
