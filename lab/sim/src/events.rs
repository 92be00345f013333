//! The queue of events, in the order of virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use parda_control::{Instant, IoId, VmId};
use parda_scenario::HostIndex;

use crate::demand::ClientRun;

/// One life of a host's agent. Events for an earlier life are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Life(pub(crate) u64);

/// An event to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// Phases begin or end.
    Edge,
    /// Another second has passed.
    Second,
    /// The scenario's next event.
    Timeline(usize),
    /// A delivery for a host's agent.
    Agent(HostIndex, Life, Delivery),
    /// An IO of an open loop arrives.
    Arrival(HostIndex, VmId, ClientRun),
    /// A burst of a client begins or ends.
    Burst(HostIndex, VmId, ClientRun),
}

/// Delivery for an agent: now, or once it no longer hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Delivery {
    /// The array has completed an IO.
    Done(IoId),
    /// A visit to the exchange has succeeded (true), or timed out.
    Visited(Visit, bool),
    /// The agent's period is over.
    Tick,
    /// A wakeup of the gate, planned for this time.
    Wake(Instant),
    /// A VM's shares change.
    Settings(VmId),
}

/// One IO on the exchange, by its number in the life of its host's agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Visit(pub(crate) u64);

/// Events to come, in order of time; at equal times, in the order of planning.
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
