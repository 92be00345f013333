//! One connection to an NBD server: what the kernel has of it, and what is in flight there.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parda_control::{Instant, Span};
use parda_dial::Connected;
use parda_disk::status::{Descriptor, Extents};
use parda_disk::{Extent, Failure, Op};
use parda_nbd::answer::ReplyParts;
use parda_nbd::client::{self, Expected, Reply};
use parda_nbd::{Cookie, Framing};
use parda_tls::CloseReason;
use rustix::net::Shutdown;

use super::ledger::{Ledger, Mark};
use crate::backend::connect::disconnect;
use crate::backend::{Request, Work};
use crate::batch::{self, Batch, Data, Inbox};
use crate::buffer::{Buffer, Pool};
use crate::reactor::Tag;
use crate::ring::{Recv, Sending, Wire};
use parda_disk::Errno;

/// Data that the kernel receives straight into a read's buffer.
struct Payload {
    cookie: u64,
    from: usize,
    to: usize,
    last: bool,
}

/// Why no further reply of a connection counts.
pub(super) enum Stop {
    /// The stream cannot be followed: why, and the request whose reply that was.
    Broken(String, Option<usize>),
    /// The server answers ESHUTDOWN, and does nothing of what it has not answered yet.
    ShuttingDown,
}

/// Connection to an NBD server, after its handshake.
pub(super) struct UpstreamLink {
    fd: Arc<OwnedFd>,
    tls_end: CloseReason,
    framing: Framing,
    /// The server's number of `base:allocation` on this connection.
    allocation: Option<u32>,
    inbox: Inbox,
    outbox: Batch,
    payload: Option<Payload>,
    /// Bytes to be thrown away before the next reply.
    discard: usize,
    receiving: bool,
    sending: bool,
    /// When it was opened.
    pub(super) since: Instant,
    /// The server has answered a request on this connection.
    pub(super) answered: bool,
    /// Time limit of a request.
    patience: Span,
    /// Time at which draining ends. Set when the connection is given up because the server is silent or
    /// shuts down. Until then nothing is sent, and received bytes are discarded. The end of the connection
    /// shows when the server has let go of its requests.
    pub(super) drained_by: Option<Instant>,
    /// Bytes that were received.
    received: u64,
    /// A deadline has passed, and is judged when so many bytes were received: those that had come by then.
    judged_at: Option<u64>,
}

/// A request that was sent.
pub(super) struct Asked {
    pub(super) key: usize,
    sent: Instant,
    /// Writes that it covers, if it is a flush.
    pub(super) flush: Option<Mark>,
    answer: ReplyParts,
}

/// A request whose last piece of reply has come.
pub(super) struct Answered {
    pub(super) key: usize,
    pub(super) flush: Option<Mark>,
    pub(super) outcome: Result<(), Failure>,
}

/// The place of one connection, which is open, given up or looked for.
#[derive(Default)]
pub(super) struct Lane {
    pub(super) link: Option<UpstreamLink>,
    /// A new connection that waits until the kernel returns operations of the old one, which still
    /// use buffers.
    pub(super) next: Option<Connected>,
    /// Operations of the ring that use the socket.
    busy: usize,
    /// Requests by cookie, in the order in which they were sent. Requests of a lost connection stay
    /// until none of its operations is under way.
    pub(super) in_flight: BTreeMap<u64, Asked>,
    pub(super) ledger: Ledger,
    /// Connections since the last that answered anything.
    pub(super) failures: u32,
}

/// A request on its way to a connection.
pub(super) struct Sent {
    pub(super) cookie: u64,
    pub(super) key: usize,
    pub(super) op: Op,
}

