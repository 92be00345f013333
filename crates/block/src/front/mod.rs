//! Front ends: servers of a protocol, by which clients reach a volume.
//!
//! The engine knows of a request its operation, its buffer and a handle for the reply. A further front end is an implementation of
//! [`front_end::FrontEnd`] and a field of [`Fronts`] here, with its line in `each!`. Its operations, timers and clients are variants of
//! [`crate::reactor::Tag`], [`crate::reactor::Timer`] and [`crate::client::Client`]. `docs/extending.md` has the steps.

pub(crate) mod front_end;
mod listener;
mod nbd;
#[cfg(test)]
pub(crate) mod tests;
mod vhost;

use std::io;

use parda_address::{Address, Protocol};
use parda_control::Instant;

use self::front_end::FrontEnd;
use self::listener::{ACCEPT_PAUSE, Listeners};
use self::nbd::Nbd;
pub(crate) use self::nbd::budget::Budget;
use self::nbd::budget::Loan;
pub use self::nbd::budget::{AgentMemory, TooLittleMemory};
pub(crate) use self::nbd::progress::LEAST;
pub use self::nbd::tls::ListenerTls;
use self::vhost::Vhost;
pub(crate) use self::vhost::mail::GuestMail;
use crate::buffer::Pool;
use crate::config::Limits;
use crate::mailbox::Mailer;
use crate::reactor::{Reactor, Timer};
use crate::spin::Polled;
use crate::stats::{Dropped, MemoryStats};

/// Parts with which the front ends of a volume are started, on its thread.
pub(crate) struct FrontParts {
    pub(crate) limits: Limits,
    pub(crate) budget: Budget,
    pub(crate) memory: AgentMemory,
    pub(crate) mailer: Mailer,
}

/// All front ends of a volume, and their listeners.
pub(crate) struct Fronts {
    pub(crate) volume: String,
    pub(crate) listeners: Listeners,
    pub(crate) nbd: Nbd,
    pub(crate) vhost: Vhost,
    #[cfg(test)]
    pub(crate) local: tests::Local,
}

/// Calls a method of the front end that a client is of.
macro_rules! of {
    ($fronts:expr, $client:expr, $method:ident($($arg:expr),*)) => {
        match $client {
            $crate::client::Client::Nbd(key) => $fronts.nbd.$method(key $(, $arg)*),
            $crate::client::Client::Vhost(key) => $fronts.vhost.$method(key $(, $arg)*),
            $crate::client::Client::Volume => unreachable!("the volume is no client of a front end"),
            #[cfg(test)]
            $crate::client::Client::Local(key) => $fronts.local.$method(key $(, $arg)*),
        }
    };
}

/// Calls a method of every front end: the results.
macro_rules! each {
    ($fronts:expr, $method:ident($($arg:expr),*)) => {{
        // A front end that is missing here does not compile.
        let $crate::front::Fronts {
            volume: _,
            listeners: _,
            nbd: _,
            vhost: _,
            #[cfg(test)]
                local: _,
        } = &$fronts;
        [
            $fronts.nbd.$method($($arg),*),
            $fronts.vhost.$method($($arg),*),
            #[cfg(test)]
            $fronts.local.$method($($arg),*),
        ]
    }};
}

/// Calls a method of every front end, and tells whether any of them says `true`.
macro_rules! any {
    ($fronts:expr, $method:ident($($arg:expr),*)) => {
        $crate::front::each!($fronts, $method($($arg),*)).contains(&true)
    };
}

pub(crate) use {any, each, of};

/// Guests put requests into memory: while the thread is awake, they need not tell of them.
impl Polled for Fronts {
    fn is_awake(&self) -> bool {
        self.vhost.is_awake()
    }

    fn has_news(&self) -> bool {
        self.vhost.has_news()
    }

    fn may_sleep(&mut self) -> bool {
        self.vhost.ask_for_kicks()
    }
}

impl Fronts {
    pub(crate) fn new(volume: &str, parts: FrontParts) -> io::Result<Self> {
        let FrontParts { limits, budget, memory, mailer } = parts;
        Ok(Self {
            volume: volume.to_owned(),
            listeners: Listeners::new()?,
            nbd: Nbd::new(volume.to_owned(), limits, budget),
            vhost: Vhost::new(volume.to_owned(), limits, memory, mailer),
            #[cfg(test)]
            local: tests::Local::default(),
        })
    }

    /// The front end whose clients come to an address.
    fn at(&mut self, address: &Address) -> &mut dyn FrontEnd {
        match address.protocol() {
            Protocol::Nbd => &mut self.nbd,
            Protocol::Vhost => &mut self.vhost,
        }
    }

    /// Somebody waits at some listeners.
    pub(crate) fn accept(&mut self, now: Instant, io: &mut Reactor) {
        for key in self.listeners.ready() {
            let Some(place) = self.listeners.place(key) else { continue };
            let again = match self.listeners.take(key) {
                Ok(fd) => {
                    let front = self.at(&place.address);
                    fd.into_iter().for_each(|fd| front.admit(now, io, &place, fd));
                    front.next_accept(now)
                }
                Err(error) => {
                    let volume = &self.volume;
                    tracing::warn!(volume, %error, "cannot accept a connection");
                    Some(now + ACCEPT_PAUSE)
                }
            };
            match again {
                None => self.listeners.listen(key),
                Some(until) => {
                    self.listeners.rest(key, until);
                    io.timers.add(until, Timer::Accept(key));
                }
            }
        }
        self.listeners.poll(&mut io.ring);
    }

    /// Closes a listener. False if there is none.
    pub(crate) fn remove_listener(&mut self, io: &mut Reactor, address: &Address) -> bool {
        let Some(place) = self.listeners.remove(address) else { return false };
        self.at(address).unlisten(io, &place);
        true
    }

    /// Takes no more clients and no more requests.
    pub(crate) fn stop(&mut self, io: &mut Reactor) {
        self.listeners.stop(&mut io.ring);
        each!(self, stop(io));
    }

    /// Ends all operations of the ring, after anything, also a panic.
    pub(crate) fn close(&mut self, io: &mut Reactor) {
        self.listeners.stop(&mut io.ring);
        each!(self, close(io));
    }

    /// Open connections, their memory, and those that were given up or turned away.
    pub(crate) fn stats(&self, pool: &Pool) -> (usize, MemoryStats, Dropped) {
        let mut dropped = self.nbd.dropped();
        dropped.protocol += self.vhost.broken();
        (self.nbd.connections() + self.vhost.guests(), self.nbd.memory(pool), dropped)
    }
}
