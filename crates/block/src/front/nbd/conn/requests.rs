//! Requests out of what was received, within the limits.

use parda_control::Instant;
use parda_disk::Op;
use parda_nbd::Cookie;
use parda_nbd::server::{Incoming, Session};

use super::charge::{STATUS_REPLY, cost, is_late, room};
use super::{Conn, ConnError, Offer, Payload, Phase, State, Want};
use crate::backend::Request;
use crate::buffer::{Buffer, allocated};
use crate::client::{Client, ReplyHandle};
use crate::config::Limits;
use crate::front::nbd::budget;
use crate::front::nbd::work::Work;

/// Heads of replies that may wait before no more requests are taken, in bytes.
const MAX_WAITING_HEADS: usize = 16 << 10;

/// Requests that a connection may bring in one turn.
const REQUESTS_PER_TURN: usize = 128;

/// Bytes of requests that a connection may bring in one turn, rounded up to a whole request.
const BYTES_PER_TURN: usize = 4 << 20;

impl Conn {
    /// Takes requests from what was received, as many as there are and the limits allow.
    pub(crate) fn take_requests(
        &mut self,
        offer: &Offer,
        limits: &Limits,
        work: &mut Work<'_>,
        arrivals: &mut Vec<Request>,
    ) -> Result<(), ConnError> {
        let (mut requests, mut bytes) = (0, 0);
        while self.state == State::Open
            && !self.receiving
            && !matches!(self.want, Want::Memory | Want::Answer)
        {
            self.want = Want::Requests;
            if self.skip > 0 {
                let n = self.skip.min(self.inbox.bytes().len());
                self.inbox.take(n);
                self.skip -= n;
                if self.skip > 0 {
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
                        if matches!(event, Incoming::Refused { .. }) && !self.has_answer(work) {
                            break;
                        }
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

    /// Whether it may have an answer now that takes no turn in the fair queue. If not, it waits for one.
    pub(super) fn has_answer(&mut self, work: &mut Work<'_>) -> bool {
        let has = std::mem::take(&mut self.may_answer) || work.answers.ask(self.key, self.serial);
        if !has {
            self.want = Want::Answer;
            self.waits_since = Some(work.answers.now());
        }
        has
    }

    /// Has a connection that waited for an answer try again. Its handshake gets the waited time in
    /// addition.
    pub(crate) fn may_answer(&mut self, now: Instant) {
        if let (Some(since), Phase::Handshake { until, .. }) =
            (self.waits_since.take(), &mut self.phase)
        {
            *until = *until + now.since(since);
        }
        self.may_answer = true;
        self.want = Want::Requests;
    }

    /// Whether it has requests at hand that were left for the next turn.
    pub(crate) fn wants_turn(&self) -> bool {
        self.want == Want::Turn
    }

    /// Takes an event; returns the bytes of data that a request is about.
    fn take_event(&mut self, session: Session, event: Incoming, work: &mut Work<'_>) -> usize {
        match event {
            Incoming::Disconnect => self.state = State::Closing,
            Incoming::Refused { to, refusal, discard } => {
                self.faults += 1;
                self.skip = discard as usize;
                let (errno, reason) = (refusal.errno, refusal.reason);
                self.outbox.head(|out| session.put_error(out, to, errno, reason));
            }
            Incoming::Request { cookie, op } => {
                self.pending = Some((cookie, op));
                let whole = cost(op);
                let now = if is_late(op) { budget::REQUEST } else { whole };
                self.ask(work, now, now == whole);
                return room(op);
            }
        }
        0
    }

    /// Heads of replies that wait, with the block status that is still to come, in bytes. Such
    /// bytes are no longer memory of a request once the head waits to be sent.
    pub(super) fn reply_heads(&self) -> usize {
        self.outbox.head_bytes() + self.status_requests * STATUS_REPLY
    }

    /// Begins a request whose memory is there.
    fn begin(&mut self, cookie: Cookie, op: Op, arrivals: &mut Vec<Request>) {
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
            let (client, reply) = (Client::Nbd(self.key), ReplyHandle(cookie.0));
            arrivals.push(Request::new(client, disk, reply, op, None));
        }
    }
}