impl Lane {
    /// Whether requests can be sent.
    pub(super) fn is_up(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.drained_by.is_none())
    }

    /// Whether the kernel has nothing of it.
    pub(super) fn is_quiet(&self) -> bool {
        self.busy == 0
    }

    /// Puts a connection in the place of one that was lost.
    pub(super) fn open(
        &mut self,
        now: Instant,
        connected: Connected,
        patience: Span,
        pool: &mut Pool,
    ) {
        assert!(self.link.is_none() && self.is_quiet(), "the kernel has nothing of the old one");
        assert!(self.in_flight.is_empty(), "what was in flight on the old one was sent again");
        let Connected { socket: fd, agreed, tls_end } = connected;
        self.ledger = Ledger::default();
        self.link = Some(UpstreamLink {
            fd: Arc::new(fd),
            tls_end,
            framing: agreed.framing,
            allocation: agreed.allocation,
            inbox: Inbox::new(pool, batch::LARGE),
            outbox: Batch::default(),
            payload: None,
            discard: 0,
            receiving: false,
            sending: false,
            since: now,
            answered: false,
            patience,
            drained_by: None,
            received: 0,
            judged_at: None,
        });
    }

    /// Puts a request into the outbox.
    pub(super) fn send(&mut self, now: Instant, work: &mut Work, sent: Sent) {
        let Sent { cookie, key, op } = sent;
        let Some(link) = self.link.as_mut().filter(|link| link.drained_by.is_none()) else {
            unreachable!("requests are sent on open connections only");
        };
        let expected = match (op, link.allocation) {
            (Op::Read(extent), _) => Expected::Data(extent),
            (Op::BlockStatus { extent, .. }, Some(context)) => Expected::Status { extent, context },
            _ => Expected::Outcome,
        };
        link.outbox.head(|out| client::put_request_in(link.framing, out, Cookie(cookie), op));
        if let (Op::Write { extent, .. }, Some(buffer)) = (op, work.requests[key].buffer.take()) {
            link.outbox.data(Data { buffer, len: extent.len as usize, owner: cookie });
        }
        let flush = (op == Op::Flush).then(|| self.ledger.mark());
        let asked = Asked { key, sent: now, flush, answer: ReplyParts::new(expected) };
        let before = self.in_flight.insert(cookie, asked);
        assert!(before.is_none(), "no cookie is used twice");
    }

    /// Starts what the connection has to do: sending what waits, receiving what comes.
    pub(super) fn pump(&mut self, work: &mut Work, tag: impl Fn(Wire) -> Tag) {
        let Some(link) = &mut self.link else { return };
        if !link.sending && !link.outbox.is_empty() {
            link.sending = true;
            self.busy += 1;
            work.io.ring.send(&link.fd, std::mem::take(&mut link.outbox), tag(Wire::Sent));
        }
        if link.receiving {
            return;
        }
        if let Some(Payload { cookie, from, to, .. }) = link.payload {
            let key = self.in_flight.get(&cookie).map(|asked| asked.key);
            let request = key.and_then(|key| work.requests.get_mut(key));
            let buffer = request.and_then(|r| r.buffer.take());
            let buffer = buffer.unwrap_or_else(|| work.io.pool.take(to));
            work.io.ring.recv(&link.fd, buffer, from..to, Recv::All, tag(Wire::Payload));
        } else if let Some((buffer, free)) = link.inbox.lend() {
            work.io.ring.recv(&link.fd, buffer, free, Recv::Later, tag(Wire::Inbox));
        } else {
            return;
        }
        link.receiving = true;
        self.busy += 1;
        // A connection is opened when the operations of the one before it have come back.
        assert_eq!(self.busy, 1 + usize::from(link.sending));
    }

    /// Takes the result of a receive. `Err` if the connection is at its end.
    pub(super) fn received(
        &mut self,
        work: &mut Work,
        wire: Wire,
        buffer: Buffer,
        result: Result<usize, i32>,
    ) -> Result<(), String> {
        assert!(self.busy > 0, "each operation comes back once");
        self.busy -= 1;
        let payload = self.link.as_mut().and_then(|link| {
            link.receiving = false;
            link.received += *result.as_ref().unwrap_or(&0) as u64;
            link.payload.take()
        });
        let n = result.unwrap_or(0);
        match (wire, &mut self.link, payload) {
            (Wire::Payload, link, Some(mut payload)) => {
                payload.from += n;
                let cookie = payload.cookie;
                if let Some(link) = link.as_mut() {
                    link.payload = Some(payload);
                }
                self.give_back(work, cookie, buffer);
            }
            (Wire::Inbox, Some(link), payload) => {
                link.payload = payload;
                link.inbox.restore(buffer, n);
            }
            _ => work.io.pool.put(buffer),
        }
        match result {
            Ok(0) => {
                let reason = self.link.as_ref().and_then(|link| link.tls_end.reason());
                Err(reason.unwrap_or("it closed the connection").to_owned())
            }
            Ok(_) | Err(libc::EINTR | libc::EAGAIN) => Ok(()),
            Err(errno) => Err(std::io::Error::from_raw_os_error(errno).to_string()),
        }
    }

    /// Takes the result of a send and goes on with what it left. `Err` if the connection is at its
    /// end.
    pub(super) fn sent(
        &mut self,
        work: &mut Work,
        mut sending: Sending,
        result: Result<usize, i32>,
        tag: Tag,
    ) -> Result<(), String> {
        let mut returned = Vec::new();
        let outcome = match result {
            Ok(n) => {
                sending.batch.sent(n, |data| returned.push(data));
                Ok(())
            }
            Err(libc::EINTR | libc::EAGAIN) => Ok(()),
            Err(errno) => Err(std::io::Error::from_raw_os_error(errno).to_string()),
        };
        let up = self.is_up();
        match self.link.as_mut().filter(|_| outcome.is_ok() && up) {
            Some(link) if !sending.batch.is_empty() => {
                work.io.ring.send_rest(&link.fd, sending, tag);
            }
            _ => {
                assert!(self.busy > 0, "each operation comes back once");
                self.busy -= 1;
                if let Some(link) = &mut self.link {
                    link.sending = false;
                }
                sending.batch.abandon(|data| returned.push(data));
            }
        }
        for Data { buffer, owner, .. } in returned {
            self.give_back(work, owner, buffer);
        }
        // Nothing is sent on a connection that was given up; its end shows when it is received.
        if up { outcome } else { Ok(()) }
    }

    /// Gives a buffer back to its request, which may need it again, or to the pool.
    fn give_back(&mut self, work: &mut Work, cookie: u64, buffer: Buffer) {
        let key = self.in_flight.get(&cookie).map(|asked| asked.key);
        match key.and_then(|key| work.requests.get_mut(key)) {
            Some(request) if request.buffer.is_none() => request.buffer = Some(buffer),
            _ => work.io.pool.put(buffer),
        }
    }

    /// Takes the next request that is answered from what was received. The disk begins at `base` of
    /// the server's export, whose smallest block is `min`.
    pub(super) fn next_answer(
        &mut self,
        work: &mut Work,
        base: u64,
        min: u32,
    ) -> Result<Option<Answered>, Stop> {
        loop {
            let Some((cookie, last)) = self.next_part(work, base, min)? else { return Ok(None) };
            if let Some(asked) = last.then(|| self.in_flight.remove(&cookie)).flatten() {
                self.link.iter_mut().for_each(|link| link.answered = true);
                self.failures = 0;
                let Asked { key, flush, answer, .. } = asked;
                let outcome = answer.outcome().map_err(|failed| {
                    let at = failed.at.and_then(|at| at.checked_sub(base));
                    Failure { at, ..failed }
                });
                return Ok(Some(Answered { key, flush, outcome }));
            }
        }
    }

    /// Takes the next part of a reply, a head with its payload, from the received bytes. Returns its cookie, and whether it ends the reply.
    /// `None`: more has to be received first.
    fn next_part(
        &mut self,
        work: &mut Work,
        base: u64,
        min: u32,
    ) -> Result<Option<(u64, bool)>, Stop> {
        let Some(link) = &mut self.link else { return Ok(None) };
        if link.receiving {
            return Ok(None);
        }
        if link.drained_by.is_some() {
            link.inbox.take(usize::MAX);
            link.payload = None;
            return Ok(None);
        }
        if let Some(payload) = &mut link.payload {
            if payload.from < payload.to {
                return Ok(None);
            }
            let Payload { cookie, last, .. } = *payload;
            link.payload = None;
            return Ok(Some((cookie, last)));
        }
        let discarded = link.discard.min(link.inbox.bytes().len());
        link.inbox.take(discarded);
        link.discard -= discarded;
        if link.discard > 0 {
            return Ok(None);
        }
        let named = std::cell::Cell::new(None);
        let in_flight = &self.in_flight;
        let expected = |cookie: Cookie| {
            let asked = in_flight.get(&cookie.0)?;
            named.set(Some(cookie.0));
            Some(asked.answer.expected())
        };
        let head = match client::reply(link.inbox.bytes(), link.framing, expected) {
            Ok(Some(head)) => head,
            Ok(None) => return Ok(None),
            Err(error) => return Err(self.blame(error, named.get())),
        };
        link.inbox.take(head.taken);
        let cookie = head.cookie.0;
        // A reply that nobody waits for is passed over.
        let passed_over = Ok(Some((cookie, false)));
        let Some(asked) = self.in_flight.get_mut(&cookie) else { return passed_over };
        if let Err(error) = asked.answer.take(&head.reply) {
            return Err(self.blame(error, Some(cookie)));
        }
        let Some(request) = work.requests.get_mut(asked.key) else { return passed_over };
        let start = request.extent().offset + base;
        let within_buffer = |extent: Extent| {
            let from = (extent.offset - start) as usize;
            from..from + extent.len as usize
        };
        let last = match head.reply {
            Reply::Done => true,
            Reply::Error { errno: Errno::Shutdown, .. } => return Err(Stop::ShuttingDown),
            Reply::Error { last, .. } => last,
            Reply::Status { extents, discard, last } => {
                link.discard = discard as usize;
                request.status = within(request.op, min, &extents).unwrap_or_default();
                last
            }
            Reply::Hole { extent, last } => {
                buffer_of(request, &mut work.io.pool).zero(within_buffer(extent));
                last
            }
            Reply::Data { extent, last } => {
                let Range { start: from, end: to } = within_buffer(extent);
                let buffer = buffer_of(request, &mut work.io.pool);
                let n = link.inbox.take_into(buffer, from..to);
                if from + n < to {
                    link.payload = Some(Payload { cookie, from: from + n, to, last });
                    return Ok(None);
                }
                last
            }
        };
        Ok(Some((cookie, last)))
    }

    /// The request whose reply broke the protocol is answered by that.
    fn blame(&mut self, error: client::ReplyError, cookie: Option<u64>) -> Stop {
        let asked = cookie.and_then(|cookie| self.in_flight.remove(&cookie));
        Stop::Broken(error.to_string(), asked.map(|asked| asked.key))
    }

    /// When the oldest request has waited for too long, or the wait for the end is over.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let link = self.link.as_ref()?;
        let oldest = self.in_flight.first_key_value().map(|(_, asked)| asked.sent + link.patience);
        link.drained_by.or(oldest)
    }

    /// Whether a deadline has passed, and nothing that had come by then is left to be read. The first call is never the one that judges:
    /// what the kernel has received may not have been taken yet.
    pub(super) fn is_late(&mut self, now: Instant) -> bool {
        let passed = self.deadline().is_some_and(|at| now >= at);
        let Some(link) = &mut self.link else { return false };
        if !passed {
            link.judged_at = None;
            return false;
        }
        let unread = rustix::io::ioctl_fionread(&*link.fd).unwrap_or(0);
        match link.judged_at {
            Some(all) => unread == 0 || link.received >= all,
            None => {
                link.judged_at = Some(link.received + unread);
                false
            }
        }
    }

    /// Whether something was sent before `then` and nothing has answered it.
    pub(super) fn waits_since(&self, then: Instant) -> bool {
        self.in_flight.first_key_value().is_some_and(|(_, asked)| asked.sent <= then)
    }

    /// Sends nothing more, and receives only to see the end. By then the server has done with old
    /// writes, so none can overtake a newer one.
    pub(super) fn drain(&mut self, work: &mut Work, until: Instant) {
        let Some(link) = &mut self.link else { return };
        link.drained_by = Some(until);
        // An error means that the socket is closed already.
        let _ = rustix::net::shutdown(&*link.fd, Shutdown::Write);
        let mut outbox = std::mem::take(&mut link.outbox);
        outbox.abandon(|data| self.give_back(work, data.owner, data.buffer));
    }

    /// Ends the connection. Operations that the kernel has of it come back soon.
    pub(super) fn cut(&mut self, work: &mut Work) {
        let Some(mut link) = self.link.take() else { return };
        // An error means that the socket is closed already.
        let _ = rustix::net::shutdown(&*link.fd, Shutdown::Both);
        link.outbox.abandon(|data| self.give_back(work, data.owner, data.buffer));
        if let Some(buffer) = link.inbox.buffer {
            work.io.pool.put(buffer);
        }
    }

    /// Says goodbye and ends the connection.
    pub(super) fn close(&mut self) {
        if let Some(link) = self.link.take() {
            disconnect(&link.fd, link.framing);
            let _ = rustix::net::shutdown(&*link.fd, Shutdown::Both);
        }
    }
}

/// The buffer of a read.
fn buffer_of<'a>(request: &'a mut Request, pool: &mut Pool) -> &'a mut Buffer {
    let len = request.extent().len as usize;
    request.buffer.get_or_insert_with(|| pool.take(len))
}

/// Answer of a server to a BLOCK_STATUS, as our client may hear it.
fn within(op: Op, align: u32, told: &[Descriptor]) -> Option<Vec<Descriptor>> {
    let Op::BlockStatus { extent, one } = op else { return None };
    let mut extents = Extents::new(extent, align, one);
    told.iter().for_each(|d| extents.push(d.len, d.status));
    extents.finish().ok()
}

/// The failure of a request whose reply broke the protocol.
pub(super) fn broken(error: &str) -> Failure {
    Failure::new(Errno::Io, format!("the NBD server behind this disk broke the protocol: {error}"))
}
