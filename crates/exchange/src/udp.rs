//! The transport over UDP: PARDA's aggregation over the network (§4). In each period a host sends one datagram to
//! each other host, or one to a multicast group. `docs/exchange-format.md` has the format of a datagram, and the protection
//! against forged and replayed ones.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use parda_control::Instant;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::exchange::{Collected, Exchange, ExchangeError, ExchangeEvent, Silence, Standing};
use crate::identity::{HostName, Identity, Incarnation, Sequence, VolumeId};
use crate::message::{Message, Publication};

use destinations::Destinations;
use members::Members;
use reader::{Inbox, Reader, lock};
use refusals::Refusals;

mod counters;
pub mod datagram;
mod destinations;
mod key;
mod marks;
mod members;
mod reader;
mod refusals;
mod socket;

pub use counters::{DatagramStanding, OneWay, Refused};
pub use destinations::{MOST_PEERS, PeerAddress};
pub use key::{KeyFileError, Keys, MOST_KEYS};

/// Longest time that a publication waits for room in the socket's send buffer, over all destinations.
const SEND_LIMIT: Duration = Duration::from_millis(50);

/// The hosts to which each period's datagram goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UdpReach {
    /// The addresses of all hosts. The list may include our own.
    Peers(Vec<PeerAddress>),
    /// The multicast group whose address is the exchange's.
    Group {
        /// Name of the interface.
        interface: String,
    },
}

/// Source of the keys that sign and verify datagrams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// A key file, read again on [`Exchange::reload`].
    File(PathBuf),
    /// One public key. Only for loopback addresses.
    Loopback,
}

/// Settings of an exchange over UDP.
#[derive(Clone, Debug)]
pub struct UdpSettings {
    /// Name of this host.
    pub host: HostName,
    /// The volume of the exchange. Datagrams on other volumes are refused.
    pub volume: VolumeId,
    /// Address of this host, or the multicast group.
    pub address: SocketAddr,
    /// The hosts to which each period's datagram goes.
    pub reach: UdpReach,
    /// Source of the keys that sign and verify datagrams.
    pub keys: KeySource,
}

/// An exchange over UDP: the [`Exchange`] of one run of a host.
#[derive(Debug)]
pub struct UdpExchange {
    settings: UdpSettings,
    me: Identity,
    sequence: Sequence,
    inbox: Arc<Mutex<Inbox>>,
    /// Whether the keys have been read. Before that nothing is received or sent.
    has_keys: bool,
    to: Destinations,
    open: Option<Open>,
    events: Vec<ExchangeEvent>,
    /// Faults of the last look-up of names, so that each is reported once.
    unknown: Vec<String>,
}

#[derive(Debug)]
struct Open {
    socket: Arc<UdpSocket>,
    reader: Reader,
}

impl UdpExchange {
    /// An exchange that is not open yet: [`Exchange::collect`] opens it, and tries again in each period, as the address may come
    /// up later than the agent. Each exchange is a run of its own, as its sequence numbers begin anew.
    #[must_use]
    pub fn new(settings: UdpSettings) -> UdpExchange {
        let me = Identity { host: settings.host.clone(), incarnation: Incarnation::starting_now() };
        let peers = match &settings.reach {
            UdpReach::Peers(peers) => peers.as_slice(),
            UdpReach::Group { .. } => &[],
        };
        let inbox = Inbox {
            members: Members::new(me.clone(), settings.volume),
            keys: Arc::new(Keys::public()),
            refusals: Refusals::default(),
        };
        UdpExchange {
            to: Destinations::new(settings.address, peers),
            inbox: Arc::new(Mutex::new(inbox)),
            me,
            sequence: Sequence::default(),
            has_keys: settings.keys == KeySource::Loopback,
            settings,
            open: None,
            events: Vec::new(),
            unknown: Vec::new(),
        }
    }

    fn fault(&self, fault: impl fmt::Display) -> ExchangeError {
        ExchangeError::new(format!("exchange udp {}: {fault}", self.settings.address))
    }

