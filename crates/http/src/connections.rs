//! Connections that are open, and which of them makes room for the next one.
//!
//! Whoever reaches the address may connect and be silent, so connections that wait keep nobody out: beyond [`CONNECTIONS`] the newest one is
//! served, and the oldest one of the peer that has the most is closed. Who opens many loses its own.

use std::net::{IpAddr, Ipv6Addr};

use tokio::task::JoinHandle;

use crate::CONNECTIONS;

/// Whose connections are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A process at the unix socket, if the kernel tells which.
    Process(Option<i32>),
    /// A host, by its address or network.
    Address(IpAddr),
}

impl Origin {
    /// The host at an address. A host has the whole of an IPv6 network of 64 bits at its disposal.
    pub(crate) fn at(address: IpAddr) -> Origin {
        Origin::Address(match address.to_canonical() {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
            }
            address => address,
        })
    }
}

/// Connections that are open, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Connections(Vec<(Origin, JoinHandle<()>)>);

impl Connections {
    /// Adds a connection, and closes another one if there are too many.
    pub(crate) fn admit(&mut self, origin: Origin, served: JoinHandle<()>) {
        self.0.retain(|(_, served)| !served.is_finished());
        self.0.push((origin, served));
        if self.0.len() > CONNECTIONS {
            let (_, served) = self.0.remove(self.displaced());
            served.abort();
            tracing::debug!("too many HTTP connections: the oldest one of a peer was closed");
        }
    }

    /// The oldest connection of the peer that has the most.
    fn displaced(&self) -> usize {
        let of = |origin| self.0.iter().filter(|(other, _)| *other == origin).count();
        let counts: Vec<_> = self.0.iter().map(|(origin, _)| of(*origin)).collect();
        let most = counts.iter().max();
        counts.iter().position(|count| Some(count) == most).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of these connections are open, one of each origin after the other.
    fn open(origins: &[Origin]) -> Vec<bool> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut connections = Connections::default();
            let mut handles = Vec::new();
            for origin in origins {
                let served = tokio::spawn(std::future::pending::<()>());
                handles.push(served.abort_handle());
                connections.admit(*origin, served);
            }
            tokio::task::yield_now().await;
            handles.iter().map(|handle| !handle.is_finished()).collect()
        })
    }

    #[test]
    fn who_has_the_most_connections_loses_the_oldest() {
        let at = |last: u8| Origin::at(IpAddr::from([192, 0, 2, last]));
        let mut origins = vec![at(1), at(2)];
        origins.resize(CONNECTIONS + 2, at(3));
        let mut expected = vec![true; CONNECTIONS + 2];
        expected[2..4].fill(false);
        assert_eq!(open(&origins), expected);
        // Each peer has one: the oldest goes.
        let origins: Vec<_> = (0..=CONNECTIONS as i32).map(|n| Origin::Process(Some(n))).collect();
        assert_eq!(open(&origins).iter().position(|open| !open), Some(0));
        assert_eq!(open(&origins).iter().filter(|open| !**open).count(), 1);
    }

    #[test]
    fn a_host_is_one_peer_by_all_its_addresses() {
        let at = |text: &str| Origin::at(text.parse().unwrap());
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:1"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:192.0.2.1"), at("192.0.2.1"));
    }
}
