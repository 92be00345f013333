//! A socket that clients connect to, as the ring has it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use parda_address::Address;
use parda_control::Instant;

use super::own;
use super::tag::Tag;
use super::tls::ListenerTls;
use crate::listen::Bound;
use crate::reactor;
use crate::ring::{OpKey, Ring};
use crate::socket_file::SocketFile;

pub(super) struct Listener {
    /// As it was asked for: with port 0, if so.
    pub(super) address: Address,
    fd: Arc<OwnedFd>,
    file: Option<SocketFile>,
    pub(super) tcp: bool,
    pub(super) tls: Option<ListenerTls>,
    /// Somebody else holds the socket too: it must stay as it is.
    shared: bool,
    /// The accept that is under way.
    pub(super) accepting: Option<OpKey>,
    /// When to accept again after the system could not.
    pub(super) retry_at: Option<Instant>,
    /// It is being removed; who waits for that.
    pub(super) leaving: Option<SyncSender<()>>,
}

impl Listener {
    pub(super) fn new(address: Address, bound: Bound) -> Self {
        Self {
            address,
            tcp: matches!(bound.address, Address::Tcp { .. }),
            tls: bound.tls,
            shared: bound.shared,
            fd: Arc::new(bound.fd),
            file: bound.file,
            retry_at: None,
            accepting: None,
            leaving: None,
        }
    }

    pub(super) fn accept(&mut self, ring: &mut Ring<reactor::Tag>, index: usize) {
        self.accepting = Some(ring.accept(&self.fd, own::op(Tag::Accept(index))));
    }

    /// Ends the accept that is under way. What waits to be accepted on a shared socket is left to
    /// whoever accepts there next; otherwise it is refused.
    pub(super) fn stop(&mut self, ring: &mut Ring<reactor::Tag>) {
        match self.accepting {
            Some(key) if self.shared => ring.cancel(key),
            Some(_) if !self.shared => {
                // A listener that cannot be shut down has nobody waiting either.
                let _ = rustix::net::shutdown(&*self.fd, rustix::net::Shutdown::Both);
            }
            _ => {}
        }
        self.file = None;
        self.retry_at = None;
    }
}
