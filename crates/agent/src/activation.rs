//! Sockets that a service manager passes to the agent (sd_listen_fds(3)). The manager has bound them and keeps them open while the agent
//! restarts. Clients that connect meanwhile wait in the queues of these sockets.

use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use listenfd::ListenFd;
use parda_address::{Address, Socket};
use rustix::net::{SocketFlags, accept_with};

/// More sockets than any agent has disks.
const MAX: usize = 4096;

/// Address at which a passed socket listens.
#[derive(Debug, PartialEq, Eq)]
enum BoundAddress {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// The sockets that were passed. They stay open as long as this value exists: a listener that is removed and added again finds its socket.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    sockets: Vec<(BoundAddress, OwnedFd)>,
}

/// The first descriptor that is passed (`SD_LISTEN_FDS_START`).
const FIRST: usize = 3;

impl Passed {
    /// Takes the sockets that the environment names, if it names any for this process. To be called
    /// once, before the process opens anything.
    ///
    /// # Errors
    /// A name that the configuration has was not passed.
    pub(crate) fn from_environment() -> Result<Passed, String> {
        let pid = std::env::var("LISTEN_PID").ok().and_then(|pid| pid.parse().ok());
        if pid != Some(std::process::id()) {
            // Meant for a parent of this process, or for no process.
            return Ok(Passed::default());
        }
        let count = std::env::var("LISTEN_FDS").unwrap_or_default();
        if !count.parse().is_ok_and(|n: usize| n <= MAX) {
            return Err(format!("LISTEN_FDS={count}: must be a number from 0 to {MAX}"));
        }
        // Takes the variables away, too, so that no child believes them.
        let mut fds = ListenFd::from_env();
        let sockets = (0..fds.len()).map(|i| {
            take(&mut fds, i).map_err(|why| {
                let fd = FIRST + i;
                format!("the descriptor {fd} that was passed is no listening unix or TCP stream socket: {why}")
            })
        });
        Ok(Passed { sockets: sockets.collect::<Result<_, _>>()? })
    }

    /// The socket that listens at this address, if one was passed.
    ///
    /// # Errors
    /// There is one, and no descriptor for it.
    pub(crate) fn at(&self, address: &Address) -> std::io::Result<Option<OwnedFd>> {
        let found = self.sockets.iter().find(|(place, _)| place.is(address));
        found.map(|(_, fd)| fd.try_clone()).transpose()
    }

    /// Numbers of the sockets that none of these addresses is for.
    pub(crate) fn not_at(&self, addresses: &[&Address]) -> Vec<usize> {
        let is_unused = |n: &usize| !addresses.iter().any(|a| self.sockets[*n].0.is(a));
        (0..self.sockets.len()).filter(is_unused).collect()
    }

    /// Address at which the socket of this number listens.
    pub(crate) fn place(&self, number: usize) -> String {
        self.sockets[number].0.to_string()
    }

    /// Closes the connections that wait at these sockets. The sockets stay: the service manager has them, too.
    pub(crate) fn turn_away(&self, numbers: &[usize]) {
        for number in numbers {
            let accept =
                |_: &_| accept_with(&self.sockets[*number].1, SocketFlags::CLOEXEC).is_ok();
            let _ = (0..MAX).take_while(accept).count();
        }
    }
}

fn take(fds: &mut ListenFd, index: usize) -> std::io::Result<(BoundAddress, OwnedFd)> {
    let gone = || std::io::Error::other("it is not there");
    let (place, fd): (BoundAddress, OwnedFd) = match fds.take_unix_listener(index) {
        Ok(socket) => {
            let socket = socket.ok_or_else(gone)?;
            let address = socket.local_addr()?;
            let path = address.as_pathname().ok_or_else(|| {
                std::io::Error::other("it is a unix socket without a path in the file system")
            })?;
            (BoundAddress::Unix(resolved(path)), socket.into())
        }
        Err(_) => {
            let socket = fds.take_tcp_listener(index)?.ok_or_else(gone)?;
            (BoundAddress::Tcp(socket.local_addr()?), socket.into())
        }
    };
    if rustix::net::sockopt::socket_acceptconn(&fd)? {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok((place, fd))
    } else {
        Err(std::io::Error::other("it does not listen (Accept=yes in the .socket unit?)"))
    }
}

impl BoundAddress {
    fn is(&self, address: &Address) -> bool {
        match (self, address.socket()) {
            (BoundAddress::Unix(ours), Socket::Unix(path)) => *ours == resolved(path),
            (BoundAddress::Tcp(ours), Socket::Tcp(host, port)) => {
                // A name that cannot be looked up is no address that we were passed.
                (host, port).to_socket_addrs().is_ok_and(|mut all| all.any(|a| a == *ours))
            }
            _ => false,
        }
    }
}

impl std::fmt::Display for BoundAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BoundAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            BoundAddress::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// The path with its directory as the kernel sees it: `/var/run/x` and `/run/x` are one socket.
fn resolved(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match (absolute.parent().map(Path::canonicalize), absolute.file_name()) {
        (Some(Ok(directory)), Some(name)) => directory.join(name),
        _ => absolute,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn sockets_are_found_by_where_they_listen() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let unix = UnixListener::bind(link.join("s")).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let bound = tcp.local_addr().unwrap();
        let passed = Passed {
            sockets: vec![
                (BoundAddress::Unix(resolved(&link.join("s"))), unix.into()),
                (BoundAddress::Tcp(bound), tcp.into()),
            ],
        };
        let unix = |path: PathBuf| Address::Unix(path);
        let tcp = |host: &str, port| Address::Tcp { host: host.into(), port };
        for (address, found) in [
            (unix(real.join("s")), true),
            (unix(link.join("s")), true),
            (unix(real.join("t")), false),
            (tcp("127.0.0.1", bound.port()), true),
            (tcp("localhost", bound.port()), true),
            (tcp("127.0.0.1", bound.port().wrapping_add(1)), false),
            (tcp("127.0.0.2", bound.port()), false),
        ] {
            assert_eq!(passed.at(&address).unwrap().is_some(), found, "{address}");
        }
        let here = tcp("127.0.0.1", bound.port());
        assert_eq!(passed.not_at(&[&here]), [0]);
        assert!(passed.place(0).starts_with("unix:"), "{}", passed.place(0));
    }
}
