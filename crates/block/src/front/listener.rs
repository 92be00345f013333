//! A socket that clients connect to, as the ring has it.

use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use std::sync::mpsc::SyncSender;

use parda_address::Address;
use parda_control::Instant;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use slab::Slab;

use crate::front::tag::Tag;
use crate::listen::Bound;
use crate::reactor;
use crate::ring::{End, OpKey, Ring};

#[derive(Debug)]
pub(crate) struct Listener {
    /// As it was asked for: with port 0, if so.
    pub(crate) address: Address,
    pub(crate) bound: Bound,
    /// The poll that is under way.
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
        self.accepting = Some(ring.poll(&self.bound.ready, reactor::Tag::Client(tag)));
    }

    /// Takes the connection that the poll has found. `None` if it has gone, or another process that has the socket was faster.
    pub(crate) fn take(&self, polled: &End) -> Result<Option<OwnedFd>, Errno> {
        let accept = |_| accept_with(&self.bound.fd, SocketFlags::CLOEXEC);
        match polled.result.map_err(Errno::from_raw_os_error).and_then(accept) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::INTR | Errno::CONNABORTED | Errno::AGAIN) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn is_tcp(&self) -> bool {
        matches!(self.bound.address, Address::Tcp { .. })
    }

    /// Accepts nothing any more. What waits at a shared socket is left to whoever accepts there next; otherwise it is refused.
    pub(crate) fn stop(&mut self, ring: &mut Ring<reactor::Tag>) {
        if let Some(key) = self.accepting {
            ring.cancel(key);
        }
        if !self.bound.shared {
            // A listener that cannot be shut down has nobody waiting either.
            let _ = rustix::net::shutdown(&self.bound.fd, rustix::net::Shutdown::Both);
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
