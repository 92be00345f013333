//! A queue of a guest, and how both sides are woken.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use parda_vhost::blk::{GuestOutcome, StatusByte};
use parda_vhost::control::OrderDone;
use parda_vhost::{Broken, Memory, Vring};

use crate::ring::OpKey;

/// A queue of the guest, and how it is woken.
#[derive(Default)]
pub(super) struct Lane {
    pub(super) vring: Option<Vring>,
    pub(super) enabled: bool,
    pub(super) kick: Option<Arc<OwnedFd>>,
    /// The kernel watches `kick`.
    pub(super) watch: Option<OpKey>,
    /// The kernel watches `kick`, or its watch is not cancelled yet.
    pub(super) watched: bool,
    pub(super) call: Option<Arc<OwnedFd>>,
    /// The front end waits for it to be stopped.
    pub(super) stopping: Option<SyncSender<OrderDone>>,
    /// The queue is checked in each turn, as the guest was asked not to kick.
    pub(super) stirred: bool,
    /// There are answers of which the guest was not told.
    pub(super) answered: bool,
}

impl Lane {
    /// Whether its requests are taken.
    pub(super) fn takes(&self) -> bool {
        self.stirred && self.enabled && self.stopping.is_none()
    }

    /// Whether its requests are taken, and nobody tells of them.
    pub(super) fn is_polled(&self) -> bool {
        let is_open = self.vring.is_some() && self.enabled && self.stopping.is_none();
        is_open && self.kick.is_none()
    }
}

/// A lane by its number; the control socket has checked that.
pub(super) fn lane(lanes: &mut Vec<Lane>, queue: u16) -> &mut Lane {
    let queue = usize::from(queue);
    if queue >= lanes.len() {
        lanes.resize_with(queue + 1, Lane::default);
    }
    &mut lanes[queue]
}

/// Writes status and used element. `written`: bytes before the status.
pub(super) fn answer(
    lane: &mut Lane,
    memory: &Memory,
    head: u16,
    status: &StatusByte,
    outcome: GuestOutcome,
    written: u32,
) -> Result<(), Broken> {
    let Some(vring) = &mut lane.vring else { return Ok(()) };
    status.tell(outcome);
    lane.answered = true;
    vring.answer(memory, head, written.saturating_add(1))
}
