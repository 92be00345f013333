//! Web dashboards of a run's hosts, for a run that goes on until it is interrupted.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, TcpListener};

use parda_agent::file::Http;
use parda_scenario::{HostId, Scenario};

/// First port that is tried: the one that the documentation uses.
const FIRST: u16 = 9843;

/// Ports on loopback, one for each host that is a process.
#[derive(Clone, Debug)]
pub struct Dashboards(BTreeMap<HostId, u16>);

impl Dashboards {
    /// Chooses ports that nobody listens at now.
    ///
    /// # Errors
    /// All ports are taken.
    pub fn choose(scenario: &Scenario) -> io::Result<Dashboards> {
        let mut ports = FIRST..=u16::MAX;
        let mut free = || {
            let free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
            ports.find(free).ok_or_else(|| io::Error::other("no port is free on loopback"))
        };
        let agents = scenario
            .host_ids()
            .filter(|(_, host)| host.present && !host.outside && host.kind.guest().is_none());
        agents.map(|(id, _)| Ok((id, free()?))).collect::<io::Result<_>>().map(Dashboards)
    }

    /// Names of hosts, with the addresses of their pages.
    pub fn urls<'a>(&self, scenario: &'a Scenario) -> impl Iterator<Item = (&'a str, String)> {
        self.0.iter().map(|(id, port)| {
            (scenario.host(*id).name.as_str(), format!("http://127.0.0.1:{port}/"))
        })
    }

    pub(crate) fn http(&self, id: HostId) -> Option<Http> {
        let address = format!("tcp:127.0.0.1:{}", self.0.get(&id)?);
        Some(Http { address, plain: false, tokens: None })
    }
}
