//! A socket that clients connect to, as the ring has it.

use std::ops::{Deref, DerefMut};
use std::sync::mpsc::SyncSender;

use parda_address::Address;
use parda_control::Instant;
use slab::Slab;

use crate::front::tag::Tag;
use crate::listen::Bound;
use crate::reactor;
use crate::ring::{OpKey, Ring};

#[derive(Debug)]
pub(crate) struct Listener {
    /// As it was asked for: with port 0, if so.
    pub(crate) address: Address,
    pub(crate) bound: Bound,
    /// The accept that is under way.
    pub(crate) accepting: Option<OpKey>,
    /// When to accept again after the system could not.
    pub(crate) retry_at: Option<Instant>,
    /// It is being removed; who waits for that.
    pub(crate) leaving: Option<SyncSender<()>>,
}

impl Listener {
    pub(crate) fn new(address: Address, bound: Bound) -> Self {
        Self { address, bound, accepting: None, retry_at: None, leaving: None }
    }

    pub(crate) fn accept(&mut self, ring: &mut Ring<reactor::Tag>, tag: Tag) {
        let tag = reactor::Tag::Client(tag);
        self.accepting = Some(match &self.bound.ready {
            Some(ready) => ring.poll(ready, tag),
            None => ring.accept(&self.bound.fd, tag),
        });
    }

    pub(crate) fn is_tcp(&self) -> bool {
        matches!(self.bound.address, Address::Tcp { .. })
    }

    /// Ends the accept that is under way. What waits to be accepted on a shared socket is left to
    /// whoever accepts there next; otherwise it is refused.
    pub(crate) fn stop(&mut self, ring: &mut Ring<reactor::Tag>) {
        match self.accepting {
            Some(key) if self.bound.shared => ring.cancel(key),
            Some(_) => {
                // A listener that cannot be shut down has nobody waiting either.
                let _ = rustix::net::shutdown(&*self.bound.fd, rustix::net::Shutdown::Both);
            }
            None => {}
        }
        self.bound.file = None;
        self.retry_at = None;
    }
}

/// The listeners of a front end.
#[derive(Debug, Default)]
pub(crate) struct Listeners(Slab<Listener>);

impl Deref for Listeners {
    type Target = Slab<Listener>;

    fn deref(&self) -> &Slab<Listener> {
        &self.0
    }
}

impl DerefMut for Listeners {
    fn deref_mut(&mut self) -> &mut Slab<Listener> {
        &mut self.0
    }
}

impl Listeners {
    /// Begins to remove the listener of an address, and returns its key: it accepts nothing any more, and is there until it is
    /// [buried](Self::bury). `gone` is used then.
    pub(crate) fn leave(
        &mut self,
        ring: &mut Ring<reactor::Tag>,
        address: &Address,
        gone: SyncSender<()>,
    ) -> Option<usize> {
        let wanted = |(_, l): &(usize, &Listener)| l.address == *address && l.leaving.is_none();
        let (key, _) = self.iter().find(wanted)?;
        let listener = &mut self[key];
        listener.leaving = Some(gone);
        listener.stop(ring);
        Some(key)
    }

    /// Drops a listener that is being removed, once the ring has nothing of it.
    pub(crate) fn bury(&mut self, key: usize) {
        if self[key].leaving.is_none() || self[key].accepting.is_some() {
            return;
        }
        let mut listener = self.remove(key);
        let leaving = listener.leaving.take();
        // Closes the socket before anybody hears of it.
        drop(listener);
        if let Some(gone) = leaving {
            let _ = gone.send(());
        }
    }

    /// Stops all of them.
    pub(crate) fn stop(&mut self, ring: &mut Ring<reactor::Tag>) {
        self.iter_mut().for_each(|(_, listener)| listener.stop(ring));
    }
}
