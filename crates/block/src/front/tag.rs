//! Operations and timers of the front ends.

use crate::ring::Wire;

/// Owner of an operation of the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tag {
    /// Listeners of the NBD server.
    NbdAccept,
    /// A connection of the NBD server.
    NbdConn(usize, Wire),
    /// Listeners for guests.
    VhostAccept,
    /// Kicks of a queue of a guest.
    VhostKick(usize, u16),
}

/// Subject of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A connection and its serial number, as the place is used again.
    NbdConn(usize, u64),
    /// A listener that rests.
    NbdAccept(usize),
    /// Newcomers whose handshake has not begun.
    NbdNewcomers,
    /// Clients that wait for memory.
    NbdWaiting,
    /// Clients that wait for an answer which takes no turn in the fair queue.
    NbdAnswers,
    /// Memory that nobody needs any more.
    NbdTidy,
    /// A listener for guests that rests.
    VhostAccept(usize),
    /// Guests that wait for memory.
    VhostWaiting,
    /// A guest and its serial number: how long its next front end has waited.
    VhostNext(usize, u64),
}
