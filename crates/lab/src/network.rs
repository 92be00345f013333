//! The network between the hosts of a run: what one sends comes to another through the laboratory, which loses, delays or cuts it.
//!
//! | file | subject |
//! | --- | --- |
//! | `links` | the fate of each packet |
//! | `router` | the thread that takes packets and hands them on |
//! | `doors` | hosts at loopback addresses: only their datagrams pass |
//! | `namespaces` | hosts with network namespaces and addresses of their own: all that they send passes |
//!
//! A node is a host, by its number, or one of the servers that come after the hosts.

mod doors;
mod links;
mod namespaces;
mod router;

use std::io;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use parda_scenario::exchange::Hearing;

use doors::Doors;
use links::Links;
use namespaces::{Namespace, Namespaces};
use router::Router;

/// Where hosts have their addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addresses {
    /// On loopback: no rights are needed.
    #[default]
    Loopback,
    /// In a network namespace of each host, which takes root.
    Namespaces,
}

/// Reason why there is no network.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The user may not make namespaces.
    #[error(
        "--netns makes network namespaces, which takes root: run it with sudo, or without --netns"
    )]
    NotRoot,
    /// A step of making the network failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was being done, for people.
        what: &'static str,
        /// The failure of the step.
        source: io::Error,
    },
    /// The thread that passes packets on has ended.
    #[error("the network between the hosts has ended, without which their exchange is no exchange")]
    Ended,
    /// `ip` refused a command.
    #[error("cannot give a namespace its address: ip says: {0}")]
    Ip(String),
}

impl NetworkError {
    fn io(what: &'static str) -> impl FnOnce(io::Error) -> NetworkError {
        move |source| NetworkError::Io { what, source }
    }
}

/// A network, gone when dropped.
#[derive(Debug)]
pub struct Network {
    links: Arc<Mutex<Links>>,
    nodes: Nodes,
    router: Router,
}

#[derive(Debug)]
enum Nodes {
    /// Own addresses, and the addresses to send to.
    Loopback(Vec<SocketAddr>, Vec<SocketAddr>),
    Namespaces(Vec<Namespace>),
}

impl Network {
    /// Hosts at loopback addresses, with a door in front of each.
    ///
    /// # Errors
    /// No address is free, or no thread can be started.
    pub fn on_loopback(nodes: usize, seed: u64) -> Result<Network, NetworkError> {
        let doors = Doors::open(nodes).map_err(NetworkError::io("open doors on loopback"))?;
        let nodes = Nodes::Loopback(doors.hosts().to_vec(), doors.addresses().to_vec());
        let links = Arc::new(Mutex::new(Links::new(doors.addresses().len(), seed)));
        let router = Router::start(doors, Arc::clone(&links));
        let router = router.map_err(NetworkError::io("start the network's thread"))?;
        Ok(Network { links, nodes, router })
    }

    /// Nodes in namespaces of their own.
    ///
    /// # Errors
    /// The user is not root, or the kernel or `ip` refuses.
    pub fn in_namespaces(nodes: usize, seed: u64) -> Result<Network, NetworkError> {
        let namespaces = (0..nodes).map(Namespace::new).collect::<Result<Vec<_>, _>>()?;
        let wires = Namespaces::of(&namespaces).map_err(NetworkError::io("open the tunnels"))?;
        let links = Arc::new(Mutex::new(Links::new(nodes, seed)));
        let router = Router::start(wires, Arc::clone(&links));
        let router = router.map_err(NetworkError::io("start the network's thread"))?;
        Ok(Network { links, nodes: Nodes::Namespaces(namespaces), router })
    }

    /// Address at which a node receives datagrams.
    #[must_use]
    pub fn own(&self, node: usize) -> SocketAddr {
        match &self.nodes {
            Nodes::Loopback(hosts, _) => hosts[node],
            Nodes::Namespaces(_) => SocketAddr::new(namespaces::address(node).into(), doors::PORT),
        }
    }

    /// Address by which others send datagrams to a node.
    #[must_use]
    pub fn way_to(&self, node: usize) -> SocketAddr {
        match &self.nodes {
            Nodes::Loopback(_, doors) => doors[node],
            Nodes::Namespaces(_) => self.own(node),
        }
    }

    /// Has a command run in the namespace of a node, if it has one.
    pub fn enter(&self, node: usize, command: &mut Command) {
        if let Nodes::Namespaces(namespaces) = &self.nodes {
            namespaces[node].enter(command);
        }
    }

    /// Calls a function in the namespace of a node, if it has one.
    pub fn within<T: Send>(&self, node: usize, call: impl FnOnce() -> T + Send) -> io::Result<T> {
        match &self.nodes {
            Nodes::Loopback(..) => Ok(call()),
            Nodes::Namespaces(namespaces) => namespaces[node].within(call),
        }
    }

    /// Checks that packets are passed on.
    ///
    /// # Errors
    /// The thread that does so has ended.
    pub fn check(&self) -> Result<(), NetworkError> {
        if self.router.runs() { Ok(()) } else { Err(NetworkError::Ended) }
    }

    /// Changes how well a node hears the others.
    pub fn set(&self, node: usize, hearing: &Hearing) {
        self.links.lock().unwrap_or_else(PoisonError::into_inner).set(node, hearing);
    }
}
