//! The etcd in which hosts meet: members that are real processes, on loopback or in namespaces of their own.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use parda_scenario::exchange::EtcdEvent;
use rustix::process::Signal;

use crate::process::Process;

/// Port at which members serve clients.
const CLIENTS: u16 = 2379;

/// Port at which members meet one another.
const PEERS: u16 = 2380;

/// Time for one answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// All members of one etcd.
#[derive(Debug)]
pub(crate) struct Etcd {
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    who: String,
    address: SocketAddr,
    arguments: Vec<String>,
    process: Option<Process>,
}

/// Checks that etcd is installed.
///
/// # Errors
/// It cannot be run.
pub(crate) fn check() -> io::Result<()> {
    Command::new("etcd").arg("--version").stdout(Stdio::null()).status().map(drop)
}

impl Etcd {
    /// Members at these addresses, not yet started, with their data in `dir`.
    pub(crate) fn new(addresses: &[SocketAddr], dir: &Path) -> Etcd {
        let url = |address: &SocketAddr, port: u16| format!("http://{}:{port}", address.ip());
        let peers = addresses.iter().enumerate();
        let all: Vec<_> = peers.map(|(n, at)| format!("m{n}={}", url(at, PEERS))).collect();
        let member = |(n, at): (usize, &SocketAddr)| {
            let (client, peer) = (url(at, CLIENTS), url(at, PEERS));
            let flags = [
                ("name", format!("m{n}")),
                ("data-dir", dir.join(format!("etcd{n}")).display().to_string()),
                ("listen-client-urls", client.clone()),
                ("advertise-client-urls", client),
                ("listen-peer-urls", peer.clone()),
                ("initial-advertise-peer-urls", peer),
                ("initial-cluster", all.join(",")),
                ("auto-compaction-mode", "periodic".to_owned()),
                ("auto-compaction-retention", "1m".to_owned()),
                ("logger", "zap".to_owned()),
            ];
            let flags = flags.into_iter().flat_map(|(flag, value)| [format!("--{flag}"), value]);
            Member {
                who: format!("member {n} of etcd"),
                address: SocketAddr::new(at.ip(), CLIENTS),
                arguments: flags.collect(),
                process: None,
            }
        };
        Etcd { members: addresses.iter().enumerate().map(member).collect() }
    }

    /// Starts the members that do not run.
    pub(crate) fn start(&mut self, dir: &Path) -> io::Result<()> {
        for (n, member) in self.members.iter_mut().enumerate() {
            if member.process.is_none() {
                let mut command = Command::new("etcd");
                command.args(&member.arguments);
                // etcd takes settings from its environment, too, and refuses two of one name.
                for (name, _) in std::env::vars_os() {
                    if name.as_encoded_bytes().starts_with(b"ETCD_") {
                        command.env_remove(name);
                    }
                }
                let log = dir.join(format!("etcd{n}.log"));
                member.process = Some(Process::start(member.who.clone(), log, command)?);
            }
        }
        Ok(())
    }

    /// Lets something happen to all members that run.
    pub(crate) fn happen(&mut self, event: EtcdEvent) {
        let signal = match event {
            EtcdEvent::Hang => Signal::STOP,
            EtcdEvent::Resume => Signal::CONT,
            EtcdEvent::Kill => {
                self.members.iter_mut().for_each(|member| member.process = None);
                return;
            }
            EtcdEvent::Start => return,
        };
        for process in self.processes() {
            process.signal(signal);
        }
    }

    /// Addresses at which members serve clients.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.members.iter().map(|member| member.address)
    }

    /// Processes of the members that run.
    pub(crate) fn processes(&mut self) -> impl Iterator<Item = &mut Process> {
        self.members.iter_mut().filter_map(|member| member.process.as_mut())
    }
}

/// Whether the member at this address has a leader.
pub(crate) fn is_well(address: SocketAddr) -> bool {
    let ask = || -> io::Result<String> {
        let mut socket = TcpStream::connect_timeout(&address, PATIENCE)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        write!(socket, "GET /health HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).map(|_| answer)
    };
    ask().is_ok_and(|answer| answer.contains("\"health\":\"true\""))
}
