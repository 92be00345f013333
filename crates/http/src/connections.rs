//! Connections that are open, and which of them makes room for the next one.
//!
//! Any client that reaches the address may connect and be silent, so waiting connections must not keep others out. Beyond [`CONNECTIONS`]
//! the newest one is served. One of those whose requests are least advanced is closed. The candidate is the oldest of the peer with most
//! of them, if these are more than [`MANY`], or else the oldest one.

use std::net::{IpAddr, Ipv6Addr};

use tokio::task::JoinHandle;

use crate::CONNECTIONS;
use crate::progress::Progress;

/// Peers with more connections than this that are equally far lose their own first. So a flood from one host ends no other's handshake.
const MANY: usize = 16;

/// Peer whose connections are counted together.
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

/// A connection that is open, and how far its client has come.
#[derive(Debug)]
struct Open {
    origin: Origin,
    progress: Progress,
    served: JoinHandle<()>,
}

/// Connections that are open, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Connections(Vec<Open>);

impl Connections {
    /// Adds a connection, and closes another one if there are too many.
    pub(crate) fn admit(&mut self, origin: Origin, progress: Progress, served: JoinHandle<()>) {
        self.0.retain(|open| !open.served.is_finished());
        if self.0.len() >= CONNECTIONS {
            self.0.remove(self.displaced()).served.abort();
            tracing::debug!("too many HTTP connections: one was closed for a new one");
        }
        self.0.push(Open { origin, progress, served });
    }

    /// Index of the connection to close for a new one.
    fn displaced(&self) -> usize {
        let least = self.0.iter().map(|open| open.progress.step()).min();
        let all = self.0.iter().enumerate();
        let candidates: Vec<_> =
            all.filter(|(_, open)| Some(open.progress.step()) == least).collect();
        let of = |origin| candidates.iter().filter(|(_, open)| open.origin == origin).count();
        let most = candidates.iter().map(|(_, open)| of(open.origin)).max();
        let most = most.filter(|most| *most > MANY);
        let first =
            candidates.iter().find(|(_, open)| most.is_none_or(|most| of(open.origin) == most));
        first.map_or(0, |(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Step;

    /// Which of these connections are open, one after the other.
    fn open(connections: &[(Origin, Step)]) -> Vec<bool> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut open = Connections::default();
            let mut handles = Vec::new();
            for (origin, step) in connections {
                let served = tokio::spawn(std::future::pending::<()>());
                handles.push(served.abort_handle());
                let progress = Progress::default();
                open.admit(*origin, progress.clone(), served);
                progress.reached(*step);
            }
            tokio::task::yield_now().await;
            handles.iter().map(|handle| !handle.is_finished()).collect()
        })
    }

    fn closed(connections: &[(Origin, Step)]) -> Vec<usize> {
        let open = open(connections).into_iter().enumerate();
        open.filter(|(_, open)| !open).map(|(i, _)| i).collect()
    }

    fn at(last: u8) -> Origin {
        Origin::at(IpAddr::from([192, 0, 2, last]))
    }

    #[test]
    fn who_has_many_loses_the_oldest_of_its_own() {
        for step in [Step::Silent, Step::Begun, Step::Asked] {
            let mut connections = vec![(at(1), step), (at(2), step)];
            connections.resize(CONNECTIONS + 2, (at(3), step));
            assert_eq!(closed(&connections), [2, 3], "{step:?}");
        }
        // Each peer has one: the oldest goes.
        let each = |n| (Origin::Process(Some(n)), Step::Silent);
        let connections: Vec<_> = (0..=CONNECTIONS as i32).map(each).collect();
        assert_eq!(closed(&connections), [0]);
    }

    #[test]
    fn silence_costs_a_connection_before_a_request_does() {
        // One client with some connections, and many peers with a silent one each.
        for step in [Step::Begun, Step::Asked] {
            let mut connections = vec![(at(0), step); 4];
            connections.extend((1..=62).map(|peer| (at(peer), Step::Silent)));
            assert_eq!(closed(&connections), [4, 5], "{step:?}");
        }
        // Silent ones of the client's own address.
        let mut connections = vec![(at(0), Step::Asked), (at(0), Step::Begun)];
        connections.resize(CONNECTIONS + 9, (at(0), Step::Silent));
        assert_eq!(closed(&connections), (2..11).collect::<Vec<_>>());
        // A new one is served although all others have asked. One of the peer with the most makes room.
        let mut connections = vec![(at(1), Step::Asked), (at(2), Step::Asked)];
        connections.resize(CONNECTIONS, (at(3), Step::Asked));
        connections.push((at(4), Step::Silent));
        assert_eq!(closed(&connections), [2]);
    }

    #[test]
    fn a_host_is_one_peer_by_all_its_addresses() {
        let at = |text: &str| Origin::at(text.parse().unwrap());
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:1"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:192.0.2.1"), at("192.0.2.1"));
    }
}
