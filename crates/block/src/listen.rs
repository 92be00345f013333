//! Sockets that clients connect to.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use parda_address::Address;
use rustix::event::epoll;

use crate::descriptors::{error_help, is_reserved};
use crate::front::ListenerTls;
use crate::socket_file::{SocketAccess, SocketFile};

/// For how long the sockets of a server that was killed may outlive it: the kernel closes what its
/// ring still has some time after the process is gone, and whoever restarts it need not wait.
const BURIAL: Duration = Duration::from_secs(2);

/// How long to wait before looking again whether they are gone.
const PAUSE: Duration = Duration::from_millis(20);

/// Reason why nobody can connect at an address.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address cannot be used.
    #[error(
        "cannot listen on {address}: {source}{}",
        error_help(source).unwrap_or_default()
    )]
    Bind {
        /// The address, as it is configured.
        address: Address,
        /// Error of the system.
        source: io::Error,
    },
    /// Somebody answers on the socket.
    #[error(
        "cannot listen on {0}: another process serves it: `ss -lxp` names it. End that one, or give `listen` another path"
    )]
    InUse(Address),
    /// Others than this host can reach the address.
    #[error("cannot listen on {0}: it is not a loopback address, and TLS is not required there")]
    NotLocal(Address),
    /// There is a file that is no socket.
    #[error("cannot listen on {0}: there is a file that is not a socket")]
    NotASocket(Address),
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

/// A bound socket. A unix socket's file goes with it.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) fd: Arc<OwnedFd>,
    /// Readable when a front end of vhost-user waits at the socket: an epoll. An operation on the socket itself, as those of
    /// NBD have one, keeps it open for some time after the process is gone.
    pub(crate) ready: Option<Arc<OwnedFd>>,
    /// With the port that was given to port 0.
    pub(crate) address: Address,
    pub(crate) file: Option<SocketFile>,
    pub(crate) tls: Option<ListenerTls>,
    /// Somebody else holds the socket too, and will use it when we are gone.
    pub(crate) shared: bool,
}

/// Binds an address and listens, or takes over the socket that was passed for it.
pub(crate) fn bind(config: ListenerConfig) -> Result<Bound, ListenError> {
    let ListenerConfig { address, access, tls, local_only, passed } = config;
    let fail = |source| ListenError::Bind { address: address.clone(), source };
    if let Some(fd) = passed {
        let ready = ready(&fd, &address).map_err(fail)?;
        return Ok(Bound { fd: fd.into(), ready, address, file: None, tls, shared: true });
    }
    match &address {
        Address::Tcp { host, port } => {
            let all: Vec<SocketAddr> =
                (host.as_str(), *port).to_socket_addrs().map_err(fail)?.collect();
            if local_only && !all.iter().all(|a| a.ip().to_canonical().is_loopback()) {
                return Err(ListenError::NotLocal(address));
            }
            let until = Instant::now() + BURIAL;
            let listener = loop {
                match TcpListener::bind(&all[..]) {
                    Err(e) if e.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                        sleep(PAUSE);
                    }
                    bound => break bound.map_err(fail)?,
                }
            };
            if is_reserved(&listener) {
                return Err(fail(io::Error::from_raw_os_error(libc::EMFILE)));
            }
            let port = listener.local_addr().map(|a: SocketAddr| a.port()).map_err(fail)?;
            let address = Address::Tcp { host: host.clone(), port };
            Ok(Bound {
                fd: OwnedFd::from(listener).into(),
                ready: None,
                address,
                file: None,
                tls,
                shared: false,
            })
        }
        Address::Unix(path) | Address::Vhost(path) => {
            let (fd, file) = match SocketFile::bind(path, access) {
                Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
                    remove_stale(path, &address)?;
                    SocketFile::bind(path, access)
                }
                other => other,
            }
            .map_err(fail)?;
            if is_reserved(&fd) {
                return Err(fail(io::Error::from_raw_os_error(libc::EMFILE)));
            }
            let ready = ready(&fd, &address).map_err(fail)?;
            Ok(Bound { fd: fd.into(), ready, address, file: Some(file), tls, shared: false })
        }
    }
}

