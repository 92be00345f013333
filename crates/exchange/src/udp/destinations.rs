//! Addresses of the other hosts. Names are looked up on a thread of their own, as a look-up may take minutes.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::reader::lock;

/// Most peers in a configuration.
pub const MOST_PEERS: usize = 1024;

/// Time between two look-ups while a name has no address.
const UNKNOWN_AGAIN: Duration = Duration::from_secs(5);

/// Time between two look-ups while a name has an address from which nothing is heard.
const SILENT_AGAIN: Duration = Duration::from_secs(30);

/// Another host, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerAddress {
    /// An address, which needs no look-up.
    Address(SocketAddr),
    /// A name and a port.
    Name(String, u16),
}

impl PeerAddress {
    /// Reads `ADDRESS`, `ADDRESS:PORT`, `NAME` or `NAME:PORT`; addresses of IPv6 with a port are in brackets.
    pub fn parse(text: &str, port: u16) -> Result<PeerAddress, String> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return match address.port() {
                0 => Err("port 0 is none that a host can be reached at".to_owned()),
                _ => Ok(PeerAddress::Address(address)),
            };
        }
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Ok(PeerAddress::Address(SocketAddr::new(address, port)));
        }
        let (name, port) = match text.rsplit_once(':') {
            None => (text, port),
            Some((name, port)) => {
                let number = port.parse().ok().filter(|port| *port != 0);
                (name, number.ok_or_else(|| format!("{port:?} is no port: 1 to 65535"))?)
            }
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if name.is_empty() || name.len() > 253 || !name.chars().all(plain) {
            return Err(format!("{name:?} is neither an address nor a name of a host"));
        }
        if name.chars().all(|c| c.is_ascii_digit() || c == '.') {
            return Err(format!("{name:?} is no address of IPv4"));
        }
        Ok(PeerAddress::Name(name.to_owned(), port))
    }

    /// Whether only this host itself can be reached there.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        match self {
            PeerAddress::Address(address) => address.ip().is_loopback(),
            PeerAddress::Name(..) => false,
        }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerAddress::Address(address) => address.fmt(f),
            PeerAddress::Name(name, port) => write!(f, "{name}:{port}"),
        }
    }
}

/// The addresses that each period's datagram goes to.
#[derive(Debug)]
pub(super) struct Destinations {
    /// Our own address: nothing is sent there.
    own: SocketAddr,
    /// Peers that are configured by address.
    fixed: Vec<SocketAddr>,
    /// Peers that are configured by name, with their ports.
    names: Vec<(String, u16)>,
    found: Arc<Mutex<FoundAddresses>>,
    /// Time of the last look-up's beginning.
    asked: Option<Instant>,
}

/// State and results of the look-up of names.
#[derive(Debug, Default)]
struct FoundAddresses {
    /// Whether a look-up is running.
    busy: bool,
    /// The result of each name, in the order of the names.
    answers: Vec<Result<SocketAddr, String>>,
    /// Whether a look-up has ended since its faults were last reported.
    fresh: bool,
}

impl Destinations {
    pub(super) fn new(own: SocketAddr, peers: &[PeerAddress]) -> Destinations {
        let mut to = Destinations {
            own,
            fixed: Vec::new(),
            names: Vec::new(),
            found: Arc::default(),
            asked: None,
        };
        for peer in peers {
            match peer {
                PeerAddress::Address(address) => to.fixed.push(*address),
                PeerAddress::Name(name, port) => to.names.push((name.clone(), *port)),
            }
        }
        to
    }

    /// All known addresses except our own, each once.
    pub(super) fn addresses(&self) -> BTreeSet<SocketAddr> {
        let found = lock(&self.found);
        let named = found.answers.iter().filter_map(|answer| answer.as_ref().ok());
        self.fixed.iter().chain(named).filter(|address| **address != self.own).copied().collect()
    }

    /// Whether all peers are known to be this host itself.
    pub(super) fn are_this_host(&self) -> bool {
        let answered = {
            let found = lock(&self.found);
            found.answers.len() == self.names.len() && found.answers.iter().all(Result::is_ok)
        };
        answered && self.addresses().is_empty()
    }

    /// Reason why no destination is known: all peers are names, and the last look-up found none of them. `None` if one is known.
    pub(super) fn unknown(&self) -> Option<String> {
        let found = lock(&self.found);
        let known = !self.fixed.is_empty() || found.answers.iter().any(Result::is_ok);
        found.answers.iter().find_map(|answer| answer.clone().err()).filter(|_| !known)
    }

