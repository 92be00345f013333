//! Two transports at once: a first transport, and slots as its fall-back.
//!
//! Both are used at all times, so that a fault of one for some hosts only loses no host. A message counts over whichever
//! transport it comes; a host that is heard over both counts once. While the first transport works, every second round visits
//! the fall-back, at half the cost of a fall-back alone. Each host judges its own transports, and hosts need not agree.
//!
//! The fall-back is *in force* at a host while the first transport fails there. Another case: a host is live in the fall-back
//! and not heard over the first transport. A fall-back in force is visited in each round.

use std::sync::Arc;

use parda_control::{Instant, Span};

use crate::exchange::{Collected, Exchange, ExchangeError, ExchangeEvent, Silence, Standing};
use crate::freshness::Liveness;
use crate::identity::HostId;
use crate::message::{Message, Publication};
use crate::peers::Peers;

/// Rounds from one visit to the fall-back to the next, while the first transport works.
const EVERY: u64 = 2;

/// Hysteresis in rounds. A host must be missing over the first transport for as long before the fall-back comes into force. All
/// must be well for as long before the first transport is in force again.
const ROUNDS: u32 = 4;

/// An exchange over two transports: a first one and its fall-back.
pub struct WithFallback {
    first: Half,
    second: Half,
    rounds: u64,
    /// Whether the fall-back is in force.
    fallen: bool,
    /// Rounds in a row in which a host was missing over the first transport.
    missing: u32,
    /// Rounds in a row in which the first transport worked and no host was missing.
    well: u32,
    /// Changes of the transport in force since the start.
    switches: u64,
    /// Whether the last event on the fall-back said that it does not work.
    broken: bool,
    /// Events for the next collection that succeeds.
    events: Vec<ExchangeEvent>,
}

/// One of the two transports.
struct Half {
    exchange: Box<dyn Exchange>,
    /// Other hosts, by the messages of this transport alone.
    peers: Peers,
    /// Messages of its last collection, repeated in rounds without a visit. Otherwise a dead run would be forgotten and then
    /// taken for a new one.
    last: Vec<Arc<Message>>,
    /// Fault of its last collection.
    unread: Option<String>,
    /// Fault of its last publication.
    unwritten: Option<String>,
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
    /// Number of changes of the transport in force, since the start.
    pub switches: u64,
    /// Present faults of the first transport and of the fall-back.
    pub faults: [Option<String>; 2],
}

impl Half {
    fn new(exchange: Box<dyn Exchange>, me: HostId) -> Half {
        let (peers, last) = (Peers::new(me), Vec::new());
        Half { exchange, peers, last, unread: None, unwritten: None }
    }

    fn fault(&self) -> Option<&String> {
        self.unread.as_ref().or(self.unwritten.as_ref())
    }

    fn collect(&mut self, now: Instant) -> Result<Collected, ExchangeError> {
        let heard = self.exchange.collect(now);
        self.unread = heard.as_ref().err().map(ToString::to_string);
        if let Ok(heard) = &heard {
            self.last.clone_from(&heard.messages);
        }
        self.peers.observe(now, &self.last);
        heard
    }

    fn publish(&mut self, publication: &Publication) -> Result<(), ExchangeError> {
        let published = self.exchange.publish(publication);
        self.unwritten = published.as_ref().err().map(ToString::to_string);
        published
    }
}

impl WithFallback {
    /// Two exchanges of the host `me`.
    #[must_use]
    pub fn new(first: Box<dyn Exchange>, second: Box<dyn Exchange>, me: HostId) -> WithFallback {
        let half = |exchange| Half::new(exchange, me);
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

    /// Name of a host that is live in the fall-back and not heard over the first transport.
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
    fn judge(&mut self, now: Instant) -> Option<ExchangeEvent> {
        let missing = self.missing(now);
        self.missing = if missing.is_some() { self.missing + 1 } else { 0 };
        let why = match (self.first.fault(), missing) {
            (Some(fault), _) => Some(fault.clone()),
            (None, Some(host)) => (self.missing >= ROUNDS)
                .then(|| format!("host '{host}' is heard there and not over the first transport")),
            (None, None) => None,
        };
        self.well =
            if self.first.fault().is_none() && self.missing == 0 { self.well + 1 } else { 0 };
        let event = match why {
            Some(why) if !self.fallen => {
                ExchangeEvent::warning(format!("the exchange's fall-back is in force: {why}"))
            }
            None if self.fallen && self.well >= ROUNDS => {
                ExchangeEvent::info("the exchange's fall-back is no longer in force")
            }
            _ => return None,
        };
        self.fallen = !self.fallen;
        self.switches += 1;
        Some(event)
    }

    /// The event that the fall-back has stopped or begun to work, if it has.
    fn examine(&mut self) -> Option<ExchangeEvent> {
        let fault = self.second.fault().cloned();
        let event = match fault {
            Some(why) if !self.broken => ExchangeEvent::warning(format!(
                "the exchange's fall-back does not work: {why}; the exchange goes on"
            )),
            None if self.broken => ExchangeEvent::info("the exchange's fall-back works again"),
            _ => return None,
        };
        self.broken = !self.broken;
        Some(event)
    }
}

impl Exchange for WithFallback {
    fn publish(&mut self, publication: &Publication) -> Result<(), ExchangeError> {
        // The goodbye goes over both transports.
        let both = self.visits_both() || publication.leaving;
        let first = self.first.publish(publication);
        if !both && first.is_ok() {
            return first;
        }
        let second = self.second.publish(publication);
        if first.is_ok() || second.is_ok() { Ok(()) } else { first }
    }

    fn collect(&mut self, now: Instant) -> Result<Collected, ExchangeError> {
        self.rounds += 1;
        let first = self.first.collect(now);
        let second = self.visits_both().then(|| self.second.collect(now));
        let own = [self.examine(), self.judge(now)];
        self.events.extend(own.into_iter().flatten());
        let mut events = match (first, second) {
            (Ok(heard), Some(Ok(more))) => heard.events.into_iter().chain(more.events).collect(),
            (Ok(heard), _) | (Err(_), Some(Ok(heard))) => heard.events,
            (Err(error), _) => return Err(error),
        };
        events.append(&mut self.events);
        let messages = self.first.last.iter().chain(&self.second.last).cloned().collect();
        Ok(Collected { messages, events })
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

    /// Silence of the first transport, unless the fall-back is in force: that says why by itself.
    fn silence(&self) -> Option<Silence> {
        self.first.exchange.silence().filter(|_| !self.fallen)
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
