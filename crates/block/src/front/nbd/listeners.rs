//! Listeners that come and go while the volume runs, and the sockets that they accept. What is used
//! here was bound by others: that can block.

use std::io;

use parda_address::Address;
use parda_control::{Instant, Span};

use super::Nbd;
use crate::front::tag::NbdTimer;
use crate::listen::Bound;
use crate::reactor::Reactor;

/// How long a listener rests when there are no descriptors or no memory for a connection.
const ACCEPT_PAUSE: Span = Span::from_millis(100);

impl Nbd {
    /// Accepts connections at one more address.
    pub(crate) fn add_listener(
        &mut self,
        io: &mut Reactor,
        address: Address,
        bound: Bound,
    ) -> io::Result<()> {
        self.listeners.add(&mut io.ring, address, bound)
    }

    /// Closes a listener. Who is still in his handshake loses his connection, who is done with it
    /// keeps it.
    pub(crate) fn remove_listener(&mut self, io: &mut Reactor, address: &Address) -> bool {
        let Some(key) = self.listeners.remove(address) else { return false };
        for client in self.keys(|conn| conn.listener == key && conn.disk().is_none()) {
            self.conns[client].kill(&mut self.shared.with(io));
            self.list(client);
        }
        self.pace.retain(|newcomer| newcomer.listener != key);
        true
    }

    /// Somebody waits at some listeners.
    pub(crate) fn polled(&mut self, now: Instant, io: &mut Reactor) {
        for listener in self.listeners.ready() {
            self.accept(now, io, listener);
        }
        self.listeners.poll(&mut io.ring);
    }

    fn accept(&mut self, now: Instant, io: &mut Reactor, listener: usize) {
        match self.listeners.take(listener) {
            Ok(Some(fd)) => self.admit(now, io, listener, fd),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(volume = self.volume, %error, "cannot accept a connection");
                return self.rest(io, listener, now + ACCEPT_PAUSE);
            }
        }
        match self.pace.accepted(now) {
            None => self.listeners.listen(listener),
            Some(at) => self.rest(io, listener, at),
        }
    }

    /// Has a listener accept nothing until then.
    fn rest(&mut self, io: &mut Reactor, listener: usize, until: Instant) {
        self.listeners.rest(listener, until);
        io.timers.add(until, NbdTimer::Accept(listener).into());
    }
}