/// Makes accepts as the front end of this address needs them. Those in the ring block: else every one would return at once.
fn ready(fd: &OwnedFd, address: &Address) -> io::Result<Option<Arc<OwnedFd>>> {
    let vhost = matches!(address, Address::Vhost(_));
    rustix::io::ioctl_fionbio(fd, vhost)?;
    if !vhost {
        return Ok(None);
    }
    let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    if is_reserved(&ready) {
        return Err(io::Error::from_raw_os_error(libc::EMFILE));
    }
    epoll::add(&ready, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    Ok(Some(ready.into()))
}

/// Removes a socket that a process which is gone has left behind.
fn remove_stale(path: &PathBuf, address: &Address) -> Result<(), ListenError> {
    let fail = |source| ListenError::Bind { address: address.clone(), source };
    if !std::fs::symlink_metadata(path).map_err(fail)?.file_type().is_socket() {
        return Err(ListenError::NotASocket(address.clone()));
    }
    let until = Instant::now() + BURIAL;
    loop {
        match UnixStream::connect(path) {
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                return std::fs::remove_file(path).map_err(fail);
            }
            Ok(stream) if !speaks(&stream) && Instant::now() < until => sleep(PAUSE),
            // An answer, or a reason to believe that there is somebody.
            _ => return Err(ListenError::InUse(address.clone())),
        }
    }
}

/// Whether somebody greets us. Whoever serves NBD does so at once, and the dead do not.
fn speaks(mut stream: &UnixStream) -> bool {
    let heard = stream.set_read_timeout(Some(BURIAL)).and_then(|()| stream.read(&mut [0]));
    heard.is_ok_and(|n| n > 0)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixListener;

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
        let server = UnixListener::from(Arc::into_inner(bound.fd).unwrap());
        let greets = std::thread::spawn(move || server.accept().unwrap().0.write_all(b"NBD"));
        assert!(matches!(bind(&address), Err(ListenError::InUse(_))));
        greets.join().unwrap().unwrap();
        drop(bound.file);
        assert!(!path.exists());
        std::fs::write(&path, "precious").unwrap();
        assert!(matches!(bind(&address), Err(ListenError::NotASocket(_))));
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
    fn a_server_that_is_just_dying_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let dying = UnixListener::bind(&path).unwrap();
        // It takes the connection without a word, and is gone.
        let dies = std::thread::spawn(move || drop(dying.accept().unwrap()));
        let bound = bind(&Address::Unix(path)).unwrap();
        dies.join().unwrap();
        drop(bound);
    }

    #[test]
    fn a_listener_for_this_host_alone_is_not_bound_elsewhere() {
        for (host, local) in [("0.0.0.0", false), ("::", false), ("127.0.0.1", true)] {
            let address = Address::Tcp { host: host.into(), port: 0 };
            let config = ListenerConfig { local_only: true, ..ListenerConfig::new(address) };
            match super::bind(config) {
                Ok(_) => assert!(local, "{host}"),
                Err(ListenError::NotLocal(_)) => assert!(!local, "{host}"),
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn a_socket_that_was_passed_is_used_and_its_file_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let theirs = UnixListener::bind(&path).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let passed = Some(theirs.try_clone().unwrap().into());
        let config = ListenerConfig { passed, ..ListenerConfig::new(Address::Unix(path.clone())) };
        let bound = super::bind(config).unwrap();
        let client = UnixStream::connect(&path).unwrap();
        // It blocks, and so would this if nobody had connected.
        UnixListener::from(bound.fd.try_clone().unwrap()).accept().unwrap();
        assert!(
            !rustix::fs::fcntl_getfl(&bound.fd).unwrap().contains(rustix::fs::OFlags::NONBLOCK)
        );
        drop((bound, client));
        UnixStream::connect(&path).unwrap();
    }

    #[test]
    fn port_zero_becomes_a_port() {
        let bound = bind(&Address::Tcp { host: "127.0.0.1".into(), port: 0 }).unwrap();
        assert!(matches!(bound.address, Address::Tcp { port: 1.., .. }));
    }
}
