//! Binding the socket of an address for clients, or taking one over that a service manager has bound.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::OwnedFd;

use parda_address::{Address, Socket};

use crate::descriptors::{error_help, is_reserved};
use crate::front::ListenerTls;
use crate::socket_file::{SocketAccess, SocketFile};

/// Reason why nobody can connect at an address, as a sentence.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {0}: {1}")]
pub struct ListenError(Address, String);

impl ListenError {
    pub(crate) fn system(address: &Address, error: &io::Error) -> ListenError {
        let help = error_help(error).unwrap_or_default();
        ListenError(address.clone(), format!("{error}{help}"))
    }
}

/// How a listener is set up.
#[derive(Debug)]
pub struct ListenerConfig {
    /// Address at which clients connect.
    pub address: Address,
    /// Mode, owner and group of a unix socket.
    pub access: SocketAccess,
    /// TLS for its clients.
    pub tls: Option<ListenerTls>,
    /// Refuses TCP addresses that others than this host can reach.
    pub local_only: bool,
    /// A socket that listens at this address already, handed over by a service manager. It is used
    /// as it is, and its file is not removed.
    pub passed: Option<OwnedFd>,
}

impl ListenerConfig {
    /// A listener that is bound here; a unix socket is for the process's own user.
    #[must_use]
    pub fn new(address: Address) -> ListenerConfig {
        let access = SocketAccess::default();
        ListenerConfig { address, access, tls: None, local_only: false, passed: None }
    }
}

/// A bound socket, whose accepts do not block. A unix socket's file goes with it.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) fd: OwnedFd,
    /// With the port that was given to port 0.
    pub(crate) address: Address,
    pub(crate) _file: Option<SocketFile>,
    pub(crate) tls: Option<ListenerTls>,
}

/// Binds an address and listens, or takes over the socket that was passed for it.
pub(crate) fn bind(config: ListenerConfig) -> Result<Bound, ListenError> {
    let ListenerConfig { address, access, tls, local_only, passed } = config;
    let fail = |error: io::Error| ListenError::system(&address, &error);
    let (fd, at, file) = match (passed, address.socket()) {
        (Some(fd), _) => (fd, address.clone(), None),
        (None, Socket::Tcp(host, port)) => {
            let all: Vec<SocketAddr> = (host, port).to_socket_addrs().map_err(fail)?.collect();
            if local_only && !all.iter().all(|a| a.ip().to_canonical().is_loopback()) {
                let why = "it is not a loopback address, and TLS is not required there";
                return Err(ListenError(address, why.to_owned()));
            }
            let listener = TcpListener::bind(&all[..]).map_err(fail)?;
            let port = listener.local_addr().map_err(fail)?.port();
            (listener.into(), Address::Tcp { host: host.to_owned(), port }, None)
        }
        (None, Socket::Unix(path)) => {
            let (fd, file) = SocketFile::take(path, access).map_err(fail)?;
            (fd, address.clone(), Some(file))
        }
    };
    if is_reserved(&fd) {
        return Err(fail(io::Error::from_raw_os_error(libc::EMFILE)));
    }
    rustix::io::ioctl_fionbio(&fd, true).map_err(|error| fail(error.into()))?;
    Ok(Bound { fd, address: at, _file: file, tls })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    fn bind(address: &Address) -> Result<Bound, ListenError> {
        super::bind(ListenerConfig::new(address.clone()))
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let address = Address::Unix(path.clone());
        drop(UnixListener::bind(&path).unwrap());
        let bound = bind(&address).unwrap();
        let error = bind(&address).unwrap_err().to_string();
        assert!(error.contains("another process serves it"), "{error}");
        drop(bound);
        assert!(!path.exists());
        std::fs::write(&path, "precious").unwrap();
        let error = bind(&address).unwrap_err().to_string();
        assert!(error.contains("not a socket"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn a_socket_that_another_has_put_in_place_of_ours_is_left_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let ours = bind(&Address::Unix(path.clone())).unwrap();
        std::fs::remove_file(&path).unwrap();
        let others = UnixListener::bind(&path).unwrap();
        drop(ours);
        assert!(path.exists());
        drop(others);
    }

    #[test]
    fn a_listener_for_this_host_alone_is_not_bound_elsewhere() {
        for (host, local) in [("0.0.0.0", false), ("::", false), ("127.0.0.1", true)] {
            let address = Address::Tcp { host: host.into(), port: 0 };
            let config = ListenerConfig { local_only: true, ..ListenerConfig::new(address) };
            match super::bind(config) {
                Ok(_) => assert!(local, "{host}"),
                Err(error) => {
                    assert!(
                        !local && error.to_string().contains("not a loopback"),
                        "{host}: {error}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_socket_that_was_passed_is_used_and_its_file_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let theirs = UnixListener::bind(&path).unwrap();
        let passed = Some(theirs.try_clone().unwrap().into());
        let config = ListenerConfig { passed, ..ListenerConfig::new(Address::Unix(path.clone())) };
        let bound = super::bind(config).unwrap();
        let client = UnixStream::connect(&path).unwrap();
        UnixListener::from(bound.fd.try_clone().unwrap()).accept().unwrap();
        drop((bound, client));
        UnixStream::connect(&path).unwrap();
    }

    #[test]
    fn port_zero_becomes_a_port() {
        let bound = bind(&Address::Tcp { host: "127.0.0.1".into(), port: 0 }).unwrap();
        assert!(matches!(bound.address, Address::Tcp { port: 1.., .. }));
    }
}
