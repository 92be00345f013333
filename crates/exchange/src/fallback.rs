//! Two transports at once: a first one, and slots of a file as its fall-back.
//!
//! Both are used at all times, so that no host is lost while one of them fails for some hosts and not for
//! others: what is heard over either is heard, and a host that is heard over both counts once, as its runs do. While
//! the first one works, the fall-back is visited in every second round, which is half of what it costs alone. A host
//! judges its own transports; hosts need not agree.
//!
//! The fall-back is *in force* at a host while the first transport fails there, or does not carry a host that lives
//! in the fall-back. It is visited in each round then.

use std::fmt;
use std::sync::Arc;

use parda_control::{Instant, Span};

use crate::etcd::notice::EtcdEvent;
use crate::exchange::{CollectError, Exchange, ExchangeEvent, Heard, PublishError, Standing};
use crate::freshness::{Freshness, Liveness};
use crate::identity::HostId;
use crate::message::{Message, Publication};
use crate::peers::Peers;
use crate::slots::notice::SlotEvent;
use crate::udp::notice::UdpEvent;

/// Rounds between two visits to the fall-back while the first transport works.
const EVERY: u64 = 2;

/// Rounds for which a host must be missing in the first transport before the fall-back is in force, and for which the
/// first one must work before it is in force again.
const ROUNDS: u32 = 4;

/// An exchange and its fall-back.
pub struct WithFallback {
    first: Half,
    second: Half,
    rounds: u64,
    /// The fall-back is in force.
    fallen: bool,
    /// For how many rounds a host was missing, and for how many all was well.
    missing: u32,
    well: u32,
    switches: u64,
    /// The log has it that the fall-back does not work.
    broken: bool,
    /// What is to be told with the next collection that works.
    events: Vec<ExchangeEvent>,
}

/// One of the two transports.
struct Half {
    exchange: Box<dyn Exchange>,
    /// Hosts as this transport alone shows them.
    peers: Peers,
    /// What it brought last. It is repeated in rounds that do not visit it: a dead run must not be forgotten and found
    /// anew.
    last: Vec<Arc<Message>>,
    /// Faults of its last collection and of its last publication.
    unread: Option<String>,
    unwritten: Option<String>,
}

/// Something about two transports that an operator should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FallbackEvent {
    /// The fall-back is in force from now on.
    Fallen {
        /// Why the first transport is not.
        why: String,
    },
    /// The first transport is in force again.
    Back,
    /// The fall-back does not work.
    Broken {
        /// Fault of the fall-back, as text.
        why: String,
    },
    /// The fall-back works again.
    Mended,
}

impl FallbackEvent {
    /// Whether something is wrong. Else it is news.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        matches!(self, FallbackEvent::Fallen { .. } | FallbackEvent::Broken { .. })
    }
}

impl fmt::Display for FallbackEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FallbackEvent::Fallen { why } => {
                write!(f, "the exchange's fall-back is in force: {why}")
            }
            FallbackEvent::Back => f.write_str("the exchange's fall-back is no longer in force"),
            FallbackEvent::Broken { why } => {
                write!(f, "the exchange's fall-back does not work: {why}; the exchange goes on")
            }
            FallbackEvent::Mended => f.write_str("the exchange's fall-back works again"),
        }
    }
}

/// The state of two transports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FallbackStanding {
    /// State of the first transport.
    pub first: Standing,
    /// State of the fall-back.
    pub second: Standing,
    /// Whether the fall-back is in force.
    pub in_force: bool,
    /// How often that changed since the start.
    pub switches: u64,
    /// Faults of the two, as they are now.
    pub faults: [Option<String>; 2],
}

impl Half {
    fn new(exchange: Box<dyn Exchange>, me: HostId, freshness: Freshness) -> Half {
        let (peers, last) = (Peers::new(me, freshness), Vec::new());
        Half { exchange, peers, last, unread: None, unwritten: None }
    }

    fn fault(&self) -> Option<&String> {
        self.unread.as_ref().or(self.unwritten.as_ref())
    }

    fn collect(&mut self, now: Instant) -> Result<Heard, CollectError> {
        let heard = self.exchange.collect(now);
        self.unread = heard.as_ref().err().map(ToString::to_string);
        if let Ok(heard) = &heard {
            self.last.clone_from(&heard.messages);
        }
        self.peers.observe(now, &self.last);
        heard
    }

    fn publish(&mut self, publication: &Publication) -> Result<(), PublishError> {
        let published = self.exchange.publish(publication);
        self.unwritten = published.as_ref().err().map(ToString::to_string);
        published
    }
}

impl WithFallback {
    /// Two exchanges of the host `me`.
    #[must_use]
    pub fn new(
        first: Box<dyn Exchange>,
        second: Box<dyn Exchange>,
        me: HostId,
        freshness: Freshness,
    ) -> WithFallback {
        let half = |exchange| Half::new(exchange, me, freshness);
        WithFallback {
            first: half(first),
            second: half(second),
            rounds: 0,
            fallen: false,
            missing: 0,
            well: 0,
            switches: 0,
            broken: false,
            events: Vec::new(),
        }
    }

