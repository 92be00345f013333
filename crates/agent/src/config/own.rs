//! Files and sockets of the agent itself: no disk has its data there, and no disk listens there.

use std::collections::HashSet;
use std::net::{IpAddr, ToSocketAddrs as _, UdpSocket};
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use parda_address::{Address, Certificates, Place, Uri};
use parda_block::Stretch;
use parda_config::Document;
use parda_exchange::HostName;
use rustix::fs::{FileType, fstat, stat};

use super::place::stretch;
use crate::file;

/// Files and addresses that belong to the agent itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// Number of the host.
    host: u64,
    /// Files of the agent, each with its role.
    files: Vec<(&'static str, PathBuf)>,
    /// Addresses at which its disks are served.
    listeners: Vec<Address>,
}

impl Own {
    /// Number of the host, by which disks that are shared tell its agent from others.
    pub(crate) fn host(&self) -> u64 {
        self.host
    }

    /// `disks` are the places of the data of all disks, each with the address where clients find it.
    pub(super) fn new<'a>(
        doc: &Document,
        file: &file::File,
        host: &HostName,
        disks: impl Iterator<Item = (Place, &'a Address)>,
    ) -> Own {
        let mut own = Own { host: host.id().0, ..Own::default() };
        own.add("the configuration", Some(Path::new(doc.name())));
        own.add("the state file", file.state.as_deref());
        own.add("the file of the policy", file.state.as_deref().map(policy_beside).as_deref());
        let http = file.http.as_ref();
        own.add("the file of tokens", http.and_then(|http| http.tokens.as_deref()));
        let shown =
            file.listener.iter().filter_map(|listener| Some(listener.tls.as_ref()?.files()));
        for tls in http.and_then(|http| http.tls.clone()).into_iter().chain(shown) {
            own.tls(tls.clients.as_deref(), Some(&tls.certificate), Some(&tls.key));
        }
        if let Some(policy) = &file.policy {
            own.etcd(policy.tls.as_ref(), policy.password_file.as_deref());
        }
        for volume in &file.volume {
            own.add("a stored probe", volume.control.probe());
            if let Some(exchange) = &volume.exchange {
                own.add("a file of keys", exchange.key_file.as_deref());
                own.etcd(exchange.tls.as_ref(), exchange.password_file.as_deref());
            }
            for tls in volume.disk.iter().filter_map(|disk| disk.nbd.as_ref()?.tls.as_ref()) {
                own.tls(tls.ca.as_deref(), tls.certificate.as_deref(), tls.key.as_deref());
            }
        }
        let mut seen = HashSet::new();
        for (place, listen) in disks {
            own.certificates(&place);
            if seen.insert(listen) {
                own.listeners.push(listen.clone());
            }
        }
        own
    }

    fn add(&mut self, what: &'static str, path: Option<&Path>) {
        self.files.extend(path.map(|path| (what, path.to_owned())));
    }

    fn tls(&mut self, ca: Option<&Path>, certificate: Option<&Path>, key: Option<&Path>) {
        self.add("a certificate of CAs", ca);
        self.add("a certificate", certificate);
        self.add("a private key", key);
    }

    fn etcd(&mut self, tls: Option<&file::EtcdTls>, password: Option<&Path>) {
        if let Some(tls) = tls {
            self.tls(Some(&tls.ca), tls.certificate.as_deref(), tls.key.as_deref());
        }
        self.add("a password", password);
    }

    /// Adds the certificates for the server behind a disk, if its URI names them.
    fn certificates(&mut self, place: &Place) {
        let Place::Nbd(Uri { tls: Some(tls), .. }) = place else { return };
        match &tls.certificates {
            Certificates::Unsaid => {}
            Certificates::Directory(directory) => {
                let [ca, certificate, key] = ["ca-cert.pem", "client-cert.pem", "client-key.pem"]
                    .map(|it| directory.join(it));
                self.tls(Some(&ca), Some(&certificate), Some(&key));
            }
            Certificates::Files { ca, identity } => {
                let (certificate, key) = identity.as_ref().map(|(c, k)| (&**c, &**k)).unzip();
                self.tls(Some(ca), certificate, key);
            }
        }
    }

    /// Fault of the place of a disk's data, if that place is the agent's own. Looks at the file, and looks names of hosts up: that takes as
    /// long as it takes.
    pub(crate) fn fault(&self, place: &Place, region: Option<&Range<u64>>) -> Option<String> {
        match place {
            Place::Path(path) => {
                let place = stretch(place, region.cloned());
                let named = self.files.iter().find(|(_, own)| place.meets_path(own));
                let named = named.map(|(what, _)| *what);
                let what = named.or_else(|| is_log(path).then_some("the log"))?;
                Some(format!(
                    "is {what} of this agent: clients would read and write it; a disk needs a file of its own"
                ))
            }
            Place::Nbd(uri) => {
                let own = self.listeners.iter().find(|own| is_one(own, &uri.address))?;
                Some(format!(
                    "is served by this agent itself, at {own}: name the data of that disk, or another server"
                ))
            }
        }
    }
}

/// Whether a path leads to the file that standard error goes to.
fn is_log(path: &Path) -> bool {
    let (Ok(log), Ok(file)) = (fstat(std::io::stderr().as_fd()), stat(path)) else { return false };
    let regular = FileType::from_raw_mode(log.st_mode) == FileType::RegularFile;
    regular && (log.st_dev, log.st_ino) == (file.st_dev, file.st_ino)
}

/// Whether a client that connects to `server` reaches `own`.
fn is_one(own: &Address, server: &Address) -> bool {
    match (own, server) {
        // However they are spelled, and whether the socket is there or not.
        (Address::Unix(own), Address::Unix(server)) => {
            Stretch::of_path(own, None).meets(&Stretch::of_path(server, None))
        }
        (Address::Tcp { host: own, port }, Address::Tcp { host: server, port: there }) => {
            port == there && (own.eq_ignore_ascii_case(server) || reaches(own, server, *port))
        }
        _ => false,
    }
}

fn reaches(own: &str, server: &str, port: u16) -> bool {
    let addresses = |host: &str| {
        let all = (host, port).to_socket_addrs();
        all.map(|all| all.map(|at| at.ip().to_canonical()).collect::<Vec<_>>())
    };
    let (Ok(own), Ok(server)) = (addresses(own), addresses(server)) else { return false };
    own.iter().any(|own| {
        server.iter().any(|server| {
            own == server
                || own.is_unspecified() && is_of_this_host(*server)
                || server.is_unspecified() && own.is_loopback()
        })
    })
}

/// Only an address of this host can be bound.
pub(crate) fn is_of_this_host(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

/// The socket beside the status socket, at which the API is.
#[must_use]
pub fn api_beside(status: &Path) -> PathBuf {
    beside(status, ".api")
}

/// The file beside the state file, in which the policy is kept.
pub(super) fn policy_beside(state: &Path) -> PathBuf {
    beside(state, ".policy")
}

/// The path with a suffix.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}
