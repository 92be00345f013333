//! One client's connection: bytes in, requests out; replies in, bytes out.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use parda_control::Instant;
use parda_nbd::extents::MAX_EXTENTS;
use parda_nbd::server::{Event, Handshake, HandshakeError, Session, Step, WrongRequestMagic};
use parda_nbd::{Cookie, Export, Op, wire};

use crate::backend::{Body, Failure, extent_of};
use crate::batch::{Batch, Inbox};
use crate::buffer::{Buffer, Pool};
use crate::config::Limits;
use crate::engine::losses::Witness;
use crate::ring::{Recv, Ring, Sending, Wire};
use crate::zeroes::all_zero;

/// What a listener offers: exports, and the disk that each of them is.
#[derive(Default)]
pub(crate) struct Offer {
    pub(crate) exports: Vec<Export>,
    pub(crate) disks: Vec<usize>,
}

/// Why a connection was given up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnError {
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error(transparent)]
    Request(#[from] WrongRequestMagic),
    #[error("the handshake was not done in time")]
    Slow,
    #[error("{0}")]
    Io(std::io::Error),
}

/// A request that has arrived complete.
pub(crate) struct Arrival {
    pub(crate) disk: usize,
    pub(crate) cookie: Cookie,
    pub(crate) op: Op,
    pub(crate) payload: Option<Buffer>,
}

enum Phase {
    Handshake {
        handshake: Handshake,
        until: Instant,
    },
    /// The listener may go, and offer something else: the connection keeps what it agreed on.
    Transmission {
        disk: usize,
        export: Rc<Export>,
        session: Session,
    },
}

/// Whether the connection still takes requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// No more requests; what is in flight is answered.
    Closing,
    /// Nothing can be received or sent any more.
    Dead,
}

/// The payload of a write on its way in.
struct Payload {
    cookie: Cookie,
    op: Op,
    /// Absent while the kernel has it.
    buffer: Option<Buffer>,
    filled: usize,
    len: usize,
}

/// What the connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    /// More requests.
    Requests,
    /// Its own replies to be taken: it has as much in flight as it may.
    Room,
}

/// Heads of replies that may wait before no more requests are taken, in bytes.
const MAX_WAITING_HEADS: usize = 64 << 10;

/// The shortest read that is answered as a hole if it is all zeroes, in bytes.
const MIN_HOLE: u32 = 512;

pub(crate) struct Conn {
    fd: Rc<OwnedFd>,
    pub(crate) listener: usize,
    phase: Phase,
    state: State,
    want: Want,
    inbox: Inbox,
    outbox: Batch,
    receiving: bool,
    /// The last receive left bytes in the socket.
    more: bool,
    sending: bool,
    payload: Option<Payload>,
    /// Bytes of a refused write's payload still to be thrown away.
    discard: usize,
    requests: usize,
    bytes: usize,
    /// What it knows of failed syncs of its disk; none before its first request.
    pub(crate) witness: Option<Witness>,
    /// It is on the volume's list of connections that have something to do.
    pub(crate) listed: bool,
}

impl Conn {
    pub(crate) fn new(fd: OwnedFd, listener: usize, until: Instant, pool: &mut Pool) -> Self {
        let mut outbox = Batch::default();
        let handshake = outbox.head(Handshake::start);
        Self {
            fd: Rc::new(fd),
            listener,
            phase: Phase::Handshake { handshake, until },
            state: State::Open,
            want: Want::Requests,
            inbox: Inbox::new(pool),
            outbox,
            receiving: false,
            more: false,
            sending: false,
            payload: None,
            discard: 0,
            requests: 0,
            bytes: 0,
            witness: None,
            listed: false,
        }
    }

