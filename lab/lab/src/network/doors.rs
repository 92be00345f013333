//! Hosts at loopback addresses. A packet sent to a host's door is for the host behind that door.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

/// Port of all hosts and doors.
const PORT: u16 = 7077;

/// Networks of loopback that are tried before none is taken to be free.
const TRIES: usize = 16;

/// Nodes in one /24, so that no address ends with 0 or 255.
const EACH: usize = 200;

/// The first /24 of doors; hosts begin with the first.
const DOORS: usize = 128;

/// The doors of all hosts.
#[derive(Debug)]
pub(super) struct Doors {
    /// Addresses of the hosts.
    pub(super) hosts: Vec<SocketAddr>,
    /// Addresses of the doors.
    pub(super) addresses: Vec<SocketAddr>,
    /// The doors to take packets from.
    pub(super) sockets: Vec<UdpSocket>,
    by_address: HashMap<SocketAddr, usize>,
}

/// Address of a node in a network of loopback, from the /24 `first` on.
fn address(network: u8, first: usize, node: usize) -> SocketAddr {
    let (block, place) = (first + node / EACH, 1 + node % EACH);
    // At most 1,024 hosts: six blocks.
    SocketAddr::new(Ipv4Addr::new(127, network, block as u8, place as u8).into(), PORT)
}

impl Doors {
    /// Opens a door for each host, in a network of loopback in which no other run has one.
    pub(super) fn open(hosts: usize) -> io::Result<Doors> {
        let mut opened = Doors::open_in(fastrand::u8(2..), hosts);
        for _ in 1..TRIES {
            if opened.is_ok() {
                break;
            }
            opened = Doors::open_in(fastrand::u8(2..), hosts);
        }
        opened
    }

    fn open_in(network: u8, nodes: usize) -> io::Result<Doors> {
        let of = |first: usize| (0..nodes).map(|n| address(network, first, n)).collect::<Vec<_>>();
        let (hosts, addresses) = (of(0), of(DOORS));
        let open = |address: &SocketAddr| {
            let socket = UdpSocket::bind(address)
                .map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}")))?;
            socket.set_nonblocking(true).map(|()| socket)
        };
        let sockets = addresses.iter().map(open).collect::<io::Result<_>>()?;
        let by_address = hosts.iter().enumerate().map(|(n, host)| (*host, n)).collect();
        Ok(Doors { hosts, addresses, sockets, by_address })
    }

    /// Receives a packet from a door: its sending host, if known, and its length. `None` without a packet.
    pub(super) fn take(&self, door: usize, buffer: &mut [u8]) -> Option<(Option<usize>, usize)> {
        let (length, from) = self.sockets[door].recv_from(buffer).ok()?;
        Some((self.by_address.get(&from).copied(), length))
    }

    /// Hands a packet to a host.
    pub(super) fn hand(&self, to: usize, packet: &[u8]) {
        // A host that is dead has no socket.
        let _ = self.sockets[to].send_to(packet, self.hosts[to]);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parda_scenario::exchange::Hearing;

    use super::super::Network;
    use super::*;

    fn bound(network: &Network, node: usize) -> UdpSocket {
        let socket = UdpSocket::bind(network.hosts[node]).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        socket
    }

    fn heard(socket: &UdpSocket) -> String {
        let mut buffer = [0; 64];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[test]
    fn datagrams_pass_while_the_link_is_there() {
        let network = Network::new(3, 1).unwrap();
        let [a, b, c] = [0, 1, 2].map(|node| bound(&network, node));
        a.send_to(b"one", network.doors[1]).unwrap();
        assert_eq!(heard(&b), "one");
        network.set(0, &Hearing { writable: false, ..Hearing::default() });
        a.send_to(b"lost", network.doors[1]).unwrap();
        b.send_to(b"two", network.doors[0]).unwrap();
        assert_eq!(heard(&a), "two", "one way is open");
        // A door receives datagrams in order: the lost one was received before this, while the link was cut.
        c.send_to(b"other", network.doors[1]).unwrap();
        assert_eq!(heard(&b), "other", "another host's link is open");
        network.set(0, &Hearing::default());
        a.send_to(b"again", network.doors[1]).unwrap();
        assert_eq!(heard(&b), "again", "what was sent while the link was cut never comes");
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        stranger.send_to(b"foreign", network.doors[1]).unwrap();
        a.send_to(b"three", network.doors[1]).unwrap();
        assert_eq!(heard(&b), "three");
    }
}
