//! Another NBD server as a backend: many requests in flight on one connection, and a new
//! connection when that is lost.
//!
//! What was in flight is sent again to the server that comes back, if it comes back in time.
//! Writes that were acknowledged but not flushed may have died with it. The clients were promised
//! that a FLUSH which succeeds covers them, so the first FLUSH after a loss fails with EIO.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use parda_control::{Instant, Span};
use parda_nbd::client::{self, Agreed, Expected, Reply};
use parda_nbd::extents::{Descriptor, Extents};
use parda_nbd::uri::Uri;
use parda_nbd::{Cookie, Errno, Extent, Op, TransmissionFlags};

use super::connect::{Opened, disconnect};
use super::file::Step;
use super::{Failure, Request, Work};
use crate::batch::{Batch, Inbox};
use crate::buffer::{Buffer, Pool};
use crate::ring::{Recv, Ring, Sending, Wire};

/// Data that the kernel receives straight into a read's buffer.
struct Payload {
    cookie: u64,
    from: usize,
    to: usize,
    last: bool,
}

struct Link {
    fd: Rc<OwnedFd>,
    inbox: Inbox,
    outbox: Batch,
    payload: Option<Payload>,
    /// Bytes to be thrown away before the next reply.
    discard: usize,
    receiving: bool,
    sending: bool,
}

/// An NBD server that is a backend.
pub(crate) struct Upstream {
    pub(crate) uri: Uri,
    agreed: Agreed,
    base: u64,
    patience: Span,
    link: Option<Link>,
    /// A new connection that waits until the old one's operations are done, because these still
    /// have buffers of requests.
    next: Option<OwnedFd>,
    /// Operations under way.
    busy: usize,
    /// Requests by cookie, in the order of their arrival.
    in_flight: BTreeMap<u64, usize>,
    next_cookie: u64,
    /// When those fail if the server is not back.
    deadline: Option<Instant>,
    /// Acknowledged writes that were not durable by themselves, and how many of them a flush
    /// has covered since.
    written: u64,
    flushed: u64,
    /// What `written` was when a FLUSH was sent.
    flushes: BTreeMap<u64, u64>,
    /// Acknowledged writes may have been lost, and no flush has said so yet.
    owes_error: bool,
}

impl Upstream {
    pub(crate) fn new(opened: Opened, base: u64, patience: Span, pool: &mut Pool) -> Self {
        Self {
            uri: opened.uri,
            agreed: opened.agreed,
            base,
            patience,
            link: Some(Link::new(opened.fd, pool)),
            next: None,
            busy: 0,
            in_flight: BTreeMap::new(),
            next_cookie: 0,
            deadline: None,
            written: 0,
            flushed: 0,
            flushes: BTreeMap::new(),
            owes_error: false,
        }
    }

    /// Starts a request.
    pub(crate) fn begin(&mut self, now: Instant, work: &mut Work, key: usize) {
        if self.link.is_none() && self.deadline.is_some_and(|d| now >= d) {
            work.finished.push((key, Err(gone())));
        } else if let (Op::BlockStatus { extent, .. }, None) =
            (work.requests[key].op, self.agreed.allocation)
        {
            // A server that does not tell: all of it is data.
            let extents = Extents::all_data(extent).finish();
            let outcome = extents.map(|extents| work.requests[key].status = extents);
            let unknown = |errno| Failure::new(errno, "nothing is known of this range");
            work.finished.push((key, outcome.map_err(unknown)));
        } else {
            self.enqueue(work, key);
        }
    }

    fn enqueue(&mut self, work: &mut Work, key: usize) {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.in_flight.insert(cookie, key);
        let request = &mut work.requests[key];
        if request.step != Step::Sync {
            request.step = Step::Transfer(0);
        }
        request.delayed |= self.link.is_none();
        self.put(work, cookie, key);
    }

    /// Puts a request into the outbox, if there is a connection.
    fn put(&mut self, work: &mut Work, cookie: u64, key: usize) {
        let request = &mut work.requests[key];
        let op = if request.step == Step::Sync { Op::Flush } else { self.translate(request.op) };
        let Some(link) = &mut self.link else { return };
        if op == Op::Flush {
            if std::mem::take(&mut self.owes_error) {
                self.in_flight.remove(&cookie);
                work.finished.push((key, Err(lost_writes())));
                return;
            }
            self.flushes.insert(cookie, self.written);
        }
        link.outbox.head(|out| client::put_request(out, Cookie(cookie), op));
        if let (Op::Write { extent, .. }, Some(buffer)) = (op, request.buffer.take()) {
            link.outbox.data(buffer, extent.len as usize, cookie);
        }
    }

