//! Operations and timers of the NBD server, as the volume's ring and timers have them.

use super::tag;
use crate::front::tag::{Tag, Timer};
use crate::reactor;

pub(super) fn op(tag: tag::Tag) -> reactor::Tag {
    reactor::Tag::Client(Tag::Nbd(tag))
}

pub(super) fn timer(timer: tag::Timer) -> reactor::Timer {
    reactor::Timer::Client(Timer::Nbd(timer))
}
