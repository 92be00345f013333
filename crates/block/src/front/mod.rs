//! Front ends: servers of a protocol, by which clients reach a volume.
//!
//! The engine knows of a request its operation, its buffer and a handle for the reply. A further
//! front end is an implementation of [`front_end::FrontEnd`], and here a field of [`Fronts`] with its line in
//! each of the macros; its operations, timers and clients are variants of [`tag`] and of
//! [`crate::client::Client`]. `docs/extending.md` has the steps.

pub(crate) mod front_end;
mod listener;
mod nbd;
pub(crate) mod tag;
#[cfg(test)]
pub(crate) mod tests;
mod vhost;

use std::io;

use parda_address::Address;
use parda_control::Instant;

use self::listener::Listeners;
use self::nbd::Nbd;
pub(crate) use self::nbd::budget::Budget;
use self::nbd::budget::Loan;
pub use self::nbd::budget::{AgentMemory, TooLittleMemory};
pub(crate) use self::nbd::progress::LEAST;
pub use self::nbd::tls::ListenerTls;
use self::tag::{Tag, Timer};
use self::vhost::Vhost;
pub(crate) use self::vhost::mail::GuestMail;
use crate::buffer::Pool;
use crate::config::Limits;
use crate::listen::Bound;
use crate::mailbox::Mailer;
use crate::reactor::Reactor;
use crate::ring::End;
use crate::spin::Polled;
use crate::stats::{Dropped, MemoryStats};

/// Parts with which the front ends of a volume are started, on its thread.
pub(crate) struct FrontParts {
    pub(crate) limits: Limits,
    pub(crate) budget: Budget,
    pub(crate) memory: AgentMemory,
    pub(crate) mailer: Mailer,
}

/// All front ends of a volume.
pub(crate) struct Fronts {
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
            #[cfg(test)]
            $crate::client::Client::Local(key) => $fronts.local.$method(key $(, $arg)*),
        }
    };
}

/// Calls a method of every front end.
macro_rules! each {
    ($fronts:expr, $method:ident($($arg:expr),*)) => {{
        $fronts.nbd.$method($($arg),*);
        $fronts.vhost.$method($($arg),*);
        #[cfg(test)]
        $fronts.local.$method($($arg),*);
    }};
}

/// Calls a method of every front end, and tells whether any of them says `true`.
macro_rules! any {
    ($fronts:expr, $method:ident($($arg:expr),*)) => {{
        let any = $fronts.nbd.$method($($arg),*);
        let any = any | $fronts.vhost.$method($($arg),*);
        #[cfg(test)]
        let any = any | $fronts.local.$method($($arg),*);
        any
    }};
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
            nbd: Nbd::new(volume.to_owned(), limits, budget, Listeners::new(Tag::NbdAccept)?),
            vhost: Vhost::new(
                volume.to_owned(),
                limits,
                memory,
                mailer,
                Listeners::new(Tag::VhostAccept)?,
            ),
            #[cfg(test)]
            local: tests::Local::default(),
        })
    }

    /// An operation of the ring is done.
    pub(crate) fn completed(&mut self, now: Instant, io: &mut Reactor, tag: Tag, end: End) {
        match tag {
            Tag::NbdAccept => self.nbd.polled(now, io),
            Tag::NbdConn(conn, wire) => self.nbd.conn_done(io, conn, wire, end),
            Tag::VhostAccept => self.vhost.polled(now, io),
            Tag::VhostKick(guest, queue) => self.vhost.kicked(io, guest, queue, &end),
        }
    }

    /// A timer is due.
    pub(crate) fn timer(&mut self, now: Instant, io: &mut Reactor, timer: Timer) {
        match timer {
            Timer::Nbd(timer) => self.nbd.timer(now, io, timer),
            Timer::Vhost(timer) => self.vhost.timer(now, io, timer),
        }
    }

    /// Accepts connections at one more address.
    pub(crate) fn add_listener(
        &mut self,
        io: &mut Reactor,
        address: Address,
        bound: Bound,
    ) -> io::Result<()> {
        match address {
            Address::Vhost(_) => self.vhost.add_listener(io, address, bound),
            Address::Tcp { .. } | Address::Unix(_) => self.nbd.add_listener(io, address, bound),
        }
    }

    /// Closes a listener. False if there is none.
    pub(crate) fn remove_listener(&mut self, io: &mut Reactor, address: &Address) -> bool {
        match address {
            Address::Vhost(_) => self.vhost.remove_listener(address),
            Address::Tcp { .. } | Address::Unix(_) => self.nbd.remove_listener(io, address),
        }
    }

    /// Open connections, their memory, and those that were given up or turned away.
    pub(crate) fn stats(&self, pool: &Pool) -> (usize, MemoryStats, Dropped) {
        let mut dropped = self.nbd.dropped();
        dropped.protocol += self.vhost.broken();
        (self.nbd.connections() + self.vhost.guests(), self.nbd.memory(pool), dropped)
    }
}
