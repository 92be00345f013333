//! Web dashboards of a run's hosts, for a run that goes on until it is interrupted.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use parda_agent::file::HttpTable;
use parda_scenario::{HostIndex, Scenario};

/// First port that is tried: the one that the documentation uses.
const FIRST: u16 = 9843;

/// Ports on loopback, one for each host that is a process, and a token for changes.
#[derive(Clone, Debug)]
pub struct Dashboards {
    ports: BTreeMap<HostIndex, u16>,
    token: String,
}

impl Dashboards {
    /// Chooses ports without a listener.
    ///
    /// # Errors
    /// All ports are taken, or the system gives no random bytes.
    pub fn choose(scenario: &Scenario) -> io::Result<Dashboards> {
        let mut ports = FIRST..=u16::MAX;
        let mut free = || {
            let free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
            ports.find(free).ok_or_else(|| io::Error::other("no port is free on loopback"))
        };
        let agents = scenario
            .host_ids()
            .filter(|(_, host)| host.present && !host.outside && host.guest.is_none());
        let ports = agents.map(|(id, _)| Ok((id, free()?))).collect::<io::Result<_>>()?;
        let mut secret = [0; 16];
        File::open("/dev/urandom")?.read_exact(&mut secret)?;
        let token = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Dashboards { ports, token })
    }

    /// The token with which the pages change shares and thresholds.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Writes the file of tokens of all agents.
    pub(crate) fn write_tokens(&self, path: &Path) -> io::Result<()> {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        writeln!(file, "lab write {}", self.token)
    }

    /// Names of hosts, with the addresses of their pages.
    pub fn urls<'a>(&self, scenario: &'a Scenario) -> impl Iterator<Item = (&'a str, String)> {
        self.ports.iter().map(|(id, port)| {
            (scenario.host(*id).name.as_str(), format!("http://127.0.0.1:{port}/"))
        })
    }

    pub(crate) fn http(&self, id: HostIndex, tokens: &Path) -> Option<HttpTable> {
        let address = format!("tcp:127.0.0.1:{}", self.ports.get(&id)?);
        let tokens = Some(tokens.to_owned());
        Some(HttpTable { address, plain: false, tls: None, pages: None, tokens })
    }
}