    /// Whether the fall-back is visited in this round.
    fn visits_both(&self) -> bool {
        self.fallen || self.rounds % EVERY == 1 || self.first.fault().is_some()
    }

    /// A host that lives in the fall-back, and not in the first transport.
    fn missing(&self, now: Instant) -> Option<String> {
        let heard = |host: HostId| {
            self.first.peers.all(now).any(|peer| {
                peer.message.from.host.id() == host
                    && matches!(peer.liveness, Liveness::Live | Liveness::Left)
            })
        };
        let mut there = self.second.peers.all(now);
        let lost = there
            .find(|peer| peer.liveness == Liveness::Live && !heard(peer.message.from.host.id()));
        lost.map(|peer| peer.message.from.host.to_string())
    }

    /// Decides which transport is in force, at the end of a collection.
    fn judge(&mut self, now: Instant) -> Option<FallbackEvent> {
        let missing = self.missing(now);
        self.missing = if missing.is_some() { self.missing + 1 } else { 0 };
        let why = match (self.first.fault(), missing) {
            (Some(fault), _) => Some(fault.clone()),
            (None, Some(host)) => (self.missing >= ROUNDS)
                .then(|| format!("host '{host}' is heard there, and not over the first transport")),
            (None, None) => None,
        };
        self.well =
            if self.first.fault().is_none() && self.missing == 0 { self.well + 1 } else { 0 };
        let event = match why {
            Some(why) if !self.fallen => FallbackEvent::Fallen { why },
            None if self.fallen && self.well >= ROUNDS => FallbackEvent::Back,
            _ => return None,
        };
        self.fallen = !self.fallen;
        self.switches += 1;
        Some(event)
    }

    /// News of whether the fall-back works.
    fn examine(&mut self) -> Option<FallbackEvent> {
        let fault = self.second.fault().cloned();
        let event = match fault {
            Some(why) if !self.broken => FallbackEvent::Broken { why },
            None if self.broken => FallbackEvent::Mended,
            _ => return None,
        };
        self.broken = !self.broken;
        Some(event)
    }
}

/// Whether an event names another host of our name, which the first transport names as well.
fn names_twin(event: &ExchangeEvent) -> bool {
    matches!(
        event,
        ExchangeEvent::Slot(SlotEvent::DuplicateHost { .. })
            | ExchangeEvent::Udp(UdpEvent::DuplicateHost { .. })
            | ExchangeEvent::Etcd(EtcdEvent::DuplicateHost { .. })
    )
}

impl Exchange for WithFallback {
    fn publish(&mut self, publication: &Publication) -> Result<(), PublishError> {
        // The last word goes to both.
        let both = self.visits_both() || publication.leaving;
        let first = self.first.publish(publication);
        if !both && first.is_ok() {
            return first;
        }
        let second = self.second.publish(publication);
        if first.is_ok() || second.is_ok() { Ok(()) } else { first }
    }

    fn collect(&mut self, now: Instant) -> Result<Heard, CollectError> {
        self.rounds += 1;
        let first = self.first.collect(now);
        let second = self.visits_both().then(|| self.second.collect(now));
        let own = [self.examine(), self.judge(now)].into_iter().flatten();
        self.events.extend(own.map(ExchangeEvent::Fallback));
        let mut events = match (first, second) {
            (Ok(heard), Some(Ok(more))) => {
                // While both work, one of them names a twin.
                let more = more.events.into_iter().filter(|event| !names_twin(event));
                heard.events.into_iter().chain(more).collect()
            }
            (Ok(heard), _) | (Err(_), Some(Ok(heard))) => heard.events,
            (Err(error), _) => return Err(error),
        };
        events.append(&mut self.events);
        let messages = self.first.last.iter().chain(&self.second.last).cloned().collect();
        Ok(Heard { messages, events })
    }

    fn reload(&mut self) {
        self.first.exchange.reload();
        self.second.exchange.reload();
    }

    fn loads_array(&self) -> bool {
        self.first.exchange.loads_array() || self.second.exchange.loads_array()
    }

    fn least_period(&self, hosts: usize) -> Span {
        let [first, second] =
            [&self.first, &self.second].map(|half| half.exchange.least_period(hosts));
        first.max(second)
    }

    fn standing(&self) -> Standing {
        Standing::Both(Box::new(FallbackStanding {
            first: self.first.exchange.standing(),
            second: self.second.exchange.standing(),
            in_force: self.fallen,
            switches: self.switches,
            faults: [&self.first, &self.second].map(|half| half.fault().cloned()),
        }))
    }
}

#[cfg(test)]
mod tests;
