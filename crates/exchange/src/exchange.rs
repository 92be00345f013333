//! The trait of an exchange, with its messages, events, errors and state. A transport with slots
//! implements [`Region`](crate::region::Region), and [`SlotExchange`](crate::SlotExchange) does the rest.

use std::fmt;
use std::sync::Arc;

use parda_control::{Instant, Span};

use crate::counters::RecordCounters;
use crate::etcd::notice::{EtcdExchangeError, EtcdStanding};
use crate::fallback::{FallbackEvent, FallbackStanding};
use crate::message::{Message, Publication};
use crate::region::SlotIndex;
use crate::slots::notice::{SlotError, SlotEvent};
use crate::udp::notice::{DatagramStanding, UdpError, UdpEvent};

/// A transport of reports between the hosts of a volume.
///
/// Once per period, in this order: [`collect`](Self::collect), let the law tick,
/// [`publish`](Self::publish). Reading comes first, as a transport with slots must see whether another host has
/// overwritten its last publication. A failure of either loses this period only: report it
/// and go on.
pub trait Exchange: Send {
    /// Sends this host's report to all others. Blocks for a bounded time.
    fn publish(&mut self, publication: &Publication) -> Result<(), ExchangeError>;

    /// Reads the last messages of the others. Blocks for a bounded time. The same message may come many times:
    /// [`Peers`](crate::Peers) finds out which hosts are alive.
    fn collect(&mut self, now: Instant) -> Result<Collected, ExchangeError>;

    /// Called after a reload of the configuration. A place that was replaced since the last look was replaced on
    /// purpose, and keys are read again.
    fn reload(&mut self);

    /// Whether collections and publications are IOs of the array. If so, rounds become rarer where those of all hosts together
    /// would be a load on it.
    fn loads_array(&self) -> bool;

    /// The shortest period that the transport allows for this number of hosts, this one included.
    fn least_period(&self, _hosts: usize) -> Span {
        Span::ZERO
    }

    /// State and counters, for the operator.
    fn standing(&self) -> Standing;
}

/// Result of a collection. `Event` is the transport's own type of events within a transport.
#[derive(Clone, Debug, PartialEq)]
pub struct Collected<Event = ExchangeEvent> {
    /// The last message of each run that the transport still has. May include our own.
    pub messages: Vec<Arc<Message>>,
    /// Events for the operator, each returned once.
    pub events: Vec<Event>,
}

/// An event of an exchange, for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExchangeEvent {
    /// Of a transport with slots.
    Slot(SlotEvent),
    /// Of a transport over UDP.
    Udp(UdpEvent),
    /// Of an exchange with a fall-back: which of its two transports is in force, and whether both work.
    Fallback(FallbackEvent),
}

impl ExchangeEvent {
    /// Whether the event is a fault. Otherwise it is information.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        match self {
            ExchangeEvent::Slot(event) => !matches!(event, SlotEvent::SlotChosen(_)),
            ExchangeEvent::Udp(event) => event.is_warning(),
            ExchangeEvent::Fallback(event) => event.is_warning(),
        }
    }
}

impl fmt::Display for ExchangeEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExchangeEvent::Slot(event) => event.fmt(f),
            ExchangeEvent::Udp(event) => event.fmt(f),
            ExchangeEvent::Fallback(event) => event.fmt(f),
        }
    }
}

/// Reason why a collection or a publication failed.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// At a transport with slots.
    #[error(transparent)]
    Slots(#[from] SlotError),
    /// At a transport over UDP.
    #[error(transparent)]
    Udp(#[from] UdpError),
    /// At a transport over etcd.
    #[error(transparent)]
    Etcd(#[from] EtcdExchangeError),
}

/// The state of a transport, and what it has counted since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A transport with slots.
    Slots {
        /// Our slot, once there is one.
        slot: Option<SlotIndex>,
        /// Records read, ignored and noticed.
        counters: RecordCounters,
    },
    /// A transport over UDP.
    Datagrams(DatagramStanding),
    /// A transport over etcd.
    Etcd(EtcdStanding),
    /// A transport and its fall-back.
    Both(Box<FallbackStanding>),
}