    /// Begins a look-up of all names, if a name has no address, or an address from which nothing was `heard`. Returns the faults of
    /// the last look-up, once after its end.
    pub(super) fn look_up(&mut self, heard: &BTreeSet<SocketAddr>) -> Option<Vec<String>> {
        if self.names.is_empty() {
            return None;
        }
        let mut found = lock(&self.found);
        if found.busy {
            return None;
        }
        let faults = std::mem::take(&mut found.fresh).then(|| {
            found.answers.iter().filter_map(|answer| answer.clone().err()).collect::<Vec<_>>()
        });
        let unknown = found.answers.iter().any(Result::is_err);
        let is_silent = |address: &SocketAddr| *address != self.own && !heard.contains(address);
        let silent = found.answers.iter().flatten().any(is_silent);
        let again = match self.asked {
            None => true,
            Some(asked) if unknown => asked.elapsed() >= UNKNOWN_AGAIN,
            Some(asked) if silent => asked.elapsed() >= SILENT_AGAIN,
            Some(_) => false,
        };
        if again {
            self.asked = Some(Instant::now());
            let (names, own, shared) = (self.names.clone(), self.own, Arc::clone(&self.found));
            let work = move || {
                let answers = names.iter().map(|(name, port)| resolve(name, *port, own)).collect();
                let mut found = lock(&shared);
                found.take(answers);
            };
            // If no thread can be started, the look-up is tried again later, as after any other failure.
            let thread = std::thread::Builder::new().name("parda-names".to_owned());
            found.busy = thread.spawn(work).is_ok();
        }
        faults
    }
}

impl FoundAddresses {
    /// Takes in the results of a look-up. A name that had an address and has none now keeps the old one.
    fn take(&mut self, answers: Vec<Result<SocketAddr, String>>) {
        self.busy = false;
        self.fresh = true;
        let before = std::mem::take(&mut self.answers);
        let mut before = before.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
        self.answers = answers
            .into_iter()
            .map(|answer| match (answer, before.next().flatten()) {
                (Err(_), Some(Ok(address))) => Ok(address),
                (answer, _) => answer,
            })
            .collect();
    }
}

/// The first address of a name in the family of our socket.
fn resolve(name: &str, port: u16, own: SocketAddr) -> Result<SocketAddr, String> {
    let family = if own.is_ipv4() { "IPv4" } else { "IPv6" };
    let mut found =
        (name, port).to_socket_addrs().map_err(|error| format!("peer {name}: {error}"))?;
    found
        .find(|address| address.is_ipv4() == own.is_ipv4())
        .ok_or_else(|| format!("peer {name}: has no address of {family}, as this host's is"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_are_told_apart() {
        let parse = |text| PeerAddress::parse(text, 7077).map(|peer| peer.to_string());
        for (text, means) in [
            ("10.1.2.3", "10.1.2.3:7077"),
            ("10.1.2.3:99", "10.1.2.3:99"),
            ("fd00::2", "[fd00::2]:7077"),
            ("[fd00::2]", "[fd00::2]:7077"),
            ("[fd00::2]:99", "[fd00::2]:99"),
            ("kvm-02", "kvm-02:7077"),
            ("kvm-02.example:99", "kvm-02.example:99"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(means), "{text}");
        }
        for text in ["", ":99", "a b", "10.1.2", "10.1.2.3.4", "a:0", "a:x", "10.1.2.3:0", "[fd00"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(PeerAddress::parse("127.0.0.9", 1).unwrap().is_loopback());
        assert!(!PeerAddress::parse("localhost", 1).unwrap().is_loopback(), "names may change");
    }

    #[test]
    fn the_own_address_is_left_out_and_no_address_is_there_twice() {
        let own: SocketAddr = "127.0.0.1:7".parse().unwrap();
        let peers: Vec<_> = ["127.0.0.1:7", "127.0.0.2:7", "127.0.0.2:7"]
            .map(|text| PeerAddress::parse(text, 7).unwrap())
            .into();
        let to = Destinations::new(own, &peers);
        assert_eq!(to.addresses(), ["127.0.0.2:7".parse().unwrap()].into());
        assert!(!to.are_this_host());
        assert!(Destinations::new(own, &peers[..1]).are_this_host());
        let named = [PeerAddress::parse("localhost", 7).unwrap()];
        assert!(!Destinations::new(own, &named).are_this_host(), "it is not looked up yet");
    }

    #[test]
    fn names_are_looked_up_aside_and_keep_the_address_that_they_had() {
        let own: SocketAddr = "127.0.0.1:7".parse().unwrap();
        let names = ["localhost:9", "no-such-host.invalid:9"];
        let mut to =
            Destinations::new(own, &names.map(|name| PeerAddress::parse(name, 7).unwrap()));
        let begun = Instant::now();
        let faults = loop {
            if let Some(faults) = to.look_up(&BTreeSet::new()) {
                break faults;
            }
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(faults.len() == 1 && faults[0].contains("no-such-host.invalid"), "{faults:?}");
        let known = BTreeSet::from(["127.0.0.1:9".parse().unwrap()]);
        assert_eq!(to.addresses(), known);
        lock(&to.found).take(vec![Err("gone".to_owned()), Err("gone".to_owned())]);
        assert_eq!(to.addresses(), known);
    }
}