    /// The request as this server takes it: moved to the disk's place, FUA only if offered.
    fn translate(&self, op: Op) -> Op {
        let there = |e: Extent| Extent { offset: e.offset + self.base, ..e };
        let can = self.agreed.flags.contains(TransmissionFlags::SEND_FUA);
        match op {
            Op::Read(extent) => Op::Read(there(extent)),
            Op::Write { extent, fua } => Op::Write { extent: there(extent), fua: fua && can },
            Op::Flush => Op::Flush,
            Op::Trim { extent, fua } => Op::Trim { extent: there(extent), fua: fua && can },
            Op::WriteZeroes { extent, fua, no_hole, fast } => {
                Op::WriteZeroes { extent: there(extent), fua: fua && can, no_hole, fast }
            }
            Op::Cache(extent) => Op::Cache(there(extent)),
            Op::BlockStatus { extent, one } => Op::BlockStatus { extent: there(extent), one },
        }
    }

    /// Starts what the connection has to do: sending what waits, receiving what comes.
    pub(crate) fn pump<T>(&mut self, ring: &mut Ring<T>, work: &mut Work, tag: impl Fn(Wire) -> T) {
        let Some(link) = &mut self.link else { return };
        if !link.sending && !link.outbox.is_empty() {
            link.sending = true;
            self.busy += 1;
            ring.send(&link.fd, std::mem::take(&mut link.outbox), tag(Wire::Sent));
        }
        if link.receiving {
            return;
        }
        link.receiving = true;
        self.busy += 1;
        if let Some(Payload { cookie, from, to, .. }) = link.payload {
            let key = self.in_flight.get(&cookie).copied();
            let request = key.and_then(|key| work.requests.get_mut(key));
            let buffer = request.and_then(|r| r.buffer.take());
            let buffer = buffer.unwrap_or_else(|| work.pool.take(to));
            ring.recv(&link.fd, buffer, from..to, Recv::All, tag(Wire::Payload));
        } else if let Some((buffer, free)) = link.inbox.lend() {
            ring.recv(&link.fd, buffer, free, Recv::Later, tag(Wire::Inbox));
        }
    }

    /// Takes the result of a receive into the inbox.
    pub(crate) fn received(
        &mut self,
        now: Instant,
        work: &mut Work,
        buffer: Buffer,
        result: Result<usize, i32>,
    ) -> Result<(), String> {
        self.busy -= 1;
        let Some(link) = &mut self.link else {
            work.pool.put(buffer);
            return Ok(());
        };
        link.receiving = false;
        link.inbox.restore(buffer, result.unwrap_or(0));
        let outcome = match result {
            Ok(0) => Err("it closed the connection".to_owned()),
            Err(libc::EINTR | libc::EAGAIN) => Ok(()),
            Err(errno) => Err(std::io::Error::from_raw_os_error(errno).to_string()),
            Ok(_) => self.parse(work),
        };
        self.lose_on_error(now, work, outcome)
    }

    /// Takes the result of a receive into a read's buffer.
    pub(crate) fn payload_received(
        &mut self,
        now: Instant,
        work: &mut Work,
        buffer: Buffer,
        result: Result<usize, i32>,
    ) -> Result<(), String> {
        self.busy -= 1;
        let payload = self.link.as_mut().and_then(|link| {
            link.receiving = false;
            link.payload.take()
        });
        let Some(mut payload) = payload else {
            work.pool.put(buffer);
            return Ok(());
        };
        let outcome = match result {
            Ok(0) => Err("it closed the connection".to_owned()),
            Err(libc::EINTR | libc::EAGAIN) => Ok(0),
            Err(errno) => Err(std::io::Error::from_raw_os_error(errno).to_string()),
            Ok(n) => Ok(n),
        };
        self.give_back(work, payload.cookie, buffer);
        let outcome = outcome.map(|n| {
            payload.from += n;
            if payload.from < payload.to {
                if let Some(link) = &mut self.link {
                    link.payload = Some(payload);
                }
            } else if payload.last {
                self.conclude(work, payload.cookie);
            }
        });
        let outcome = outcome.and_then(|()| self.parse(work));
        self.lose_on_error(now, work, outcome)
    }

    /// Takes the result of a send and goes on with what it left.
    pub(crate) fn sent<T>(
        &mut self,
        now: Instant,
        work: &mut Work,
        ring: &mut Ring<T>,
        mut sending: Box<Sending>,
        result: Result<usize, i32>,
        tag: T,
    ) -> Result<(), String> {
        let mut returned = Vec::new();
        let outcome = match result {
            Ok(n) => {
                sending.batch.sent(n, |cookie, buffer| returned.push((cookie, buffer)));
                Ok(())
            }
            Err(libc::EINTR | libc::EAGAIN) => Ok(()),
            Err(errno) => Err(std::io::Error::from_raw_os_error(errno).to_string()),
        };
        let link = self.link.as_mut().filter(|_| outcome.is_ok());
        match link {
            Some(link) if !sending.batch.is_empty() => {
                ring.send_rest(&link.fd, sending, tag);
            }
            link => {
                self.busy -= 1;
                if let Some(link) = link {
                    link.sending = false;
                }
                sending.batch.abandon(|cookie, buffer| returned.push((cookie, buffer)));
            }
        }
        for (cookie, buffer) in returned {
            self.give_back(work, cookie, buffer);
        }
        self.lose_on_error(now, work, outcome)
    }

