//! One client's connection: bytes in, requests out; replies in, bytes out.

mod charge;
mod error;
mod handshake;
mod payload;
mod reply;
mod requests;
mod socket;

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use parda_control::{Instant, Span};
use parda_disk::Op;
use parda_nbd::server::{Handshake, Security, Session};
use parda_nbd::{Cookie, Export};

pub(crate) use self::error::ConnError;
use super::progress::{ClientState, Progress};
use super::work::Work;
use crate::batch::{self, Batch, Inbox};
use crate::buffer::Buffer;
use crate::client::Offered;
use crate::front::listener::Place;
use crate::losses::Witness;

/// Interval of checks on a handshake that waits for an answer.
const WAITS: Span = Span::from_millis(1000);

/// Time for reading what had come before a deadline.
const READS: Span = Span::from_millis(20);

/// Offer of a listener: exports, and the disk that each of them is.
#[derive(Default)]
pub(crate) struct Offer {
    exports: Vec<Export>,
    disks: Vec<usize>,
}

impl Offer {
    /// Adds a disk.
    pub(crate) fn add(&mut self, disk: usize, offered: &Offered) {
        let Offered { name, description, geometry, .. } = offered.clone();
        // All connections go through the one backend of the disk, and none has a cache.
        self.exports.push(Export { name, description, geometry });
        self.disks.push(disk);
    }
}

enum Phase {
    Handshake {
        handshake: Handshake,
        until: Instant,
        /// Options that were answered.
        options: u32,
    },
    /// The listener may go, and offer something else: the connection keeps what it agreed on.
    Transmission { disk: usize, export: Rc<Export>, session: Session },
}

/// Whether the connection still takes requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// No more requests are taken; unanswered requests are answered.
    Closing,
    /// Nothing can be received or sent any more.
    Dead,
}

/// Input that the connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    /// More requests are to be received.
    Requests,
    /// The client to take replies: its unanswered requests, their memory or its replies are at a limit.
    Room,
    /// Memory that it has asked for.
    Memory,
    /// Its next turn: it has had its part of this one.
    Turn,
    /// An answer that takes no turn in the fair queue.
    Answer,
}

/// The payload of a write on its way in.
struct Payload {
    cookie: Cookie,
    op: Op,
    /// Buffer of the payload. Absent while the kernel has it.
    buffer: Option<Buffer>,
    /// Memory that was granted and is not in the buffer yet.
    granted: usize,
    filled: usize,
    len: usize,
}

/// Use of the inbox since the last check.
#[derive(Clone, Copy, Debug, Default)]
struct InboxUse {
    /// The most that one receive brought.
    most: usize,
    /// A small inbox is to replace it.
    shrink: bool,
}

pub(crate) struct Conn {
    key: usize,
    fd: Arc<OwnedFd>,
    /// Listener that the connection came through.
    pub(crate) place: Rc<Place>,
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
    /// Bytes that were asked for and not granted yet.
    asked: usize,
    /// Bytes of a refused write's payload still to be thrown away.
    skip: usize,
    requests: usize,
    /// Unanswered requests for block status.
    status_requests: usize,
    progress: Progress,
    /// Requests that are none for the disk, and are not counted yet.
    pub(crate) faults: u64,
    /// A deadline has passed that it is not judged by yet.
    overdue: bool,
    /// Told apart from others that had its place.
    pub(crate) serial: u64,
    /// The client has chosen an export, and the volume knows.
    pub(crate) chosen: bool,
    /// A timer will look at it.
    pub(crate) timed: bool,
    /// Receives filled the inbox, or hardly used it.
    inbox_use: InboxUse,
    /// Failed syncs of its disk that it was told of; none before its first request.
    pub(crate) witness: Option<Witness>,
    /// The connection has died, and the volume knows.
    pub(crate) missed: bool,
    /// The connection is on the volume's list of those that have something to do.
    pub(crate) listed: bool,
    /// The connection has waited for an answer, and may have one.
    may_answer: bool,
    /// Since when it waits for an answer.
    waits_since: Option<Instant>,
}

