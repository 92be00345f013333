//! Orders of a front end to the thread that has the queues.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use parda_disk::Geometry;

use crate::{Memory, Vring};

/// Order of a front end to whoever has the queues.
#[derive(Debug)]
pub enum Order {
    /// The guest has this memory now. The old one is needed until what uses it is done.
    Memory {
        /// All of the guest's memory.
        memory: Arc<Memory>,
        /// A part of the old memory has gone, which the front end may reuse once this order is done. So by then no earlier request is
        /// unanswered.
        shrinks: bool,
    },
    /// A queue is set up, and its requests are taken as soon as it is enabled. `kick` is readable when there are some.
    Start {
        /// Number of the queue.
        queue: u16,
        /// The queue; [`Vring::begin`] comes next.
        vring: Box<Vring>,
        /// An eventfd of the front end. `None`: nobody tells of requests, and the queue is looked at now and then.
        kick: Option<OwnedFd>,
    },
    /// Eventfd by which the guest is told that requests of a queue are done.
    Call {
        /// Number of the queue.
        queue: u16,
        /// `None` if the guest looks by itself.
        call: Option<OwnedFd>,
    },
    /// A queue is enabled or not.
    Enable {
        /// Number of the queue.
        queue: u16,
        /// Whether its requests are taken.
        on: bool,
    },
    /// Takes no more requests of a queue. Those already taken are answered before the order is, by [`OrderDone::Stopped`].
    Stop {
        /// Number of the queue.
        queue: u16,
    },
    /// Socket by which the front end is told of changes: [`super::tell_of_new_size`].
    Channel(OwnedFd),
    /// The geometry of now is asked for: [`OrderDone::Geometry`].
    Geometry,
    /// The front end was told that what it wanted cannot be done: why.
    Refused(String),
}

/// Answer to an order.
#[derive(Clone, Copy, Debug)]
pub enum OrderDone {
    /// The order was done.
    Done,
    /// The queue is stopped; its next request would be this one ([`Vring::position`]).
    Stopped(u16),
    /// The disk as it is now.
    Geometry(Geometry),
}
