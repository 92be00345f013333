//! One client's connection: bytes in, requests out; replies in, bytes out.

mod charge;
mod error;

use std::os::fd::OwnedFd;
use std::rc::Rc;

use parda_control::{Instant, Span};
use parda_nbd::server::{Event, Handshake, ReplyTo, Security, Session, Step};
use parda_nbd::{Cookie, Export, Op};

use self::charge::{STATUS_REPLY, cost, is_late, room};
pub(crate) use self::error::ConnError;
use crate::backend::{Body, Failure, Work};
use crate::batch::{self, Batch, Inbox};
use crate::budget;
use crate::buffer::{Buffer, PIECE, allocated};
use crate::config::Limits;
use crate::engine::losses::Witness;
use crate::now;
use crate::progress::{Progress, Verdict};
use crate::ring::{Recv, Ring, Sending, Wire};
use crate::tls::{self, ListenerTls};
use crate::zeroes::all_zero;

/// What a listener offers: exports, and the disk that each of them is.
#[derive(Default)]
pub(crate) struct Offer {
    pub(crate) exports: Vec<Export>,
    pub(crate) disks: Vec<usize>,
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
    /// What has room so far. Absent while the kernel has it.
    buffer: Option<Buffer>,
    /// Memory that was granted and is not in the buffer yet.
    granted: usize,
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
    /// Memory that it has asked for.
    Memory,
    /// Its next turn: it has had its part of this one.
    Turn,
}

/// Heads of replies that may wait before no more requests are taken, in bytes.
const MAX_WAITING_HEADS: usize = 16 << 10;

/// The longest payload that is given memory before any of it has come, in bytes.
const SMALL_PAYLOAD: usize = 64 << 10;

/// Requests that a connection may bring in one turn.
const REQUESTS_PER_TURN: usize = 128;

/// Bytes of requests that a connection may bring in one turn, rounded up to a whole request.
const BYTES_PER_TURN: usize = 4 << 20;

/// How the inbox was used since it was last looked at.
#[derive(Clone, Copy, Debug, Default)]
struct InboxUse {
    /// The most that one receive brought.
    most: usize,
    /// It is to be replaced by a small one.
    shrink: bool,
}

/// The shortest read that is answered as a hole if it is all zeroes, in bytes.
const MIN_HOLE: u64 = 512;

pub(crate) struct Conn {
    key: usize,
    fd: Rc<OwnedFd>,
    tls: Option<ListenerTls>,
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
    /// A request that waits for memory.
    pending: Option<(Cookie, Op)>,
    /// What was asked for and not granted yet, in bytes.
    asked: usize,
    /// Bytes of a refused write's payload still to be thrown away.
    discard: usize,
    requests: usize,
    /// Those of them that ask for block status.
    status_requests: usize,
    progress: Progress,
    /// Told apart from others that had its place.
    pub(crate) serial: u64,
    /// It has chosen an export, and the volume knows.
    pub(crate) chosen: bool,
    /// A timer will look at it.
    pub(crate) timed: bool,
    /// Receives filled the inbox, or hardly used it.
    inbox_use: InboxUse,
    /// What it knows of failed syncs of its disk; none before its first request.
    pub(crate) witness: Option<Witness>,
    /// It is on the volume's list of connections that have something to do.
    pub(crate) listed: bool,
}

impl Conn {
    pub(crate) fn new(
        key: usize,
        fd: OwnedFd,
        listener: usize,
        until: Instant,
        tls: Option<ListenerTls>,
        work: &mut Work,
    ) -> Self {
        let mut outbox = Batch::default();
        let security = tls.as_ref().map_or(Security::Plain, ListenerTls::security);
        let handshake = outbox.head(|out| Handshake::start_with(security, out));
        Self {
            key,
            fd: Rc::new(fd),
            tls,
            listener,
            phase: Phase::Handshake { handshake, until },
            state: State::Open,
            want: Want::Requests,
            inbox: Inbox::new(&mut work.pool, batch::SMALL),
            outbox,
            receiving: false,
            more: false,
            sending: false,
            payload: None,
            pending: None,
            asked: 0,
            discard: 0,
            requests: 0,
            status_requests: 0,
            progress: Progress::default(),
            serial: 0,
            chosen: false,
            timed: false,
            inbox_use: InboxUse::default(),
            witness: None,
            listed: false,
        }
    }