impl Conn {
    pub(crate) fn new(
        key: usize,
        fd: OwnedFd,
        place: Rc<Place>,
        until: Instant,
        work: &mut Work<'_>,
    ) -> Self {
        let mut outbox = Batch::default();
        let security = match &place.tls {
            None => Security::Plain,
            Some(tls) if tls.required => Security::Required,
            Some(_) => Security::Optional,
        };
        let handshake = outbox.head(|out| Handshake::start_with(security, out));
        Self {
            key,
            fd: Arc::new(fd),
            place,
            phase: Phase::Handshake { handshake, until, options: 0 },
            state: State::Open,
            want: Want::Requests,
            inbox: Inbox::new(&mut work.io.pool, batch::SMALL),
            outbox,
            receiving: false,
            more: false,
            sending: false,
            payload: None,
            pending: None,
            asked: 0,
            skip: 0,
            requests: 0,
            status_requests: 0,
            progress: Progress::default(),
            faults: 0,
            overdue: false,
            serial: 0,
            chosen: false,
            timed: false,
            inbox_use: InboxUse::default(),
            witness: None,
            missed: false,
            listed: false,
            may_answer: false,
            waits_since: None,
        }
    }

    /// Whether the connection has overstayed: in its handshake, or by making no progress.
    pub(crate) fn look(&mut self, now: Instant, patience: Span) -> Result<ClientState, ConnError> {
        match self.phase {
            _ if self.state == State::Dead => Ok(ClientState::Settled),
            // The time that it waits for an answer is not the client's: `may_answer` adds it.
            Phase::Handshake { .. } if self.waits_since.is_some() => {
                Ok(ClientState::LookAgain(now + WAITS))
            }
            Phase::Handshake { until, .. } if now >= until => self.late(now, ConnError::Slow),
            Phase::Handshake { until, .. } => Ok(ClientState::LookAgain(until)),
            Phase::Transmission { .. } => match self.progress.judge(now, patience) {
                ClientState::Stalled => self.late(now, ConnError::Stalled),
                verdict => {
                    self.overdue = false;
                    Ok(verdict)
                }
            },
        }
    }

    /// Its deadline has passed. The connection is dropped at the second look, after a read of all that had arrived by then.
    fn late(&mut self, now: Instant, error: ConnError) -> Result<ClientState, ConnError> {
        match std::mem::replace(&mut self.overdue, true) {
            true => Err(error),
            false => Ok(ClientState::LookAgain(now + READS)),
        }
    }

    /// Bytes that it has moved, and whether its client owes more.
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
            && size < export.geometry.size
        {
            Rc::make_mut(export).geometry.size = size;
        }
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.state == State::Dead
    }

    /// Takes no more requests; unanswered requests are answered.
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

    /// Ends the connection at once. Operations that the kernel has of it come back soon.
    pub(crate) fn kill(&mut self, work: &mut Work<'_>) {
        if self.state == State::Dead {
            return;
        }
        self.state = State::Dead;
        self.shut_down();
        let mut outbox = std::mem::take(&mut self.outbox);
        self.give_up(&mut outbox, work);
        work.budget.forget(self.key);
    }

    /// Shuts its socket down. No more of its memory is given back than by dropping it.
    pub(crate) fn shut_down(&self) {
        // An error means that the connection is gone already.
        let _ = rustix::net::shutdown(&*self.fd, rustix::net::Shutdown::Both);
    }

    /// Whether nobody has anything of this connection any more, so that it may be dropped.
    pub(crate) fn is_idle(&self) -> bool {
        let unfinished = usize::from(self.payload.is_some());
        self.state == State::Dead && !self.receiving && !self.sending && self.requests == unfinished
    }

    /// Gives its memory back.
    pub(crate) fn dismantle(self, work: &mut Work<'_>) {
        assert!(self.is_idle() && self.status_requests == 0, "all of its requests are answered");
        let payload = self.payload.and_then(|p| p.buffer);
        self.inbox.buffer.into_iter().chain(payload).for_each(|buffer| work.io.pool.put(buffer));
        work.budget.close(self.key);
    }
}