    /// Reads the keys, binds the socket and starts its reader. Steps that are already done are skipped.
    fn open(&mut self) -> Result<(), ExchangeError> {
        if !self.has_keys
            && let KeySource::File(file) = &self.settings.keys
        {
            let keys = Keys::read(file).map_err(|e| self.fault(e))?;
            lock(&self.inbox).keys = Arc::new(keys);
            self.has_keys = true;
        }
        if self.open.as_ref().is_some_and(|open| open.reader.has_ended()) {
            self.open = None;
        }
        if self.open.is_none() {
            let interface = match &self.settings.reach {
                UdpReach::Peers(_) => None,
                UdpReach::Group { interface } => Some(interface.as_str()),
            };
            let socket = socket::open(self.settings.address, interface)
                .map_err(|e| self.fault(format!("cannot bind: {e}")))?;
            let socket = Arc::new(socket);
            let reader = Reader::start(Arc::clone(&socket), Arc::clone(&self.inbox))
                .map_err(|e| self.fault(format!("cannot start its thread: {e}")))?;
            self.open = Some(Open { socket, reader });
        }
        Ok(())
    }

    fn look_up_names(&mut self) {
        let heard: BTreeSet<SocketAddr> = lock(&self.inbox).members.sources().collect();
        let Some(faults) = self.to.look_up(&heard) else { return };
        let new = faults.iter().filter(|fault| !self.unknown.contains(fault));
        let told = |fault| ExchangeEvent::warning(format!("{fault}; it is looked up again"));
        self.events.extend(new.map(told));
        self.unknown = faults;
    }

    /// Hosts that are heard and do not hear this one: how many, and the first of them.
    fn one_way(&self, members: &Members) -> (usize, Vec<OneWay>) {
        match self.settings.reach {
            UdpReach::Peers(_) => {
                let to = self.to.addresses();
                members.one_way(|from| to.contains(from))
            }
            // Every sender in the group is a peer.
            UdpReach::Group { .. } => members.one_way(|_| true),
        }
    }

    /// Known cause of the silence.
    fn silence_of(&self, peers: usize, members: &Members) -> String {
        let address = self.settings.address;
        if self.to.are_this_host() {
            return format!(
                "nobody is heard: `peers` has no address but this host's own, {address}"
            );
        }
        let (hosts, one_way) = members.one_way(|_| true);
        if let Some(OneWay { host, from, .. }) = one_way.first() {
            let more = if hosts > 1 { format!(" and {} more", hosts - 1) } else { String::new() };
            return format!(
                "nobody hears this host: {host} at {from}{more} sends and has not shown that it hears this host; compare `peers` with \
                 the addresses of the hosts"
            );
        }
        let counted =
            [Refused::UnknownKey, Refused::OtherVolume, Refused::Forged, Refused::OtherVersion];
        let counted = counted.into_iter().filter(|why| members.counters.refused[why.name()] > 0);
        let counted: Vec<_> = counted.map(|why| format!("datagrams {why} came")).collect();
        let causes = match counted[..] {
            [] => format!(
                "they are down, do not have {address} in their `peers`, or the network drops the datagrams"
            ),
            _ => counted.join(", "),
        };
        format!("nobody hears this host, and none of its {peers} peers is heard: {causes}")
    }

    fn send(&self, bytes: &[u8]) -> SendCount {
        let mut sent = SendCount::default();
        let Some(open) = &self.open else { return sent };
        let addresses = match &self.settings.reach {
            UdpReach::Peers(_) => self.to.addresses(),
            UdpReach::Group { .. } => [self.settings.address].into(),
        };
        let begun = parda_awake::Instant::now();
        for to in addresses {
            let mut result = open.socket.send_to(bytes, to);
            while would_block(&result)
                && let Some(left) = SEND_LIMIT.checked_sub(begun.elapsed())
                && wait_for_room(&open.socket, left)
            {
                result = open.socket.send_to(bytes, to);
            }
            match result {
                Ok(_) => sent.sent += 1,
                Err(error) => {
                    sent.unsent += 1;
                    sent.error = Some((to, error));
                }
            }
        }
        sent
    }
}

/// Numbers of datagrams that the kernel took and refused in one period, and the last error.
#[derive(Debug, Default)]
struct SendCount {
    sent: u64,
    unsent: u64,
    error: Option<(SocketAddr, io::Error)>,
}

