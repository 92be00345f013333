//! Newcomers, and the periodic looks of a volume at its clients.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use super::pressure::Pressure;
use crate::front::listener::Place;

/// A socket whose handshake has not begun.
#[derive(Debug)]
pub(super) struct Newcomer {
    pub(super) place: Rc<Place>,
    pub(super) fd: OwnedFd,
}

/// Periodic looks, and whether a timer is set for each.
#[derive(Debug, Default)]
pub(super) struct Watch {
    pub(super) newcomers: bool,
    pub(super) waiting: bool,
    pub(super) answers: bool,
    pub(super) tidy: bool,
    pub(super) pressure: Pressure,
}
