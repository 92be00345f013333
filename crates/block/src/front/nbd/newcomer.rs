//! Sockets that wait until their handshake may begin.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use crate::front::listener::Place;

/// A socket whose handshake has not begun.
#[derive(Debug)]
pub(super) struct Newcomer {
    pub(super) place: Rc<Place>,
    pub(super) fd: OwnedFd,
}