    /// Gives a buffer back to its request, which may need it again, or to the pool.
    fn give_back(&mut self, work: &mut Work, cookie: u64, buffer: Buffer) {
        let key = self.in_flight.get(&cookie).copied();
        match key.and_then(|key| work.requests.get_mut(key)) {
            Some(request) if request.buffer.is_none() => request.buffer = Some(buffer),
            _ => work.pool.put(buffer),
        }
    }

    fn parse(&mut self, work: &mut Work) -> Result<(), String> {
        loop {
            let Some(link) = &mut self.link else { return Ok(()) };
            if link.payload.is_some() || link.receiving {
                return Ok(());
            }
            let discarded = link.discard.min(link.inbox.bytes().len());
            link.inbox.take(discarded);
            link.discard -= discarded;
            if link.discard > 0 {
                return Ok(());
            }
            let (in_flight, requests, base) = (&self.in_flight, &work.requests, self.base);
            let context = self.agreed.allocation;
            let expected = |cookie: Cookie| {
                let request = requests.get(*in_flight.get(&cookie.0)?)?;
                let there = |e: Extent| Extent { offset: e.offset + base, ..e };
                Some(match (request.op, context) {
                    (Op::Read(extent), _) => Expected::Data(there(extent)),
                    (Op::BlockStatus { extent, .. }, Some(context)) => {
                        Expected::Status { extent: there(extent), context }
                    }
                    _ => Expected::Outcome,
                })
            };
            let head = client::reply(link.inbox.bytes(), self.agreed.structured, expected)
                .map_err(|e| e.to_string())?;
            let Some(head) = head else { return Ok(()) };
            link.inbox.take(head.taken);
            let cookie = head.cookie.0;
            let Some(request) = in_flight.get(&cookie).and_then(|k| work.requests.get_mut(*k))
            else {
                continue;
            };
            // Where a piece of data belongs in the request's buffer.
            let start = request.extent().offset + self.base;
            let place = |e: Extent| {
                let from = (e.offset - start) as usize;
                (from, from + e.len as usize)
            };
            let last = match head.reply {
                Reply::Done => true,
                Reply::Error { errno, message, at, last } => {
                    let asked = request.extent();
                    let at = at.and_then(|at| at.checked_sub(self.base));
                    let at = at.filter(|at| *at >= asked.offset && Some(*at) < asked.end());
                    request.error = Some(Failure { errno, message, at });
                    last
                }
                Reply::Status { extents, discard, last } => {
                    link.discard = discard as usize;
                    request.status =
                        within(request.op, self.agreed.blocks.min(), &extents).unwrap_or_default();
                    last
                }
                Reply::Hole { extent, last } => {
                    let (from, to) = place(extent);
                    fill(request, &mut work.pool, extent.len)[from..to].fill(0);
                    last
                }
                Reply::Data { extent, last } => {
                    let (from, to) = place(extent);
                    let buffer = fill(request, &mut work.pool, extent.len);
                    let n = link.inbox.take_into(&mut buffer[from..to]);
                    if from + n < to {
                        let from = from + n;
                        link.payload = Some(Payload { cookie, from, to, last });
                        return Ok(());
                    }
                    last
                }
            };
            if last {
                self.conclude(work, cookie);
            }
        }
    }

    /// The last piece of a reply has come.
    fn conclude(&mut self, work: &mut Work, cookie: u64) {
        let Some(key) = self.in_flight.remove(&cookie) else { return };
        let flush = self.flushes.remove(&cookie);
        let request = &mut work.requests[key];
        let outcome = match (request.error.take(), request.op, request.step) {
            (Some(failure), ..) => Err(failure),
            (_, Op::Read(extent), step) if step != Step::Transfer(extent.len) => {
                Err(Failure::new(Errno::Io, "the server sent less data than was asked for"))
            }
            (_, Op::BlockStatus { .. }, _) if request.status.is_empty() => {
                Err(Failure::new(Errno::Io, "the server told nothing of the range"))
            }
            _ => Ok(()),
        };
        if outcome.is_ok() {
            let (Op::Write { fua, .. } | Op::Trim { fua, .. } | Op::WriteZeroes { fua, .. }) =
                request.op
            else {
                self.flushed = self.flushed.max(flush.unwrap_or(0));
                return work.finished.push((key, outcome));
            };
            let durable = fua && self.agreed.flags.contains(TransmissionFlags::SEND_FUA);
            if fua && !durable && request.step != Step::Sync {
                // A server without FUA: flush before anything is acknowledged.
                request.step = Step::Sync;
                return self.enqueue(work, key);
            }
            self.written += u64::from(!fua);
            self.flushed = self.flushed.max(flush.unwrap_or(0));
        }
        work.finished.push((key, outcome));
    }

