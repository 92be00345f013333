//! Hosts that meet on one medium, period by period: each collects, and each publishes.

use std::sync::{Arc, Mutex};

use parda_control::{Instant, Span};
use parda_exchange::{Exchange, ExchangeEvent, HostName, Liveness, Peers, Publication, Standing};

use crate::common::publication;
use crate::faults::{Ears, Fault, Faulty};
use crate::media::Medium;

const PERIOD: Span = Span::from_millis(1_000);

/// Where a host is: an address on the network, whoever has it.
pub(crate) struct Host {
    exchange: Box<dyn Exchange>,
    peers: Peers,
    pub(crate) ears: Arc<Mutex<Ears>>,
    pub(crate) events: Vec<ExchangeEvent>,
    /// The window of its last publication, by which others tell how new it is.
    pub(crate) said: f64,
    /// It was stopped: it neither hears nor speaks.
    pub(crate) paused: bool,
}

pub(crate) struct Cluster {
    medium: Box<dyn Medium>,
    pub(crate) hosts: Vec<Option<Host>>,
    fault: Fault,
    period: u64,
    starts: u64,
}

impl Cluster {
    pub(crate) fn new(medium: Box<dyn Medium>, seats: usize) -> Cluster {
        let hosts = (0..seats).map(|_| None).collect();
        Cluster { medium, hosts, fault: Fault::None, period: 0, starts: 0 }
    }

    /// What happens to messages from now on, at all hosts.
    pub(crate) fn suffer(&mut self, fault: Fault) {
        self.fault = fault;
        for host in self.hosts.iter().flatten() {
            host.ears.lock().unwrap().fault = Some(fault);
        }
    }

    /// Starts a host of a volume at a seat.
    pub(crate) fn start(&mut self, seat: usize, name: &str, volume: &str) {
        self.hosts[seat] = None;
        self.starts += 1;
        let name = HostName::new(name).unwrap();
        let id = name.id();
        let exchange = self.medium.host(seat, name, volume, self.starts);
        let ears = Arc::new(Mutex::new(Ears { fault: Some(self.fault), ..Ears::default() }));
        self.hosts[seat] = Some(Host {
            exchange: Box::new(Faulty::new(exchange, Arc::clone(&ears), self.starts)),
            peers: Peers::new(id),
            ears,
            events: Vec::new(),
            said: 0.0,
            paused: false,
        });
    }

    /// A cluster of these hosts, one on each seat.
    pub(crate) fn with(mut self, names: &[&str]) -> Cluster {
        for (seat, name) in names.iter().enumerate() {
            self.start(seat, name, "array-a");
        }
        self
    }

    /// Ends a host without a word.
    pub(crate) fn kill(&mut self, seat: usize) {
        self.hosts[seat] = None;
    }

    pub(crate) fn host(&mut self, seat: usize) -> &mut Host {
        self.hosts[seat].as_mut().unwrap()
    }

    pub(crate) fn standing(&self, seat: usize) -> Standing {
        self.hosts[seat].as_ref().unwrap().exchange.standing()
    }

    /// What a host says as its last word.
    pub(crate) fn leave(&mut self, seat: usize) {
        let last = Publication { leaving: true, ..publication(0.0) };
        self.host(seat).exchange.publish(&last).unwrap();
        self.settle(&[seat]);
        self.kill(seat);
    }

    fn now(&self) -> Instant {
        Instant(self.period * PERIOD.0)
    }

    /// Runs so many periods of all hosts.
    pub(crate) fn periods(&mut self, count: u64) {
        for _ in 0..count {
            self.period += 1;
            let now = self.now();
            let mut spoke = Vec::new();
            for (seat, host) in self.hosts.iter_mut().enumerate() {
                let Some(host) = host.as_mut().filter(|host| !host.paused) else { continue };
                let heard = host.exchange.collect(now).unwrap();
                host.events.extend(heard.events);
                host.peers.observe(now, &heard.messages);
                host.said = self.period as f64;
                host.exchange.publish(&publication(host.said)).unwrap();
                spoke.push(seat);
            }
            self.settle(&spoke);
        }
    }

    /// Waits until what was said has come to all.
    fn settle(&mut self, spoke: &[usize]) {
        let standing = |seat: usize| Some(self.hosts[seat].as_ref()?.exchange.standing());
        self.medium.settle(spoke, &standing);
    }

    /// Names of other hosts, with how alive each looks and how many periods old what it said is.
    pub(crate) fn seen(&self, by: usize) -> Vec<(String, Liveness, u64)> {
        let peers = self.hosts[by].as_ref().unwrap().peers.all(self.now());
        let seen = peers.map(|peer| {
            let said = peer.message.body.report.window.0 as u64;
            (peer.message.from.host.to_string(), peer.liveness, self.period - said)
        });
        let mut seen: Vec<_> = seen.collect();
        seen.sort_by(|one, other| one.0.cmp(&other.0));
        seen
    }

    /// Names of other hosts that look so.
    pub(crate) fn names(&self, by: usize, liveness: Liveness) -> Vec<String> {
        let seen = self.seen(by).into_iter().filter(|(_, is, _)| *is == liveness);
        seen.map(|(name, ..)| name).collect()
    }

    /// Periods until something is so, at most `limit`.
    pub(crate) fn until(&mut self, limit: u64, what: &str, so: impl Fn(&Cluster) -> bool) {
        for _ in 0..limit {
            if so(self) {
                return;
            }
            self.periods(1);
        }
        if !so(self) {
            let seats = (0..self.hosts.len()).filter(|seat| self.hosts[*seat].is_some());
            let seen: Vec<_> = seats.map(|seat| (seat, self.seen(seat))).collect();
            panic!("after {limit} periods: {what}; {seen:?}");
        }
    }

    /// Every host sees all others alive.
    pub(crate) fn all_live(&self) -> bool {
        let there = self.hosts.iter().flatten().count();
        let seats = (0..self.hosts.len()).filter(|seat| self.hosts[*seat].is_some());
        seats.into_iter().all(|seat| self.names(seat, Liveness::Live).len() == there - 1)
    }

    /// Whether a host sees another one of its name.
    pub(crate) fn has_twin(&self, seat: usize) -> bool {
        self.hosts[seat].as_ref().unwrap().peers.twin(self.now()).is_some()
    }
}