    /// Whether the connection has overstayed: in its handshake, or by making no progress.
    pub(crate) fn look(&mut self, now: Instant, patience: Span) -> Result<Verdict, ConnError> {
        match self.phase {
            _ if self.state == State::Dead => Ok(Verdict::Settled),
            Phase::Handshake { until, .. } if now >= until => Err(ConnError::Slow),
            Phase::Handshake { until, .. } => Ok(Verdict::LookAgain(until)),
            Phase::Transmission { .. } => match self.progress.judge(now, patience) {
                Verdict::Stalled => Err(ConnError::Stalled),
                verdict => Ok(verdict),
            },
        }
    }

    /// What it has moved, and whether its client owes more.
    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The disk that the handshake ended on.
    pub(crate) fn disk(&self) -> Option<usize> {
        match self.phase {
            Phase::Handshake { .. } => None,
            Phase::Transmission { disk, .. } => Some(disk),
        }
    }

    /// Takes note that its export has become smaller, if it has.
    pub(crate) fn shrink(&mut self, size: u64) {
        if let Phase::Transmission { export, .. } = &mut self.phase
            && size < export.size
        {
            Rc::make_mut(export).size = size;
        }
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.state == State::Dead
    }

    /// The memory that it waited for is there.
    pub(crate) fn granted(&mut self) {
        if self.want == Want::Memory {
            self.want = Want::Requests;
            let asked = std::mem::take(&mut self.asked);
            if let Some(payload) = &mut self.payload {
                payload.granted += asked;
            }
        }
    }

