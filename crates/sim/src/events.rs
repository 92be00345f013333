//! The queue of events, in the order of virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use parda_control::{Instant, IoId, VmId};
use parda_scenario::HostId;

use crate::demand::ClientRun;

/// One life of a host's agent. What was meant for an earlier one is not for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Life(pub(crate) u64);

/// Something that is going to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// Phases begin or end.
    Edge,
    /// Another second is over.
    Second,
    /// The scenario's next event.
    Timeline(usize),
    /// Something comes for a host's agent.
    Agent(HostId, Life, Delivery),
    /// An IO of an open loop arrives.
    Arrival(HostId, VmId, ClientRun),
    /// A burst of a client begins or ends.
    Burst(HostId, VmId, ClientRun),
}

/// What comes for an agent: now, or once it no longer hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Delivery {
    /// The array has done an IO.
    Done(IoId),
    /// A visit to the exchange has worked, or its time is over.
    Visited(Visit, bool),
    /// Its period is over.
    Tick,
    /// Its gate opens, as it was to do then.
    Wake(Instant),
    /// A VM's shares change.
    Settings(VmId),
}

/// One IO on the exchange, by its number in the life of its host's agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Visit(pub(crate) u64);

/// What is going to happen, by time; at one time, in the order in which it was planned.
#[derive(Debug, Default)]
pub(crate) struct Events {
    heap: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    planned: u64,
}

impl Events {
    pub(crate) fn plan(&mut self, at: Instant, event: Event) {
        self.heap.push(Reverse((at, self.planned, event)));
        self.planned += 1;
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        self.heap.pop().map(|Reverse((.., event))| event)
    }
}
