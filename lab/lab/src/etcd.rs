//! The etcd in which hosts meet: members that are real processes, on loopback or in namespaces of their own.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
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
    log: PathBuf,
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
    /// Members, at most seven, at addresses of loopback. Not yet started, with their data in `dir`.
    pub(crate) fn new(members: u8, dir: &Path) -> Etcd {
        let (x, y) = (fastrand::u8(2..), fastrand::u8(..));
        let ip = |n: u8| Ipv4Addr::new(127, x, y, n + 1);
        let url = |n: u8, port: u16| format!("http://{}:{port}", ip(n));
        let all: Vec<_> = (0..members).map(|n| format!("m{n}={}", url(n, PEERS))).collect();
        let member = |n: u8| {
            let (client, peer) = (url(n, CLIENTS), url(n, PEERS));
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
                address: SocketAddr::new(ip(n).into(), CLIENTS),
                arguments: flags.collect(),
                log: dir.join(format!("etcd{n}.log")),
                process: None,
            }
        };
        Etcd { members: (0..members).map(member).collect() }
    }

    /// Starts the members that do not run.
    pub(crate) fn start(&mut self) -> io::Result<()> {
        for member in self.members.iter_mut().filter(|member| member.process.is_none()) {
            let mut command = Command::new("etcd");
            command.args(&member.arguments);
            // etcd takes settings from its environment, too, and refuses two of one name.
            for (name, _) in std::env::vars_os() {
                if name.as_encoded_bytes().starts_with(b"ETCD_") {
                    command.env_remove(name);
                }
            }
            let (who, log) = (member.who.clone(), member.log.clone());
            member.process = Some(Process::start(who, log, command)?);
        }
        Ok(())
    }

    /// Applies an event to all members.
    pub(crate) fn happen(&mut self, event: EtcdEvent) -> io::Result<()> {
        match event {
            EtcdEvent::Hang => self.processes().for_each(|process| process.signal(Signal::STOP)),
            EtcdEvent::Resume => self.processes().for_each(|process| process.signal(Signal::CONT)),
            EtcdEvent::Kill => self.members.iter_mut().for_each(|member| member.process = None),
            EtcdEvent::Start => self.start()?,
        }
        Ok(())
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
