//! Listeners that come and go while the volume runs, and the sockets that they accept. What is used
//! here was bound by others: that can block.

use std::sync::mpsc::SyncSender;

use parda_address::Address;
use parda_control::{Instant, Span};

use super::Nbd;
use crate::front::listener::Listener;
use crate::front::tag;
use crate::listen::Bound;
use crate::reactor::{Reactor, Timer};
use crate::ring::End;

/// How long a listener rests when there are no descriptors or no memory for a connection.
const ACCEPT_PAUSE: Span = Span::from_millis(100);

impl Nbd {
    /// Accepts connections at one more address.
    pub(crate) fn add_listener(&mut self, io: &mut Reactor, address: Address, bound: Bound) {
        let key = self.listeners.insert(Listener::new(address, bound));
        self.listeners[key].accept(&mut io.ring, tag::Tag::NbdAccept(key));
    }

    /// Closes a listener. Who is still in his handshake loses his connection, who is done with it
    /// keeps it.
    pub(crate) fn remove_listener(
        &mut self,
        io: &mut Reactor,
        address: &Address,
        gone: SyncSender<()>,
    ) {
        let Some(key) = self.listeners.leave(&mut io.ring, address, gone) else { return };
        for client in self.keys(|conn| conn.listener == key && conn.disk().is_none()) {
            self.conns[client].kill(&mut self.shared.with(io));
            self.list(client);
        }
        self.pace.retain(|newcomer| newcomer.listener != key);
        self.listeners.bury(key);
    }

    /// Somebody may wait at a listener.
    pub(crate) fn accepted(&mut self, now: Instant, io: &mut Reactor, index: usize, end: End) {
        let listener = &mut self.listeners[index];
        listener.accepting = None;
        if self.stopped || listener.leaving.is_some() {
            self.listeners.bury(index);
            return;
        }
        match listener.take(&end) {
            Ok(Some(fd)) => self.admit(now, io, index, fd),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(volume = self.volume, %error, "cannot accept a connection");
                return self.rest(io, index, now + ACCEPT_PAUSE);
            }
        }
        match self.pace.accepted(now) {
            None => self.listeners[index].accept(&mut io.ring, tag::Tag::NbdAccept(index)),
            Some(at) => self.rest(io, index, at),
        }
    }

    /// Has a listener accept nothing until then.
    fn rest(&mut self, io: &mut Reactor, index: usize, until: Instant) {
        self.listeners[index].retry_at = Some(until);
        io.timers.add(until, Timer::Client(tag::Timer::NbdAccept(index)));
    }

    /// The rest of a listener is over.
    pub(super) fn rested(&mut self, now: Instant, io: &mut Reactor, index: usize) {
        let Some(listener) = self.listeners.get_mut(index) else { return };
        if listener.retry_at.take_if(|at| now >= *at).is_some() {
            listener.accept(&mut io.ring, tag::Tag::NbdAccept(index));
        }
    }
}