    /// When the handshake must be done.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Handshake { until, .. } if self.state != State::Dead => Some(until),
            _ => None,
        }
    }

    /// The disk that the handshake ended on.
    pub(crate) fn disk(&self) -> Option<usize> {
        match self.phase {
            Phase::Handshake { .. } => None,
            Phase::Transmission { disk, .. } => Some(disk),
        }
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.state == State::Dead
    }

    /// Takes requests from what was received, as many as there are and the limits allow.
    pub(crate) fn take_requests(
        &mut self,
        offer: &Offer,
        limits: &Limits,
        pool: &mut Pool,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), ConnError> {
        while self.state == State::Open && !self.receiving {
            self.want = Want::Requests;
            if self.discard > 0 {
                let n = self.discard.min(self.inbox.bytes().len());
                self.inbox.take(n);
                self.discard -= n;
                if self.discard > 0 {
                    break;
                }
            }
            if !self.take_payload(arrivals) {
                break;
            }
            let full = self.requests >= limits.requests_per_connection
                || self.bytes >= limits.bytes_per_connection
                || self.outbox.head_bytes() >= MAX_WAITING_HEADS;
            if full {
                self.want = Want::Room;
                break;
            }
            let go_on = match &mut self.phase {
                Phase::Handshake { .. } => self.take_option(offer)?,
                Phase::Transmission { disk, export, session } => {
                    let (disk, session) = (*disk, *session);
                    let event = session.request(self.inbox.bytes(), export)?;
                    let some = event.is_some();
                    if let Some(event) = event {
                        self.inbox.take(wire::REQUEST_LEN);
                        self.take_event(disk, session, event, pool, arrivals);
                    }
                    some
                }
            };
            if !go_on {
                break;
            }
        }
        Ok(())
    }

    fn take_option(&mut self, offer: &Offer) -> Result<bool, ConnError> {
        let Phase::Handshake { handshake, .. } = &mut self.phase else { return Ok(true) };
        let input = self.inbox.bytes();
        match self.outbox.head(|out| handshake.advance(input, &offer.exports, out))? {
            Step::Incomplete => return Ok(false),
            Step::Taken(n) => self.inbox.take(n),
            Step::Transmission { taken, export, session } => {
                self.inbox.take(taken);
                let disk = offer.disks[export];
                let export = Rc::new(offer.exports[export].clone());
                self.phase = Phase::Transmission { disk, export, session };
            }
            Step::Closed => self.state = State::Closing,
        }
        Ok(true)
    }

    fn take_event(
        &mut self,
        disk: usize,
        session: Session,
        event: Event,
        pool: &mut Pool,
        arrivals: &mut Vec<Arrival>,
    ) {
        match event {
            Event::Disconnect => self.state = State::Closing,
            Event::Refused { cookie, refusal, discard } => {
                self.discard = discard as usize;
                let (errno, reason) = (refusal.errno, refusal.reason);
                self.outbox.head(|out| session.put_error(out, cookie, errno, reason));
            }
            Event::Request { cookie, op } => {
                self.requests += 1;
                self.bytes += room(op);
                if let Op::Write { extent, .. } = op {
                    let len = extent.len as usize;
                    let buffer = Some(pool.take(len));
                    self.payload = Some(Payload { cookie, op, buffer, filled: 0, len });
                } else {
                    arrivals.push(Arrival { disk, cookie, op, payload: None });
                }
            }
        }
    }

    /// Moves what was received of a payload; `false` if some of it is still to come.
    fn take_payload(&mut self, arrivals: &mut Vec<Arrival>) -> bool {
        let Phase::Transmission { disk, .. } = self.phase else { return true };
        let Some(payload) = &mut self.payload else { return true };
        if let Some(buffer) = &mut payload.buffer {
            payload.filled += self.inbox.take_into(&mut buffer[payload.filled..payload.len]);
        }
        if payload.filled < payload.len {
            return false;
        }
        if let Some(Payload { cookie, op, buffer, .. }) = self.payload.take() {
            arrivals.push(Arrival { disk, cookie, op, payload: buffer });
        }
        true
    }

    /// Queues the reply to a request that the volume is done with.
    pub(crate) fn reply(
        &mut self,
        pool: &mut Pool,
        cookie: Cookie,
        op: Op,
        outcome: Result<Body, Failure>,
    ) {
        self.requests -= 1;
        let Phase::Transmission { session, .. } = self.phase else { return };
        if self.state == State::Dead {
            if let Ok(Body::Data(buffer)) = outcome {
                pool.put(buffer);
            }
            self.bytes -= room(op);
            return;
        }
        match (op, outcome) {
            (Op::Read(extent), Ok(Body::Data(buffer)))
                if session.can_put_hole()
                    && extent.len >= MIN_HOLE
                    && all_zero(&buffer[..extent.len as usize]) =>
            {
                self.outbox.head(|out| session.put_hole(out, cookie, extent));
                pool.put(buffer);
            }
            (Op::Read(extent), Ok(Body::Data(buffer))) => {
                self.outbox.head(|out| session.put_read(out, cookie, extent));
                // Its room is free again when it was sent.
                let len = extent.len as usize;
                self.outbox.data(buffer, len, len as u64);
                return;
            }
            (_, Ok(Body::Status(extents))) => {
                self.outbox.head(|out| session.put_status(out, cookie, &extents));
            }
            (_, Ok(_)) => self.outbox.head(|out| session.put_done(out, cookie)),
            (_, Err(failure)) => {
                let Failure { errno, message, at } = failure;
                self.outbox.head(|out| session.put_error_at(out, cookie, errno, &message, at));
            }
        }
        self.bytes -= room(op);
    }

    /// Starts what the socket has to do: sending what waits, receiving if there is room.
    pub(crate) fn pump<T>(&mut self, ring: &mut Ring<T>, tag: impl Fn(Wire) -> T) {
        if !self.sending && !self.outbox.is_empty() && self.state != State::Dead {
            self.sending = true;
            ring.send(&self.fd, std::mem::take(&mut self.outbox), tag(Wire::Sent));
        }
        if self.receiving || self.state != State::Open || self.want == Want::Room {
            return;
        }
        if let Some(payload) = &mut self.payload {
            if let Some(buffer) = payload.buffer.take() {
                self.receiving = true;
                let rest = payload.filled..payload.len;
                ring.recv(&self.fd, buffer, rest, Recv::All, tag(Wire::Payload));
            }
        } else if let Some((buffer, free)) = self.inbox.lend() {
            self.receiving = true;
            let how = if self.more { Recv::Now } else { Recv::Later };
            ring.recv(&self.fd, buffer, free, how, tag(Wire::Inbox));
        }
    }

    /// Takes the result of a receive.
    pub(crate) fn received(
        &mut self,
        wire: Wire,
        buffer: Buffer,
        result: Result<usize, i32>,
        more: bool,
    ) -> Result<(), ConnError> {
        self.receiving = false;
        self.more = more;
        let n = result.unwrap_or(0);
        match (wire, &mut self.payload) {
            (Wire::Payload, Some(payload)) => {
                payload.buffer = Some(buffer);
                payload.filled += n;
            }
            _ => self.inbox.restore(buffer, n),
        }
        match result {
            // The client is gone, or at least will not ask for more.
            Ok(0) if self.state == State::Open => {
                self.state = State::Closing;
                Ok(())
            }
            Ok(_) | Err(libc::EINTR | libc::EAGAIN) => Ok(()),
            Err(errno) => Err(ConnError::Io(std::io::Error::from_raw_os_error(errno))),
        }
    }

    /// Takes the result of a send and goes on with what it left.
    pub(crate) fn sent<T>(
        &mut self,
        ring: &mut Ring<T>,
        pool: &mut Pool,
        mut sending: Box<Sending>,
        result: Result<usize, i32>,
        tag: T,
    ) -> Result<(), ConnError> {
        let outcome = match result {
            Ok(n) => {
                let bytes = &mut self.bytes;
                sending.batch.sent(n, |len, buffer| {
                    *bytes -= len as usize;
                    pool.put(buffer);
                });
                Ok(())
            }
            Err(libc::EINTR | libc::EAGAIN) => Ok(()),
            Err(errno) => Err(ConnError::Io(std::io::Error::from_raw_os_error(errno))),
        };
        if outcome.is_ok() && !sending.batch.is_empty() && self.state != State::Dead {
            ring.send_rest(&self.fd, sending, tag);
            return Ok(());
        }
        self.sending = false;
        self.give_up(&mut sending.batch, pool);
        if self.outbox.is_empty() {
            // Keeps its memory.
            self.outbox = sending.batch;
        }
        outcome
    }

    fn give_up(&mut self, batch: &mut Batch, pool: &mut Pool) {
        if !batch.is_empty() {
            batch.abandon(|len, buffer| {
                self.bytes -= len as usize;
                pool.put(buffer);
            });
        }
    }

    /// Takes no more requests; what is in flight is answered.
    pub(crate) fn finish(&mut self) {
        if self.state == State::Open {
            self.state = State::Closing;
        }
    }

    /// Whether all is answered and sent on a connection that takes no more requests.
    pub(crate) fn is_finished(&self) -> bool {
        self.state == State::Closing
            && self.requests == usize::from(self.payload.is_some())
            && self.outbox.is_empty()
            && !self.sending
    }

    /// Ends the connection at once. What the kernel has of it comes back soon.
    pub(crate) fn kill(&mut self, pool: &mut Pool) {
        if self.state == State::Dead {
            return;
        }
        self.state = State::Dead;
        // It may be gone already, which is as well.
        let _ = rustix::net::shutdown(&*self.fd, rustix::net::Shutdown::Both);
        let mut outbox = std::mem::take(&mut self.outbox);
        self.give_up(&mut outbox, pool);
    }

    /// Whether nobody has anything of this connection any more, so that it may be dropped.
    pub(crate) fn is_idle(&self) -> bool {
        let unfinished = usize::from(self.payload.is_some());
        self.state == State::Dead && !self.receiving && !self.sending && self.requests == unfinished
    }

    /// Gives its buffers back.
    pub(crate) fn dismantle(self, pool: &mut Pool) {
        let payload = self.payload.and_then(|p| p.buffer);
        self.inbox.buffer.into_iter().chain(payload).for_each(|buffer| pool.put(buffer));
    }
}

/// The memory that a request takes while it is in flight, in bytes.
fn room(op: Op) -> usize {
    match op {
        Op::Read(_) | Op::Write { .. } => extent_of(op).len as usize,
        // What its reply may take, in bytes.
        Op::BlockStatus { .. } => 8 * MAX_EXTENTS,
        Op::Flush | Op::Trim { .. } | Op::WriteZeroes { .. } | Op::Cache(_) => 0,
    }
}
