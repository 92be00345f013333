//! Operations on the connection's socket: receives into inbox and payload, sends of the outbox.

use parda_control::Instant;

use super::{Conn, ConnError, InboxUse, State, Want};
use crate::batch::{self, Batch, Data};
use crate::buffer::Buffer;
use crate::front::nbd::budget::Budget;
use crate::front::nbd::now;
use crate::front::nbd::work::Work;
use crate::peer::is_hung_up;
use crate::reactor::Tag;
use crate::ring::{Recv, Ring, Sending, Wire};

impl Conn {
    /// Starts what the socket has to do: sending what waits, receiving if there is room. Returns
    /// whether it has room for requests that it had none for before.
    pub(crate) fn pump(&mut self, now: Instant, work: &mut Work<'_>) -> Result<bool, ConnError> {
        let sent = self.flush(work)?;
        if !self.sending && !self.outbox.is_empty() && self.state != State::Dead {
            self.sending = true;
            let tag = self.tag(Wire::Sent);
            work.io.ring.send(&self.fd, std::mem::take(&mut self.outbox), tag);
        }
        if !self.receiving && self.state == State::Open && self.want == Want::Requests {
            self.receive(work);
        }
        let unfinished = self.payload.is_some() || self.skip > 0 || self.inbox.is_begun();
        self.progress.owes(now, self.sending || (self.receiving && unfinished));
        Ok(sent && self.want == Want::Room)
    }

    /// Sends what waits, as far as the socket takes it at once. Returns whether anything was sent.
    fn flush(&mut self, work: &mut Work<'_>) -> Result<bool, ConnError> {
        if self.sending || self.outbox.is_empty() || self.state == State::Dead {
            return Ok(false);
        }
        match now::send(&self.fd, &self.outbox) {
            Ok(n) => {
                self.progress.moved(n);
                self.outbox.sent(n, give_back(self.key, work));
                Ok(true)
            }
            Err(libc::EINTR | libc::EAGAIN) => Ok(false),
            Err(errno) => Err(ConnError::Io(std::io::Error::from_raw_os_error(errno))),
        }
    }

    fn tag(&self, wire: Wire) -> Tag {
        Tag::NbdConn(self.key, wire)
    }

    fn receive(&mut self, work: &mut Work<'_>) {
        let tag = self.tag(Wire::Payload);
        if let Some(payload) = &mut self.payload {
            let to = payload.buffer.as_ref().map_or(0, |b| b.len().min(payload.len));
            if payload.filled < to
                && let Some(buffer) = payload.buffer.take()
            {
                self.receiving = true;
                work.io.ring.recv(&self.fd, buffer, payload.filled..to, Recv::All, tag);
                return;
            }
        }
        self.fit_inbox(work);
        if let Some((buffer, free)) = self.inbox.lend() {
            self.receiving = true;
            let how = if self.more { Recv::Now } else { Recv::Later };
            work.io.ring.recv(&self.fd, buffer, free, how, self.tag(Wire::Inbox));
        }
    }

    /// Gives a busy connection a large inbox, and takes it from one that does not need it.
    fn fit_inbox(&mut self, work: &mut Work<'_>) {
        let InboxUse { most, shrink } = self.inbox_use;
        let is_large = self.inbox.len() == Some(batch::LARGE);
        if is_large && shrink {
            if self.inbox.exchange(&mut work.io.pool, batch::SMALL) {
                work.budget.give_spare(self.key);
            }
            self.inbox_use = InboxUse::default();
        } else if !is_large && most > batch::SMALL / 2 {
            if work.budget.take_spare(self.key, batch::LARGE) {
                self.inbox.exchange(&mut work.io.pool, batch::LARGE);
            }
            self.inbox_use.most = 0;
        }
    }

    /// Looks after some time whether a large inbox is still of use. One that the kernel waits with
    /// is called back. Returns whether the connection has a large inbox.
    pub(crate) fn tidy<T: Copy>(&mut self, ring: &mut Ring<T>, budget: &Budget) -> bool {
        if !budget.has_spare(self.key) {
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
            // In the middle of a write no client ends on purpose. A receive that waits for all of the data returns what came before a
            // socket error. The next receive returns 0.
            Ok(0) if self.state == State::Open && self.payload.is_some() => {
                Err(ConnError::Io(std::io::ErrorKind::UnexpectedEof.into()))
            }
            // A unix socket tells that its client is gone. Nobody waits for what it has asked for.
            Ok(0) if self.state == State::Open && self.requests > 0 && is_hung_up(&self.fd) => {
                Err(ConnError::Io(std::io::ErrorKind::BrokenPipe.into()))
            }
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
    pub(crate) fn sent(
        &mut self,
        work: &mut Work<'_>,
        mut sending: Sending,
        result: Result<usize, i32>,
    ) -> Result<(), ConnError> {
        let outcome = match result {
            Ok(n) => {
                self.progress.moved(n);
                sending.batch.sent(n, give_back(self.key, work));
                Ok(())
            }
            Err(libc::EINTR | libc::EAGAIN | libc::ECANCELED) => Ok(()),
            Err(errno) => Err(ConnError::Io(std::io::Error::from_raw_os_error(errno))),
        };
        if outcome.is_ok() && !sending.batch.is_empty() && self.state != State::Dead {
            work.io.ring.send_rest(&self.fd, sending, self.tag(Wire::Sent));
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

    pub(super) fn give_up(&mut self, batch: &mut Batch, work: &mut Work<'_>) {
        if !batch.is_empty() {
            batch.abandon(give_back(self.key, work));
        }
    }
}

/// Takes back the data of a reply, which has a cost.
fn give_back(key: usize, work: &mut Work<'_>) -> impl FnMut(Data) {
    move |Data { buffer, owner: cost, .. }| {
        work.io.pool.put(buffer);
        work.budget.give(key, cost as usize);
    }
}