fn would_block(result: &io::Result<usize>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// Waits until the socket has room, for `limit` at most. Returns whether it has.
fn wait_for_room(socket: &UdpSocket, limit: Duration) -> bool {
    let limit = Timespec { tv_sec: 0, tv_nsec: i64::from(limit.subsec_nanos()) };
    let mut wait = [PollFd::new(socket, PollFlags::OUT)];
    poll(&mut wait, Some(&limit)).is_ok_and(|ready| ready > 0)
}

impl Exchange for UdpExchange {
    fn collect(&mut self, now: Instant) -> Result<Collected, ExchangeError> {
        self.open()?;
        self.look_up_names();
        let mut events = std::mem::take(&mut self.events);
        let mut inbox = lock(&self.inbox);
        events.extend(inbox.refusals.due(now).into_iter().map(ExchangeEvent::from));
        Ok(Collected { messages: inbox.members.messages(), events })
    }

    fn publish(&mut self, publication: &Publication) -> Result<(), ExchangeError> {
        self.open()?;
        self.sequence = self.sequence.next();
        let message = Message::new(self.me.clone(), self.sequence, publication.clone());
        let mut inbox = lock(&self.inbox);
        let echoes = inbox.members.echoes();
        let (bytes, mark) = datagram::seal(&inbox.keys, self.settings.volume, &message, &echoes)
            .map_err(|e| self.fault(e))?;
        // Before it is sent: an answer may come at once.
        inbox.members.publish(mark);
        drop(inbox);
        if let (UdpReach::Peers(_), Some(why)) = (&self.settings.reach, self.to.unknown()) {
            return Err(self.fault(format!("no peer has an address: {why}")));
        }
        let sent = self.send(&bytes);
        let mut inbox = lock(&self.inbox);
        let counters = &mut inbox.members.counters;
        (counters.sent, counters.unsent) =
            (counters.sent + sent.sent, counters.unsent + sent.unsent);
        drop(inbox);
        match sent.error {
            Some((to, error)) if sent.sent == 0 => {
                let why = format!("cannot send to {to}, nor to any other host: {error}");
                Err(self.fault(why))
            }
            _ => Ok(()),
        }
    }

    /// Reads the key file again. If it cannot be read, the keys in force stay.
    fn reload(&mut self) {
        let KeySource::File(file) = &self.settings.keys else { return };
        match Keys::read(file) {
            Ok(keys) => {
                let mut inbox = lock(&self.inbox);
                if self.has_keys && *inbox.keys != keys {
                    let count = keys.count();
                    self.events.push(ExchangeEvent::info(format!(
                        "the exchange's keys were read again: {count} in force"
                    )));
                }
                inbox.keys = Arc::new(keys);
                self.has_keys = true;
            }
            Err(error) if self.has_keys => self.events.push(ExchangeEvent::warning(format!(
                "{error}; the exchange's keys from before stay in force"
            ))),
            // There were no keys before: the next collection fails with the error.
            Err(_) => {}
        }
    }

    fn loads_array(&self) -> bool {
        false
    }

    fn silence(&self) -> Option<Silence> {
        let UdpReach::Peers(peers) = &self.settings.reach else { return None };
        let inbox = lock(&self.inbox);
        let rounds = inbox.members.alone_for()?;
        let why = self.silence_of(peers.len(), &inbox.members);
        Some(Silence { rounds, why })
    }

    fn standing(&self) -> Standing {
        let inbox = lock(&self.inbox);
        let (one_way_hosts, one_way) = self.one_way(&inbox.members);
        Standing::Datagrams(DatagramStanding {
            unproven: inbox.members.unproven(),
            one_way_hosts,
            one_way,
            keys: if self.has_keys { inbox.keys.count() } else { 0 },
            ..inbox.members.counters.clone()
        })
    }
}

/// Reason why a socket cannot be opened for an exchange; `None` if it can. Any free port is bound: a running agent may have the
/// exchange's own port.
#[must_use]
pub fn examine(address: SocketAddr, reach: &UdpReach) -> Option<String> {
    let interface = match reach {
        UdpReach::Peers(_) => None,
        UdpReach::Group { interface } => Some(interface.as_str()),
    };
    let fault = socket::open(SocketAddr::new(address.ip(), 0), interface).err()?;
    Some(format!("cannot bind: {fault}"))
}

/// Whether a receiver without a key file accepts these bytes as a datagram. For fuzzing: no bytes may make it panic.
#[must_use]
pub fn is_datagram(bytes: &[u8]) -> bool {
    datagram::open(&PUBLIC, bytes).is_ok()
}

/// Signs bytes as a host without a key file does, for fuzzing past the signature.
#[must_use]
pub fn signed(bytes: &[u8]) -> Vec<u8> {
    datagram::signed(&PUBLIC, bytes)
}

/// Keys of a host without a key file, derived once.
static PUBLIC: LazyLock<Keys> = LazyLock::new(Keys::public);

#[cfg(test)]
mod tests;
