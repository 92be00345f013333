//! The volume's ring, timers and buffers, with the owner of each operation and timer.

use std::io;

use crate::buffer::Pool;
use crate::front::tag::{self, NbdTimer, VhostTimer};
use crate::ring::{Ring, Wire};
use crate::timers::Timers;

/// Owner of an operation of the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tag {
    Client(tag::Tag),
    /// A request whose disk is a file.
    File(usize),
    /// A disk behind a server, and which of its connections.
    Upstream(usize, usize, Wire),
    Mailbox,
}

/// Subject of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    Client(tag::Timer),
    /// A disk whose server may be given up.
    Upstream(usize),
}

impl From<tag::Timer> for Timer {
    fn from(timer: tag::Timer) -> Timer {
        Timer::Client(timer)
    }
}

impl From<NbdTimer> for Timer {
    fn from(timer: NbdTimer) -> Timer {
        tag::Timer::Nbd(timer).into()
    }
}

impl From<VhostTimer> for Timer {
    fn from(timer: VhostTimer) -> Timer {
        tag::Timer::Vhost(timer).into()
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
