//! Operations and timers of the front ends.

use super::nbd::tag;

/// Owner of an operation of the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tag {
    Nbd(tag::Tag),
}

/// Subject of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    Nbd(tag::Timer),
}
