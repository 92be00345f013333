//! The trait of an exchange, with its messages, events, errors and state. A transport with slots
//! implements [`Region`](crate::region::Region), and [`SlotExchange`](crate::SlotExchange) does the rest.

use std::fmt;
use std::sync::Arc;

use parda_control::{Instant, Span};

use crate::counters::RecordCounters;
use crate::etcd::EtcdStanding;
use crate::fallback::FallbackStanding;
use crate::message::{Message, Publication};
use crate::region::SlotIndex;
use crate::udp::DatagramStanding;

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

    /// Whether collections and publications are IOs of the array. If so, rounds become rarer where the rounds of all hosts
    /// together would load it.
    fn loads_array(&self) -> bool;

    /// The shortest period that the transport allows for this number of hosts, this one included.
    fn least_period(&self, _hosts: usize) -> Span {
        Span::ZERO
    }

    /// Report that other hosts are expected, and none was ever heard, or all were silent until forgotten. `None` where some are
    /// heard, or where the transport has no list of expected hosts.
    fn silence(&self) -> Option<Silence> {
        None
    }

    /// State and counters, for the operator.
    fn standing(&self) -> Standing;
}

/// Other hosts are expected, and none is heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence {
    /// Publications since a host was last heard, or since the start.
    pub rounds: u64,
    /// Known cause, as text for the operator.
    pub why: String,
}

/// Result of a collection.
#[derive(Clone, Debug, PartialEq)]
pub struct Collected {
    /// The last message of each run that the transport still has. May include our own.
    pub messages: Vec<Arc<Message>>,
    /// Events for the operator, each returned once.
    pub events: Vec<ExchangeEvent>,
}

/// An event of an exchange, as text for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangeEvent {
    text: String,
    is_warning: bool,
}

impl ExchangeEvent {
    pub(crate) fn info(text: impl Into<String>) -> ExchangeEvent {
        ExchangeEvent { text: text.into(), is_warning: false }
    }

    pub(crate) fn warning(text: impl Into<String>) -> ExchangeEvent {
        ExchangeEvent { text: text.into(), is_warning: true }
    }

    /// Whether the event is a fault. Otherwise it is information.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        self.is_warning
    }
}

impl fmt::Display for ExchangeEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Reason why a collection or a publication failed, as text for the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ExchangeError(String);

impl ExchangeError {
    pub(crate) fn new(why: impl fmt::Display) -> ExchangeError {
        ExchangeError(why.to_string())
    }
}

/// The state of a transport, and its counters since the start.
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
