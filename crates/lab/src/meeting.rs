//! How the hosts of a run meet, if not in the array's slots: over UDP or in etcd, on loopback.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use parda_agent::file::Exchange;
use parda_scenario::exchange::{EtcdEvent, Hearing, Transport};
use parda_scenario::{HostId, Scenario};

use crate::error::LabError;
use crate::etcd::{self, Etcd};
use crate::limits;
use crate::network::Network;
use crate::process::Process;
use crate::relay::{End, Relay};
use crate::run_dir::RunDir;

/// How the hosts of a run meet.
#[derive(Debug)]
pub(crate) struct Meeting {
    transport: Transport,
    hosts: usize,
    etcd: Option<Etcd>,
    /// Ways to etcd of hosts on loopback that are ever cut off.
    routes: BTreeMap<HostId, Vec<Route>>,
    network: Option<Network>,
    run_dir: RunDir,
}

/// A host's route to a member of etcd.
#[derive(Debug)]
struct Route {
    from: SocketAddr,
    to: SocketAddr,
    relay: Option<Relay>,
}

impl Route {
    fn open(&mut self, open: bool) -> io::Result<()> {
        if !open {
            self.relay = None;
        } else if self.relay.is_none() {
            self.relay = Some(Relay::start(End::Tcp(self.from), End::Tcp(self.to))?);
        }
        Ok(())
    }
}

impl Meeting {
    /// Checks that the network, if there is one, passes packets on.
    ///
    /// # Errors
    /// The thread that passes packets on has ended.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        self.network.as_ref().map_or(Ok(()), Network::check)
    }

    /// Makes the network, and starts etcd if hosts meet there.
    ///
    /// # Errors
    /// The network cannot be made, or etcd cannot be started.
    pub(crate) fn start(scenario: &Scenario, run_dir: &RunDir) -> Result<Meeting, LabError> {
        let (transport, hosts) = (scenario.transport, scenario.hosts.len());
        let network = match transport {
            Transport::Udp => Some(Network::new(hosts, scenario.seed).map_err(no_network)?),
            _ => None,
        };
        let mut meeting = Meeting {
            transport,
            hosts,
            etcd: None,
            routes: BTreeMap::new(),
            network,
            run_dir: run_dir.clone(),
        };
        if transport == Transport::Etcd {
            etcd::check().map_err(no_etcd)?;
            meeting.etcd = Some(Etcd::new(&servers(scenario.etcd_members), run_dir.path()));
            meeting.start_etcd()?;
            meeting.make_routes(scenario)?;
        }
        Ok(meeting)
    }

    fn start_etcd(&mut self) -> Result<(), LabError> {
        let started = self.etcd.as_mut().map(|etcd| etcd.start(self.run_dir.path()));
        let failed = |error| LabError::failed(format!("cannot start etcd: {error}"));
        started.unwrap_or(Ok(())).map_err(failed)
    }

    /// Chooses an address for each host's route to each member, for hosts that are ever cut off.
    fn make_routes(&mut self, scenario: &Scenario) -> Result<(), LabError> {
        let Some(etcd) = self.etcd.as_ref() else {
            return Ok(());
        };
        for (id, host) in scenario.present().filter(|(id, _)| limits::has_own_relay(scenario, *id))
        {
            let route = |to: SocketAddr| {
                // The port stays this host's, as no one else listens at the member's address.
                let from = TcpListener::bind((to.ip(), 0))?.local_addr()?;
                let mut route = Route { from, to, relay: None };
                route.open(true).map(|()| route)
            };
            let routes = etcd.addresses().map(route).collect::<io::Result<_>>();
            self.routes.insert(id, routes.map_err(|error| no_way(&host.name, &error))?);
        }
        Ok(())
    }

    /// Whether the servers can be used.
    pub(crate) fn is_ready(&self) -> bool {
        let Some(etcd) = &self.etcd else { return true };
        etcd.addresses().all(etcd::is_well)
    }

    /// What a host's agent is to be told. `None` if hosts meet in the array's slots.
    pub(crate) fn exchange(&self, id: HostId) -> Option<Exchange> {
        match (self.transport, &self.network, &self.etcd) {
            (Transport::Udp, Some(network), _) => {
                let others = (0..self.hosts).filter(|node| *node != id.0);
                Some(Exchange {
                    udp: Some(network.own(id.0).to_string()),
                    peers: Some(others.map(|node| network.address_of(node).to_string()).collect()),
                    ..Exchange::default()
                })
            }
            (Transport::Etcd, _, Some(etcd)) => {
                let url = |address: SocketAddr| format!("http://{address}");
                let urls = match self.routes.get(&id) {
                    Some(routes) => routes.iter().map(|route| url(route.from)).collect(),
                    None => etcd.addresses().map(url).collect(),
                };
                Some(Exchange { etcd: Some(urls), ..Exchange::default() })
            }
            _ => None,
        }
    }

    /// Changes how well a host hears the others.
    ///
    /// # Errors
    /// A relay cannot be started again.
    pub(crate) fn set(
        &mut self,
        host: &str,
        id: HostId,
        hearing: &Hearing,
    ) -> Result<(), LabError> {
        if let Some(network) = &self.network {
            network.set(id.0, hearing);
        }
        let mut routes = self.routes.get_mut(&id).into_iter().flatten();
        routes
            .try_for_each(|route| route.open(hearing.reachable))
            .map_err(|error| no_way(host, &error))
    }

    /// Lets something happen to etcd.
    ///
    /// # Errors
    /// It cannot be started again.
    pub(crate) fn happen(&mut self, event: EtcdEvent) -> Result<(), LabError> {
        if let Some(etcd) = &mut self.etcd {
            etcd.happen(event);
        }
        if event == EtcdEvent::Start { self.start_etcd() } else { Ok(()) }
    }

    /// Processes of the servers that run.
    pub(crate) fn processes(&mut self) -> impl Iterator<Item = &mut Process> {
        self.etcd.iter_mut().flat_map(Etcd::processes)
    }
}

/// The error of a relay to the exchange that cannot be started.
pub(crate) fn no_way(host: &str, error: &io::Error) -> LabError {
    LabError::failed(format!("no way to the exchange for {host}: {error}"))
}

fn no_network(error: io::Error) -> LabError {
    LabError::failed(format!("cannot make a network of loopback addresses: {error}"))
}

fn no_etcd(error: io::Error) -> LabError {
    LabError::failed(format!(
        "etcd, in which the hosts meet, cannot be run: {error}. Install it (Debian, Ubuntu: apt install \
         etcd-server), or let them meet elsewhere: --exchange udp"
    ))
}

/// Addresses of members of etcd, at most seven.
fn servers(members: u8) -> Vec<SocketAddr> {
    let (x, y) = (fastrand::u8(2..), fastrand::u8(..));
    (1..=members).map(|n| SocketAddr::new(Ipv4Addr::new(127, x, y, n).into(), 0)).collect()
}
