//! The trait of an exchange, what is heard over it and what is noticed on the way. A transport with slots
//! implements [`Region`](crate::region::Region), and [`SlotExchange`](crate::SlotExchange) does the rest.

use std::fmt;
use std::sync::Arc;

use parda_control::{Instant, Span};

use crate::etcd::notice::{EtcdEvent, EtcdExchangeError, EtcdStanding};
use crate::fallback::{FallbackEvent, FallbackStanding};
use crate::message::{Message, Publication};
use crate::region::SlotIndex;
use crate::slots::notice::{SlotCollectError, SlotCounters, SlotEvent, SlotPublishError};
use crate::udp::notice::{DatagramStanding, UdpError, UdpEvent};

/// A way to tell the other hosts of a volume how loaded it looks.
///
/// Once per period, in this order: [`collect`](Self::collect), let the law tick,
/// [`publish`](Self::publish). Reading comes first because only then does a transport with slots see what
/// others wrote over its last publication. A failure of either loses nothing but this period:
/// say so and go on.
pub trait Exchange: Send {
    /// Says what this host found, to all others. Blocks for a bounded time.
    fn publish(&mut self, publication: &Publication) -> Result<(), PublishError>;

    /// Reads what the others said last. Blocks for a bounded time. The same message may come many times;
    /// [`Peers`](crate::Peers) tells who is alive.
    fn collect(&mut self, now: Instant) -> Result<Heard, CollectError>;

    /// Takes note that the operator has had the configuration read again: what was replaced meanwhile was
    /// replaced on purpose.
    fn reload(&mut self);

    /// Whether each collection and publication is an IO of the array, so that hosts should meet less often
    /// where all of them together would be a load.
    fn loads_array(&self) -> bool;

    /// The shortest period at which so many hosts may meet, this one included, whatever the array does.
    fn least_period(&self, _hosts: usize) -> Span {
        Span::ZERO
    }

    /// What was counted so far, for an operator.
    fn standing(&self) -> Standing;
}

/// What one look at the exchange brought. `Event` is the transport's own kind of events within a transport.
#[derive(Clone, Debug, PartialEq)]
pub struct Heard<Event = ExchangeEvent> {
    /// The last message of everyone who ever spoke and was not written over. May include oneself.
    pub messages: Vec<Arc<Message>>,
    /// What an operator should know, each said once.
    pub events: Vec<Event>,
}

/// Something an operator should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExchangeEvent {
    /// Of a transport with slots.
    Slot(SlotEvent),
    /// Of a transport over UDP.
    Udp(UdpEvent),
    /// Of a transport over etcd.
    Etcd(EtcdEvent),
    /// Of an exchange with a fall-back: which of its two transports is in force, and whether both work.
    Fallback(FallbackEvent),
}

impl ExchangeEvent {
    /// Whether something is wrong. Else it is news.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        match self {
            ExchangeEvent::Slot(event) => !matches!(event, SlotEvent::SlotChosen(_)),
            ExchangeEvent::Udp(event) => event.is_warning(),
            ExchangeEvent::Etcd(EtcdEvent::DuplicateHost { .. }) => true,
            ExchangeEvent::Fallback(event) => event.is_warning(),
        }
    }
}

impl fmt::Display for ExchangeEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExchangeEvent::Slot(event) => event.fmt(f),
            ExchangeEvent::Udp(event) => event.fmt(f),
            ExchangeEvent::Etcd(event) => event.fmt(f),
            ExchangeEvent::Fallback(event) => event.fmt(f),
        }
    }
}

/// Hearing the others failed.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// At a transport with slots.
    #[error(transparent)]
    Slots(#[from] SlotCollectError),
    /// At a transport over UDP.
    #[error(transparent)]
    Udp(#[from] UdpError),
    /// At a transport over etcd.
    #[error(transparent)]
    Etcd(#[from] EtcdExchangeError),
}

/// Publishing to the others failed.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// At a transport with slots.
    #[error(transparent)]
    Slots(#[from] SlotPublishError),
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
        counters: SlotCounters,
    },
    /// A transport over UDP.
    Datagrams(DatagramStanding),
    /// A transport over etcd.
    Etcd(EtcdStanding),
    /// A transport and its fall-back.
    Both(Box<FallbackStanding>),
}
