//! Sockets that a service manager passes to the agent (sd_listen_fds(3)): it has bound them, holds
//! them while the agent restarts, and clients that connect meanwhile wait in their queues.

use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use listenfd::ListenFd;
use parda_address::Address;

/// More sockets than any agent has disks.
const MAX: usize = 4096;

/// Where a passed socket listens.
#[derive(Debug, PartialEq, Eq)]
enum BoundAddress {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// The sockets that were passed. They stay open as long as this is kept, so that a listener that
/// goes and comes again finds its socket.
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
            // Meant for a process that we are a child of, or for nobody.
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

    /// Where sockets listen that none of these addresses is for.
    pub(crate) fn not_at(&self, addresses: &[&Address]) -> Vec<String> {
        let unused = self.sockets.iter().filter(|(p, _)| !addresses.iter().any(|a| p.is(a)));
        unused.map(|(place, _)| place.to_string()).collect()
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
        Ok((place, fd))
    } else {
        Err(std::io::Error::other("it does not listen (Accept=yes in the .socket unit?)"))
    }
}

impl BoundAddress {
    fn is(&self, address: &Address) -> bool {
        match (self, address) {
            (BoundAddress::Unix(ours), Address::Unix(path) | Address::Vhost(path)) => {
                *ours == resolved(path)
            }
            (BoundAddress::Tcp(ours), Address::Tcp { host, port }) => {
                // A name that cannot be looked up is no address that we were passed.
                (host.as_str(), *port)
                    .to_socket_addrs()
                    .is_ok_and(|mut all| all.any(|a| a == *ours))
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
        let left = passed.not_at(&[&here]);
        assert_eq!(left.len(), 1);
        assert!(left[0].starts_with("unix:"), "{left:?}");
    }
}
