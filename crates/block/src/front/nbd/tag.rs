//! Operations and timers of the NBD server.

use crate::ring::Wire;

/// Owner of an operation of the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tag {
    Accept(usize),
    Conn(usize, Wire),
}

/// Subject of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A connection and its serial number, as the place is used again.
    Conn(usize, u64),
    /// A listener that rests.
    Accept(usize),
    /// Newcomers whose handshake has not begun.
    Newcomers,
    /// Clients that wait for memory.
    Waiting,
    /// Clients that wait for an answer which takes no turn in the fair queue.
    Answers,
    /// Memory that nobody needs any more.
    Tidy,
}