    fn lose_on_error(
        &mut self,
        now: Instant,
        work: &mut Work,
        outcome: Result<(), String>,
    ) -> Result<(), String> {
        // What the kernel returns of a connection that was lost before is no second loss.
        if outcome.is_err() && self.link.is_some() {
            self.lose(now, work);
            return outcome;
        }
        Ok(())
    }

    fn lose(&mut self, now: Instant, work: &mut Work) {
        let Some(mut link) = self.link.take() else { return };
        // Ends what the kernel still has of this connection. It may be closed already.
        let _ = rustix::net::shutdown(&*link.fd, rustix::net::Shutdown::Both);
        link.outbox.abandon(|cookie, buffer| self.give_back(work, cookie, buffer));
        if let Some(buffer) = link.inbox.buffer {
            work.pool.put(buffer);
        }
        self.deadline = Some(now + self.patience);
        self.owes_error |= self.written > self.flushed;
        self.flushed = self.written;
        self.flushes.clear();
        for key in self.in_flight.values() {
            work.requests[*key].delayed = true;
        }
    }

    /// Takes a new connection; `Err` if it leads to something else than before.
    pub(crate) fn reconnected(&mut self, fd: OwnedFd, agreed: Agreed) -> Result<(), OwnedFd> {
        if agreed != self.agreed {
            return Err(fd);
        }
        self.next = Some(fd);
        Ok(())
    }

    /// Goes over to the new connection as soon as nothing of the old one is under way.
    pub(crate) fn resume(&mut self, work: &mut Work) -> bool {
        if self.busy > 0 || self.next.is_none() {
            return false;
        }
        let Some(fd) = self.next.take() else { return false };
        self.link = Some(Link::new(fd, &mut work.pool));
        self.deadline = None;
        let owed = self.owes_error;
        for (cookie, key) in self.in_flight.clone() {
            let request = &mut work.requests[key];
            request.error = None;
            request.status.clear();
            if request.op != Op::Flush {
                request.step = Step::Transfer(0);
            } else if owed {
                // Every flush that was waiting covers the lost writes, not only the first.
                self.owes_error = true;
            }
            self.put(work, cookie, key);
        }
        true
    }

    /// When something is to be given up.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline.filter(|_| !self.in_flight.is_empty())
    }

    /// Fails what has waited for too long.
    pub(crate) fn expire(&mut self, now: Instant, work: &mut Work) {
        if self.link.is_none() && self.deadline.is_some_and(|d| now >= d) {
            let waiting = std::mem::take(&mut self.in_flight).into_values();
            work.finished.extend(waiting.map(|key| (key, Err(gone()))));
        }
    }

    /// Ends the connection.
    pub(crate) fn close(&mut self) {
        if let Some(link) = self.link.take() {
            disconnect(&link.fd);
            let _ = rustix::net::shutdown(&*link.fd, rustix::net::Shutdown::Both);
        }
    }
}

impl Link {
    fn new(fd: OwnedFd, pool: &mut Pool) -> Self {
        Self {
            fd: Rc::new(fd),
            inbox: Inbox::new(pool),
            outbox: Batch::default(),
            payload: None,
            discard: 0,
            receiving: false,
            sending: false,
        }
    }
}

/// The buffer of a read, into which `len` more bytes come.
fn fill<'a>(request: &'a mut Request, pool: &mut Pool, len: u32) -> &'a mut Buffer {
    let total = request.extent().len;
    if let Step::Transfer(done) = request.step {
        request.step = Step::Transfer(done.saturating_add(len));
    }
    request.buffer.get_or_insert_with(|| pool.take(total as usize))
}

/// What a server told of the range of a BLOCK_STATUS, as our client may hear it.
fn within(op: Op, align: u32, told: &[Descriptor]) -> Option<Vec<Descriptor>> {
    let Op::BlockStatus { extent, one } = op else { return None };
    let mut extents = Extents::new(extent, align, one);
    told.iter().for_each(|d| extents.push(u64::from(d.len), d.status));
    extents.finish().ok()
}

fn gone() -> Failure {
    Failure::new(Errno::Io, "the NBD server behind this disk does not answer")
}

fn lost_writes() -> Failure {
    let message = "the NBD server behind this disk was lost with writes that were not flushed";
    Failure::new(Errno::Io, message)
}