    /// Takes requests from what was received, as many as there are and the limits allow.
    pub(crate) fn take_requests(
        &mut self,
        offer: &Offer,
        limits: &Limits,
        work: &mut Work,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), ConnError> {
        let (mut requests, mut bytes) = (0, 0);
        while self.state == State::Open && !self.receiving && self.want != Want::Memory {
            self.want = Want::Requests;
            if self.discard > 0 {
                let n = self.discard.min(self.inbox.bytes().len());
                self.inbox.take(n);
                self.discard -= n;
                if self.discard > 0 {
                    break;
                }
            }
            if !self.take_payload(work, arrivals) {
                break;
            }
            if let Some((cookie, op)) = self.pending.take() {
                self.begin(cookie, op, arrivals);
                continue;
            }
            let full = self.requests >= limits.requests_per_connection
                || work.budget.held(self.key) >= limits.memory_per_connection
                || self.reply_heads() >= MAX_WAITING_HEADS;
            if full {
                self.want = Want::Room;
                break;
            }
            if requests >= REQUESTS_PER_TURN || bytes >= BYTES_PER_TURN {
                self.want = Want::Turn;
                break;
            }
            let go_on = match &mut self.phase {
                Phase::Handshake { .. } => self.take_option(offer, work)?,
                Phase::Transmission { export, session, .. } => {
                    let session = *session;
                    let event = session.request(self.inbox.bytes(), export)?;
                    let some = event.is_some();
                    if let Some(event) = event {
                        self.inbox.take(session.request_len());
                        requests += 1;
                        bytes += self.take_event(session, event, work);
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

    /// Whether it has requests at hand that were left for the next turn.
    pub(crate) fn wants_turn(&self) -> bool {
        self.want == Want::Turn
    }

    fn take_option(&mut self, offer: &Offer, work: &mut Work) -> Result<bool, ConnError> {
        let Phase::Handshake { handshake, .. } = &mut self.phase else { return Ok(true) };
        if handshake.starts_tls() {
            self.begin_tls(work)?;
            return Ok(false);
        }
        let input = self.inbox.bytes();
        match self.outbox.head(|out| handshake.advance(input, &offer.exports, out))? {
            Step::Incomplete => return Ok(false),
            Step::Taken(n) => self.inbox.take(n),
            Step::Transmission { taken, export, session } => {
                self.inbox.take(taken);
                let disk = offer.disks[export];
                let export = Rc::new(offer.exports[export].clone());
                self.phase = Phase::Transmission { disk, export, session };
                // The volume may have too many connections to this export.
                self.want = Want::Turn;
                return Ok(false);
            }
            Step::Closed => self.state = State::Closing,
        }
        Ok(true)
    }

    /// Goes over to TLS as soon as the client was told to begin. Until then nothing is received:
    /// what the client sends to begin with is for the relay.
    fn begin_tls(&mut self, work: &mut Work) -> Result<(), ConnError> {
        let Phase::Handshake { handshake, .. } = &mut self.phase else { return Ok(()) };
        if !self.inbox.bytes().is_empty() {
            return Err(ConnError::Injected);
        }
        self.want = Want::Room;
        let Some(tls) = &self.tls else { return Ok(()) };
        if !self.sending && self.outbox.is_empty() {
            let memory = work.budget.charge(tls::RELAY).ok_or(ConnError::NoMemory)?;
            let ring = self.fd.try_clone().and_then(|fd| tls.begin(fd, memory));
            let ring = ring.map_err(ConnError::Tls)?;
            self.fd = Rc::new(ring);
            handshake.secured();
            self.want = Want::Requests;
        }
        Ok(())
    }

    /// Takes an event; returns the bytes of data that a request is about.
    fn take_event(&mut self, session: Session, event: Event, work: &mut Work) -> usize {
        match event {
            Event::Disconnect => self.state = State::Closing,
            Event::Refused { to, refusal, discard } => {
                self.discard = discard as usize;
                let (errno, reason) = (refusal.errno, refusal.reason);
                self.outbox.head(|out| session.put_error(out, to, errno, reason));
            }
            Event::Request { cookie, op } => {
                self.pending = Some((cookie, op));
                let whole = cost(op);
                let now = if is_late(op) { budget::REQUEST } else { whole };
                self.ask(work, now, now == whole);
                return room(op);
            }
        }
        0
    }

    /// Asks for memory of a request; `false` if it has to wait.
    fn ask(&mut self, work: &mut Work, bytes: usize, last: bool) -> bool {
        let granted = work.budget.ask(self.key, bytes, last);
        if !granted {
            self.want = Want::Memory;
            self.asked = bytes;
        }
        granted
    }

    /// Heads of replies that wait, with the block status that is still to come, in bytes. What
    /// that takes is no memory of a request any more once it waits to be sent.
    fn reply_heads(&self) -> usize {
        self.outbox.head_bytes() + self.status_requests * STATUS_REPLY
    }

    /// Begins a request whose memory is there.
    fn begin(&mut self, cookie: Cookie, op: Op, arrivals: &mut Vec<Arrival>) {
        let Phase::Transmission { disk, .. } = self.phase else { return };
        self.asked = 0;
        self.requests += 1;
        self.status_requests += usize::from(matches!(op, Op::BlockStatus { .. }));
        if let Op::Write { extent, .. } = op {
            let len = extent.len as usize;
            let granted = if is_late(op) { 0 } else { allocated(len) };
            let buffer = Some(Buffer::default());
            self.payload = Some(Payload { cookie, op, buffer, granted, filled: 0, len });
        } else {
            arrivals.push(Arrival { disk, cookie, op, payload: None });
        }
    }

    /// Moves what was received of a payload; `false` if some of it is still to come.
    fn take_payload(&mut self, work: &mut Work, arrivals: &mut Vec<Arrival>) -> bool {
        let Phase::Transmission { disk, .. } = self.phase else { return true };
        loop {
            let Some(payload) = &mut self.payload else { return true };
            let Payload { buffer, filled, len, .. } = payload;
            let Some(buffer) = buffer else { return false };
            let room = buffer.len().min(*len);
            *filled += self.inbox.take_into(buffer, *filled..room);
            if *filled == *len {
                break;
            }
            if *filled < room {
                return false;
            }
            let next = (*len).min(buffer.len() + PIECE);
            let lacks = allocated(next) - buffer.len();
            if payload.granted < lacks {
                if room == 0 && self.inbox.bytes().is_empty() {
                    // None of it has come.
                    return false;
                }
                let last = next == *len;
                if !self.ask(work, lacks, last) {
                    return false;
                }
                if let Some(payload) = &mut self.payload {
                    payload.granted += lacks;
                }
                continue;
            }
            payload.granted -= lacks;
            work.pool.grow(buffer, next);
        }
        if let Some(Payload { cookie, op, buffer, .. }) = self.payload.take() {
            arrivals.push(Arrival { disk, cookie, op, payload: buffer });
        }
        true
    }

    /// Queues the reply to a request that the volume is done with.
    pub(crate) fn reply(
        &mut self,
        work: &mut Work,
        cookie: Cookie,
        op: Op,
        outcome: Result<Body, Failure>,
    ) {
        self.requests -= 1;
        self.status_requests -= usize::from(matches!(op, Op::BlockStatus { .. }));
        let Phase::Transmission { session, .. } = self.phase else { return };
        if self.state == State::Dead {
            if let Ok(Body::Data(buffer)) = outcome {
                work.pool.put(buffer);
            }
            work.budget.give(self.key, cost(op));
            return;
        }
        let to = ReplyTo::new(cookie, op);
        match (op, outcome) {
            (Op::Read(extent), Ok(Body::Data(buffer)))
                if session.can_put_hole()
                    && extent.len >= MIN_HOLE
                    && buffer.slices(0..extent.len as usize).all(all_zero) =>
            {
                self.outbox.head(|out| session.put_hole(out, cookie, extent));
                work.pool.put(buffer);
            }
            (Op::Read(extent), Ok(Body::Data(buffer))) => {
                self.outbox.head(|out| session.put_read(out, cookie, extent));
                // Its memory is given back when it was sent.
                self.outbox.data(buffer, extent.len as usize, cost(op) as u64);
                return;
            }
            (_, Ok(Body::Status(extents))) => {
                self.outbox.head(|out| session.put_status(out, to, &extents));
            }
            (_, Ok(_)) => self.outbox.head(|out| session.put_done(out, to)),
            (_, Err(failure)) => {
                let Failure { errno, message, at } = failure;
                self.outbox.head(|out| session.put_error_at(out, to, errno, &message, at));
            }
        }
        work.budget.give(self.key, cost(op));
    }

    /// Sends what waits, as far as the socket takes it at once. Returns whether anything was sent.
    fn flush(&mut self, work: &mut Work) -> Result<bool, ConnError> {
        if self.sending || self.outbox.is_empty() || self.state == State::Dead {
            return Ok(false);
        }
        match now::send(&self.fd, &self.outbox) {
            Ok(n) => {
                self.progress.moved(n);
                self.outbox.sent(n, |cost, buffer| {
                    work.pool.put(buffer);
                    work.budget.give(self.key, cost as usize);
                });
                Ok(true)
            }
            Err(libc::EINTR | libc::EAGAIN) => Ok(false),
            Err(errno) => Err(ConnError::Io(std::io::Error::from_raw_os_error(errno))),
        }
    }

    /// Starts what the socket has to do: sending what waits, receiving if there is room. Returns
    /// whether it has room for requests that it had none for before.
    pub(crate) fn pump<T>(
        &mut self,
        now: Instant,
        ring: &mut Ring<T>,
        work: &mut Work,
        tag: impl Fn(Wire) -> T,
    ) -> Result<bool, ConnError> {
        let sent = self.flush(work)?;
        if !self.sending && !self.outbox.is_empty() && self.state != State::Dead {
            self.sending = true;
            ring.send(&self.fd, std::mem::take(&mut self.outbox), tag(Wire::Sent));
        }
        if !self.receiving && self.state == State::Open && self.want == Want::Requests {
            self.receive(ring, work, tag);
        }
        let unfinished = self.payload.is_some() || self.discard > 0 || self.inbox.is_begun();
        self.progress.owes(now, self.sending || (self.receiving && unfinished));
        Ok(sent && self.want == Want::Room)
    }

    fn receive<T>(&mut self, ring: &mut Ring<T>, work: &mut Work, tag: impl Fn(Wire) -> T) {
        if let Some(payload) = &mut self.payload {
            let to = payload.buffer.as_ref().map_or(0, |b| b.len().min(payload.len));
            if payload.filled < to
                && let Some(buffer) = payload.buffer.take()
            {
                self.receiving = true;
                ring.recv(&self.fd, buffer, payload.filled..to, Recv::All, tag(Wire::Payload));
                return;
            }
        }
        self.fit_inbox(work);
        if let Some((buffer, free)) = self.inbox.lend() {
            self.receiving = true;
            let how = if self.more { Recv::Now } else { Recv::Later };
            ring.recv(&self.fd, buffer, free, how, tag(Wire::Inbox));
        }
    }

    /// Gives a busy connection a large inbox, and takes it from one that does not need it.
    fn fit_inbox(&mut self, work: &mut Work) {
        let InboxUse { most, shrink } = self.inbox_use;
        let is_large = self.inbox.len() == Some(batch::LARGE);
        if is_large && shrink {
            if self.inbox.exchange(&mut work.pool, batch::SMALL) {
                work.budget.give_spare(self.key);
            }
            self.inbox_use = InboxUse::default();
        } else if !is_large && most > batch::SMALL / 2 {
            if work.budget.take_spare(self.key, batch::LARGE) {
                self.inbox.exchange(&mut work.pool, batch::LARGE);
            }
            self.inbox_use.most = 0;
        }
    }

    /// Looks after some time whether a large inbox is still of use. One that the kernel waits with
    /// is called back. Returns whether it has one. Returns whether there is a large one.
    pub(crate) fn tidy<T>(&mut self, ring: &mut Ring<T>, work: &Work) -> bool {
        if !work.budget.has_spare(self.key) {
            return false;
        }
        self.inbox_use.shrink = self.inbox_use.most <= batch::SMALL / 2;
        let is_silent = self.inbox_use.most == 0;
        self.inbox_use.most = 0;
        if is_silent && self.receiving && !self.sending && self.payload.is_none() {
            ring.cancel_all(&self.fd);
        }
        true
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
            _ => {
                self.inbox.restore(buffer, n);
                self.inbox_use.most = self.inbox_use.most.max(n);
            }
        }
        self.progress.moved(n);
        match result {
            // The client is gone, or at least will not ask for more.
            Ok(0) if self.state == State::Open => {
                self.state = State::Closing;
                Ok(())
            }
            Ok(_) | Err(libc::EINTR | libc::EAGAIN | libc::ECANCELED) => Ok(()),
            Err(errno) => Err(ConnError::Io(std::io::Error::from_raw_os_error(errno))),
        }
    }

    /// Takes the result of a send and goes on with what it left.
    pub(crate) fn sent<T>(
        &mut self,
        ring: &mut Ring<T>,
        work: &mut Work,
        mut sending: Sending,
        result: Result<usize, i32>,
        tag: T,
    ) -> Result<(), ConnError> {
        let outcome = match result {
            Ok(n) => {
                self.progress.moved(n);
                sending.batch.sent(n, |cost, buffer| {
                    work.pool.put(buffer);
                    work.budget.give(self.key, cost as usize);
                });
                Ok(())
            }
            Err(libc::EINTR | libc::EAGAIN | libc::ECANCELED) => Ok(()),
            Err(errno) => Err(ConnError::Io(std::io::Error::from_raw_os_error(errno))),
        };
        if outcome.is_ok() && !sending.batch.is_empty() && self.state != State::Dead {
            ring.send_rest(&self.fd, sending, tag);
            return Ok(());
        }
        self.sending = false;
        self.give_up(&mut sending.batch, work);
        if self.outbox.is_empty() {
            // Keeps its memory.
            self.outbox = sending.batch;
        }
        outcome
    }

    fn give_up(&mut self, batch: &mut Batch, work: &mut Work) {
        if !batch.is_empty() {
            batch.abandon(|cost, buffer| {
                work.pool.put(buffer);
                work.budget.give(self.key, cost as usize);
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
    pub(crate) fn kill(&mut self, work: &mut Work) {
        if self.state == State::Dead {
            return;
        }
        self.state = State::Dead;
        // It may be gone already, which is as well.
        let _ = rustix::net::shutdown(&*self.fd, rustix::net::Shutdown::Both);
        let mut outbox = std::mem::take(&mut self.outbox);
        self.give_up(&mut outbox, work);
        work.budget.forget(self.key);
    }

    /// Whether nobody has anything of this connection any more, so that it may be dropped.
    pub(crate) fn is_idle(&self) -> bool {
        let unfinished = usize::from(self.payload.is_some());
        self.state == State::Dead && !self.receiving && !self.sending && self.requests == unfinished
    }

    /// Gives its memory back.
    pub(crate) fn dismantle(self, work: &mut Work) {
        let payload = self.payload.and_then(|p| p.buffer);
        self.inbox.buffer.into_iter().chain(payload).for_each(|buffer| work.pool.put(buffer));
        work.budget.close(self.key);
    }
}
