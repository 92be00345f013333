//! Operations and timers of the front ends.

use crate::ring::Wire;

/// Owner of an operation of the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tag {
    /// Listeners of all front ends.
    Accept,
    /// A connection of the NBD server.
    NbdConn(usize, Wire),
    /// Kicks of a queue of a guest.
    VhostKick(usize, u16),
}

/// Subject of a timer, by front end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A listener that rests.
    Accept(usize),
    Nbd(NbdTimer),
    Vhost(VhostTimer),
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
    /// A guest and its serial number, whose front end may have another size of the disk in mind.
    Size(usize, u64),
}
