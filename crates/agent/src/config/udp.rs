//! `[volume.exchange]` with `udp`: addresses, peers and keys, checked.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use parda_config::{Error, TablePart};
use parda_exchange::udp::{KeySource, MOST_PEERS, PeerAddress, UdpReach};

use crate::file;

/// Longest name of an interface that Linux takes.
const MOST_INTERFACE: usize = 15;

/// An exchange over UDP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Udp {
    /// Address of this host, or the multicast group.
    pub address: SocketAddr,
    /// Addresses of the other hosts, or the means to find them.
    pub reach: UdpReach,
    /// Keys that datagrams are signed with.
    pub keys: KeySource,
}

impl fmt::Display for Udp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reach {
            UdpReach::Peers(peers) if peers.len() == 1 => write!(f, "udp {}, 1 peer", self.address),
            UdpReach::Peers(peers) => write!(f, "udp {}, {} peers", self.address, peers.len()),
            UdpReach::Group { interface } => write!(f, "udp {} at {interface}", self.address),
        }
    }
}

pub(super) fn check(
    at: &TablePart<'_>,
    address: &str,
    exchange: &file::ExchangeTable,
) -> Result<Udp, Error> {
    let message =
        "must be ADDRESS:PORT, of this host or of a multicast group; IPv6 as [ADDRESS]:PORT";
    let address: SocketAddr = at.read("udp", address.parse().map_err(|_| message))?;
    at.refuse_if(address.port() == 0, "udp", "has port 0, which no other host can know")?;
    let is_broadcast = matches!(address.ip(), IpAddr::V4(ip) if ip.is_broadcast());
    at.refuse_if(is_broadcast, "udp", "is the broadcast address: name an address of this host")?;
    let reach = match address.ip().is_multicast() {
        true => check_group(at, exchange)?,
        false => check_peers(at, address, exchange)?,
    };
    let keys = match &exchange.key_file {
        Some(file) => KeySource::File(file.clone()),
        None => {
            let local = |peers: &[PeerAddress]| peers.iter().all(PeerAddress::is_loopback);
            let all = matches!(&reach, UdpReach::Peers(peers) if local(peers));
            let message = "is missing: without keys anybody on the network could say how loaded \
                           the volume is. Only loopback addresses, without names, need none";
            at.refuse_if(!all || !address.ip().is_loopback(), "key_file", message)?;
            KeySource::Loopback
        }
    };
    Ok(Udp { address, reach, keys })
}

fn check_group(at: &TablePart<'_>, exchange: &file::ExchangeTable) -> Result<UdpReach, Error> {
    let message = "is not for a multicast group: who is in the group is a peer";
    at.refuse_if(exchange.peers.is_some(), "peers", message)?;
    let missing = "is missing: the interface where the multicast group is, such as \"eth1\"";
    let interface = at.read("interface", exchange.interface.clone().ok_or(missing))?;
    let plain = |c: char| c.is_ascii_graphic() && c != '/';
    let good = (1..=MOST_INTERFACE).contains(&interface.len()) && interface.chars().all(plain);
    at.refuse_if(!good, "interface", "is no name of an interface")?;
    Ok(UdpReach::Group { interface })
}

fn check_peers(
    at: &TablePart<'_>,
    address: SocketAddr,
    exchange: &file::ExchangeTable,
) -> Result<UdpReach, Error> {
    let message = "is for a multicast group, and udp is no address of one";
    at.refuse_if(exchange.interface.is_some(), "interface", message)?;
    let texts = exchange.peers.as_deref().unwrap_or_default();
    let message = format!("must be the addresses or names of 1 to {MOST_PEERS} hosts");
    at.refuse_if(!(1..=MOST_PEERS).contains(&texts.len()), "peers", message)?;
    let mut peers = Vec::new();
    for (i, text) in texts.iter().enumerate() {
        let key = format!("peers.{i}");
        let peer = at.read(&key, PeerAddress::parse(text, address.port()))?;
        if let PeerAddress::Address(peer) = peer {
            let of_many = peer.ip().is_multicast() || peer.ip().is_unspecified();
            at.refuse_if(of_many, &key, "is no address of one host")?;
            let message = format!("is not of the same family of addresses as udp, {address}");
            at.refuse_if(peer.is_ipv4() != address.is_ipv4(), &key, message)?;
        }
        peers.push(peer);
    }
    Ok(UdpReach::Peers(peers))
}
