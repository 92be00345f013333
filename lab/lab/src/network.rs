//! The network between the hosts of a run: the laboratory forwards, loses or blocks each packet.
//!
//! | file | subject |
//! | --- | --- |
//! | `links` | the fate of each packet |
//! | `router` | the thread that takes packets and hands them on |
//! | `doors` | hosts at loopback addresses: only their datagrams pass |
//!
//! A node is a host, by its number.

mod doors;
mod links;
mod router;

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use parda_scenario::exchange::Hearing;

use doors::Doors;
use links::Links;

/// Hosts at loopback addresses, with a door in front of each. Gone when dropped.
#[derive(Debug)]
pub struct Network {
    links: Arc<Mutex<Links>>,
    /// Address at which each node receives datagrams.
    pub(crate) hosts: Vec<SocketAddr>,
    /// Address by which others send datagrams to each node.
    pub(crate) doors: Vec<SocketAddr>,
    /// End of a pair by which the thread is stopped that passes packets on.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Network {
    /// A network of `nodes` hosts. The seed decides which packets are lost.
    ///
    /// # Errors
    /// The addresses are taken, or there are too few descriptors.
    pub fn new(nodes: usize, seed: u64) -> io::Result<Network> {
        let open = Doors::open(nodes)?;
        let (hosts, doors) = (open.hosts.clone(), open.addresses.clone());
        let links = Arc::new(Mutex::new(Links::new(nodes, seed)));
        let (stop, stopped) = UnixStream::pair()?;
        let passing = Arc::clone(&links);
        let thread = thread::Builder::new().name("network".to_owned());
        let thread = thread.spawn(move || router::run(&open, &passing, &stopped))?;
        Ok(Network { links, hosts, doors, stop: Some(stop), thread: Some(thread) })
    }

    /// Checks that packets are passed on.
    ///
    /// # Errors
    /// The thread that does so has ended.
    pub fn check(&self) -> Result<(), &'static str> {
        match self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            true => Ok(()),
            false => Err(
                "the network between the hosts has ended, without which their exchange is no exchange",
            ),
        }
    }

    /// Changes how well a node hears the others.
    pub fn set(&self, node: usize, hearing: &Hearing) {
        self.links.lock().unwrap_or_else(PoisonError::into_inner).set(node, hearing);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // The thread sees the end of the pair.
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has nothing to clean up.
            let _ = thread.join();
        }
    }
}
