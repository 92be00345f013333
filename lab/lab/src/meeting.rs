//! Exchange of a run's hosts: in the array's slots, or on loopback over UDP or in etcd.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};

use parda_agent::file::ExchangeTable;
use parda_scenario::exchange::{EtcdEvent, Hearing, MeetingTransport};
use parda_scenario::{Host, HostIndex, Scenario};

use crate::error::LabError;
use crate::etcd::{self, Etcd};
use crate::limits;
use crate::network::Network;
use crate::process::Process;
use crate::relay::{AddressRelay, RelayEnd};
use crate::run_dir::RunDir;

/// Medium of the exchange of a run's hosts.
#[derive(Debug)]
pub(crate) enum Meeting {
    /// In the array's slots.
    Slots,
    /// By datagrams over UDP.
    Network(Network),
    /// In etcd. `routes`: ways to it of hosts that are ever cut off.
    Etcd { etcd: Etcd, routes: BTreeMap<HostIndex, Vec<Route>> },
}

/// A host's route to a member of etcd.
#[derive(Debug)]
pub(crate) struct Route {
    from: SocketAddr,
    to: SocketAddr,
    relay: Option<AddressRelay>,
}

impl Route {
    fn open(&mut self, open: bool) -> io::Result<()> {
        if !open {
            self.relay = None;
        } else if self.relay.is_none() {
            self.relay =
                Some(AddressRelay::start(RelayEnd::Tcp(self.from), RelayEnd::Tcp(self.to))?);
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
        match self {
            Meeting::Network(network) => network.check(),
            Meeting::Slots | Meeting::Etcd { .. } => Ok(()),
        }
    }

    /// Makes the network, or starts etcd, if hosts meet there.
    ///
    /// # Errors
    /// The network cannot be made, or etcd cannot be started.
    pub(crate) fn start(scenario: &Scenario, run_dir: &RunDir) -> Result<Meeting, LabError> {
        match scenario.transport {
            MeetingTransport::File => Ok(Meeting::Slots),
            MeetingTransport::Udp => {
                let network = Network::new(scenario.hosts.len(), scenario.seed);
                network.map(Meeting::Network).map_err(no_network)
            }
            MeetingTransport::Etcd => {
                etcd::check().map_err(no_etcd)?;
                let mut etcd = Etcd::new(scenario.etcd_members, run_dir.path());
                etcd.start().map_err(not_started)?;
                let routes = routes(scenario, &etcd)?;
                Ok(Meeting::Etcd { etcd, routes })
            }
        }
    }

    /// Whether the servers can be used.
    pub(crate) fn is_ready(&self) -> bool {
        let Meeting::Etcd { etcd, .. } = self else { return true };
        etcd.addresses().all(etcd::is_well)
    }

    /// Exchange settings for a host's agent. `None` if hosts meet in the array's slots.
    pub(crate) fn exchange(&self, id: HostIndex) -> Option<ExchangeTable> {
        match self {
            Meeting::Slots => None,
            Meeting::Network(network) => {
                let doors = network.doors.iter().enumerate();
                let others = doors.filter(|(node, _)| *node != id.0);
                Some(ExchangeTable {
                    udp: Some(network.hosts[id.0].to_string()),
                    peers: Some(others.map(|(_, door)| door.to_string()).collect()),
                    ..ExchangeTable::default()
                })
            }
            Meeting::Etcd { etcd, routes } => {
                let url = |address: SocketAddr| format!("http://{address}");
                let urls = match routes.get(&id) {
                    Some(routes) => routes.iter().map(|route| url(route.from)).collect(),
                    None => etcd.addresses().map(url).collect(),
                };
                Some(ExchangeTable { etcd: Some(urls), ..ExchangeTable::default() })
            }
        }
    }

    /// Changes how well a host hears the others.
    ///
    /// # Errors
    /// A relay cannot be started again.
    pub(crate) fn set(
        &mut self,
        host: &str,
        id: HostIndex,
        hearing: &Hearing,
    ) -> Result<(), LabError> {
        match self {
            Meeting::Slots => Ok(()),
            Meeting::Network(network) => {
                network.set(id.0, hearing);
                Ok(())
            }
            Meeting::Etcd { routes, .. } => {
                let mut routes = routes.get_mut(&id).into_iter().flatten();
                let opened = routes.try_for_each(|route| route.open(hearing.reachable));
                opened.map_err(|error| no_way(host, &error))
            }
        }
    }

    /// Applies an event to etcd.
    ///
    /// # Errors
    /// It cannot be started again.
    pub(crate) fn happen(&mut self, event: EtcdEvent) -> Result<(), LabError> {
        let Meeting::Etcd { etcd, .. } = self else { return Ok(()) };
        etcd.happen(event).map_err(not_started)
    }

    /// Processes of the servers that run.
    pub(crate) fn processes(&mut self) -> impl Iterator<Item = &mut Process> {
        let etcd = match self {
            Meeting::Etcd { etcd, .. } => Some(etcd),
            Meeting::Slots | Meeting::Network(_) => None,
        };
        etcd.into_iter().flat_map(Etcd::processes)
    }
}

/// Routes to each member of etcd, for hosts that are ever cut off.
fn routes(scenario: &Scenario, etcd: &Etcd) -> Result<BTreeMap<HostIndex, Vec<Route>>, LabError> {
    let cut_off = scenario.present().filter(|(id, _)| limits::has_own_relay(scenario, *id));
    let of_host = |(id, host): (HostIndex, &Host)| {
        let route = |to: SocketAddr| {
            // The port stays this host's, as no one else listens at the member's address.
            let from = TcpListener::bind((to.ip(), 0))?.local_addr()?;
            let mut route = Route { from, to, relay: None };
            route.open(true).map(|()| route)
        };
        let routes = etcd.addresses().map(route).collect::<io::Result<_>>();
        Ok((id, routes.map_err(|error| no_way(&host.name, &error))?))
    };
    cut_off.map(of_host).collect()
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

fn not_started(error: io::Error) -> LabError {
    LabError::failed(format!("cannot start etcd: {error}"))
}
