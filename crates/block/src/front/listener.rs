//! Listeners of all front ends of a volume. One epoll holds all listeners, and the ring polls that epoll. An operation of the ring on a
//! socket itself would keep the socket open for some time after the process is gone.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use parda_address::Address;
use parda_control::{Instant, Span};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use slab::Slab;

use crate::descriptors::is_reserved;
use crate::front::nbd::tls::ListenerTls;
use crate::listen::Bound;
use crate::peer::is_hung_up;
use crate::reactor::Tag;
use crate::ring::{OpKey, Ring};
use crate::socket_file::SocketFile;

/// Listeners that are looked at in one turn.
const AT_ONCE: usize = 64;

/// Pause of a listener that finds no descriptor or no memory for a connection.
pub(super) const ACCEPT_PAUSE: Span = Span::from_millis(100);

/// Address of a listener, with its options.
#[derive(Debug)]
pub(crate) struct Place {
    /// As it was asked for: with port 0, if so.
    pub(crate) address: Address,
    pub(crate) tls: Option<ListenerTls>,
}

impl Place {
    pub(crate) fn is_tcp(&self) -> bool {
        matches!(self.address, Address::Tcp { .. })
    }
}

#[derive(Debug)]
struct Listener {
    place: Rc<Place>,
    fd: OwnedFd,
    _file: Option<SocketFile>,
    /// When to accept again, if it rests.
    retry_at: Option<Instant>,
}

/// The listeners of a volume. Each tells once that somebody waits, and again after [`listen`](Self::listen).
#[derive(Debug)]
pub(crate) struct Listeners {
    sockets: Slab<Listener>,
    epoll: Arc<OwnedFd>,
    /// The poll that is under way.
    polling: Option<OpKey>,
}

impl Listeners {
    /// A set that has no listeners yet.
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        if is_reserved(&epoll) {
            return Err(Errno::MFILE.into());
        }
        Ok(Self { sockets: Slab::new(), epoll: epoll.into(), polling: None })
    }

    /// Accepts connections at one more address.
    pub(crate) fn add(
        &mut self,
        ring: &mut Ring<Tag>,
        address: Address,
        bound: Bound,
    ) -> io::Result<()> {
        let Bound { fd, _file, tls, .. } = bound;
        let entry = self.sockets.vacant_entry();
        epoll::add(&self.epoll, &fd, data(entry.key()), ONCE)?;
        let place = Rc::new(Place { address, tls });
        entry.insert(Listener { place, fd, _file, retry_at: None });
        self.poll(ring);
        Ok(())
    }

    /// Waits until a listener tells that somebody waits.
    pub(crate) fn poll(&mut self, ring: &mut Ring<Tag>) {
        if self.polling.is_none() && !self.sockets.is_empty() {
            self.polling = Some(ring.poll(&self.epoll, Tag::Accept));
        }
    }

    /// The poll is done: listeners at which somebody waits.
    pub(crate) fn ready(&mut self) -> Vec<usize> {
        self.polling = None;
        let mut events = [MaybeUninit::<Event>::uninit(); AT_ONCE];
        // The call does not wait, so no signal interrupts it: EINTR would be its only error.
        let ready = epoll::wait(&self.epoll, &mut events, Some(&Timespec::default()));
        let ready = ready.iter().flat_map(|(events, _)| events.iter());
        ready.map(|event| event.data.u64() as usize).collect()
    }

    /// Where a listener is; nowhere if it is closed.
    pub(crate) fn place(&self, key: usize) -> Option<Rc<Place>> {
        self.sockets.get(key).map(|listener| Rc::clone(&listener.place))
    }

    /// Takes a connection. `None` if it has gone, or another process that has the socket was faster.
    pub(crate) fn take(&self, key: usize) -> Result<Option<OwnedFd>, Errno> {
        let Some(listener) = self.sockets.get(key) else { return Ok(None) };
        match accept_with(&listener.fd, SocketFlags::CLOEXEC) {
            Ok(fd) => Ok(Some(fd)),
            // A unix socket that another process has shut down is ready for ever, and nobody waits there.
            Err(Errno::AGAIN) if is_hung_up(&listener.fd) => Err(Errno::INVAL),
            Err(Errno::INTR | Errno::CONNABORTED | Errno::AGAIN) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Has a listener tell once more when somebody waits.
    pub(crate) fn listen(&self, key: usize) {
        if let Some(listener) = self.sockets.get(key) {
            // The epoll has it already, so this needs no memory: that would be its only error.
            let _ = epoll::modify(&self.epoll, &listener.fd, data(key), ONCE);
        }
    }

    /// Has a listener accept nothing until then.
    pub(crate) fn rest(&mut self, key: usize, until: Instant) {
        if let Some(listener) = self.sockets.get_mut(key) {
            listener.retry_at = Some(until);
        }
    }

    /// The rest of a listener may be over.
    pub(crate) fn rested(&mut self, now: Instant, key: usize) {
        let listener = self.sockets.get_mut(key);
        if listener.is_some_and(|listener| listener.retry_at.take_if(|at| now >= *at).is_some()) {
            self.listen(key);
        }
    }

    /// Closes the listener of an address. At a shared socket, waiting clients are left to the next process that accepts there; elsewhere
    /// they are refused.
    pub(crate) fn remove(&mut self, address: &Address) -> Option<Rc<Place>> {
        let is = |listener: &Listener| listener.place.address == *address;
        let (key, _) = self.sockets.iter().find(|(_, listener)| is(listener))?;
        let Listener { place, fd, .. } = self.sockets.remove(key);
        // Else the epoll keeps a socket that others have open, too.
        let _ = epoll::delete(&self.epoll, fd);
        Some(place)
    }

    /// Closes all of them.
    pub(crate) fn stop(&mut self, ring: &mut Ring<Tag>) {
        self.sockets.clear();
        if let Some(polling) = self.polling {
            ring.cancel(polling);
        }
    }
}

const ONCE: EventFlags = EventFlags::IN.union(EventFlags::ONESHOT);

fn data(key: usize) -> EventData {
    EventData::new_u64(key as u64)
}
