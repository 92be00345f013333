//! `[volume.exchange]` with `udp`: addresses, peers and keys, checked.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use parda_config::Error;
use parda_exchange::udp::{KeySource, MOST_PEERS, PeerAddress, Reach};

use crate::file;

/// Longest name of an interface that Linux takes.
const MOST_INTERFACE: usize = 15;

/// An exchange over UDP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Udp {
    /// Address of this host, or the multicast group.
    pub address: SocketAddr,
    /// Where the other hosts are.
    pub reach: Reach,
    /// Keys that datagrams are signed with.
    pub keys: KeySource,
}

impl fmt::Display for Udp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reach {
            Reach::Peers(peers) if peers.len() == 1 => write!(f, "udp {}, 1 peer", self.address),
            Reach::Peers(peers) => write!(f, "udp {}, {} peers", self.address, peers.len()),
            Reach::Group { interface } => write!(f, "udp {} at {interface}", self.address),
        }
    }
}

pub(super) fn check(
    wrong: &dyn Fn(&str, String) -> Error,
    address: &str,
    exchange: &file::Exchange,
) -> Result<Udp, Error> {
    let bad = |message: &str| wrong("exchange.udp", message.to_owned());
    let address: SocketAddr = address.parse().map_err(|_| {
        bad("must be ADDRESS:PORT, of this host or of a multicast group; IPv6 as [ADDRESS]:PORT")
    })?;
    if address.port() == 0 {
        return Err(bad("has port 0, which no other host can know"));
    }
    if matches!(address.ip(), IpAddr::V4(ip) if ip.is_broadcast()) {
        return Err(bad("is the broadcast address: name an address of this host"));
    }
    let reach = match address.ip().is_multicast() {
        true => check_group(wrong, exchange)?,
        false => check_peers(wrong, address, exchange)?,
    };
    let keys = match &exchange.key_file {
        Some(file) => KeySource::File(file.clone()),
        None => {
            let local = |peers: &[PeerAddress]| peers.iter().all(PeerAddress::is_loopback);
            let all = matches!(&reach, Reach::Peers(peers) if local(peers));
            if !(all && address.ip().is_loopback()) {
                let message = "is missing: without keys anybody on the network could say how loaded \
                               the volume is. Only loopback addresses, without names, need none";
                return Err(wrong("exchange.key_file", message.into()));
            }
            KeySource::Loopback
        }
    };
    Ok(Udp { address, reach, keys })
}

fn check_group(
    wrong: &dyn Fn(&str, String) -> Error,
    exchange: &file::Exchange,
) -> Result<Reach, Error> {
    if exchange.peers.is_some() {
        let message = "is not for a multicast group: who is in the group is a peer";
        return Err(wrong("exchange.peers", message.into()));
    }
    let interface = exchange.interface.clone().ok_or_else(|| {
        let message = "is missing: the interface where the multicast group is, such as \"eth1\"";
        wrong("exchange.interface", message.into())
    })?;
    let plain = |c: char| c.is_ascii_graphic() && c != '/';
    if !(1..=MOST_INTERFACE).contains(&interface.len()) || !interface.chars().all(plain) {
        return Err(wrong("exchange.interface", "is no name of an interface".into()));
    }
    Ok(Reach::Group { interface })
}

fn check_peers(
    wrong: &dyn Fn(&str, String) -> Error,
    address: SocketAddr,
    exchange: &file::Exchange,
) -> Result<Reach, Error> {
    if exchange.interface.is_some() {
        let message = "is for a multicast group, and udp is no address of one";
        return Err(wrong("exchange.interface", message.into()));
    }
    let texts = exchange.peers.as_deref().unwrap_or_default();
    if texts.is_empty() || texts.len() > MOST_PEERS {
        let message = format!("must be the addresses or names of 1 to {MOST_PEERS} hosts");
        return Err(wrong("exchange.peers", message));
    }
    let mut peers = Vec::new();
    for (i, text) in texts.iter().enumerate() {
        let bad = |message: String| wrong(&format!("exchange.peers.{i}"), message);
        let peer = PeerAddress::parse(text, address.port()).map_err(&bad)?;
        if let PeerAddress::Address(peer) = peer {
            if peer.ip().is_multicast() || peer.ip().is_unspecified() {
                return Err(bad("is no address of one host".into()));
            }
            if peer.is_ipv4() != address.is_ipv4() {
                return Err(bad(format!(
                    "is not of the same family of addresses as udp, {address}"
                )));
            }
        }
        peers.push(peer);
    }
    Ok(Reach::Peers(peers))
}
