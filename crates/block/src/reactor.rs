//! The volume's ring, timers and buffers, with the owner of each operation and timer.

use std::io;

use crate::buffer::Pool;
use crate::ring::{Ring, Wire};
use crate::timers::Timers;

/// Owner of an operation of the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tag {
    /// Listeners of all front ends.
    Accept,
    /// A connection of the NBD server.
    NbdConn(usize, Wire),
    /// Kicks of a queue of a guest.
    VhostKick(usize, u16),
    /// A request whose disk is a file.
    File(usize),
    /// A disk behind a server, and which of its connections.
    Upstream(usize, usize, Wire),
    Mailbox,
}

/// Subject of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A listener that rests.
    Accept(usize),
    Nbd(NbdTimer),
    Vhost(VhostTimer),
    /// A disk whose server may be given up.
    Upstream(usize),
}

/// Subject of a timer of the NBD server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NbdTimer {
    /// A connection and its serial number, as the place is used again.
    Conn(usize, u64),
    /// Newcomers whose handshake has not begun.
    Newcomers,
    /// Clients that wait for memory.
    Waiting,
    /// Clients that wait for an answer which takes no turn in the fair queue.
    Answers,
    /// Memory that nobody needs any more.
    Tidy,
}

/// Subject of a timer of guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum VhostTimer {
    /// Guests that wait for memory.
    Waiting,
    /// A guest and its serial number: how long its next front end has waited.
    Next(usize, u64),
    /// A guest and its serial number, with a queue of whose requests nobody tells.
    Poll(usize, u64),
    /// A guest and its serial number, whose front end may have another size of the disk in mind.
    Size(usize, u64),
}

impl From<NbdTimer> for Timer {
    fn from(timer: NbdTimer) -> Timer {
        Timer::Nbd(timer)
    }
}

impl From<VhostTimer> for Timer {
    fn from(timer: VhostTimer) -> Timer {
        Timer::Vhost(timer)
    }
}

/// Ring, timers and buffers of a volume's thread, for front ends and backends.
pub(crate) struct Reactor {
    pub(crate) ring: Ring<Tag>,
    pub(crate) timers: Timers<Timer>,
    pub(crate) pool: Pool,
}

impl Reactor {
    pub(crate) fn new(pool: Pool) -> io::Result<Self> {
        Ok(Self { ring: Ring::new()?, timers: Timers::new(), pool })
    }
}
