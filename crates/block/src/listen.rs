//! Sockets that clients connect to.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use parda_nbd::uri::Address;

/// Why nobody can connect at an address.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address cannot be used.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: Address,
        /// Why not.
        source: io::Error,
    },
    /// Somebody answers on the socket.
    #[error("cannot listen on unix:{}: another process serves it", .0.display())]
    InUse(PathBuf),
    /// There is a file that is no socket.
    #[error("cannot listen on unix:{}: there is a file that is not a socket", .0.display())]
    NotASocket(PathBuf),
}

/// A bound socket. A unix socket's file goes with it.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) fd: OwnedFd,
    /// With the port that was given to port 0.
    pub(crate) address: Address,
    pub(crate) file: Option<SocketFile>,
}

/// The file of a unix socket, removed when dropped.
#[derive(Debug)]
pub(crate) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // It may have been removed by hand.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Binds an address and listens.
pub(crate) fn bind(address: &Address) -> Result<Bound, ListenError> {
    let fail = |source| ListenError::Bind { address: address.clone(), source };
    match address {
        Address::Tcp { host, port } => {
            let listener = TcpListener::bind((host.as_str(), *port)).map_err(fail)?;
            let port = listener.local_addr().map(|a: SocketAddr| a.port()).map_err(fail)?;
            let address = Address::Tcp { host: host.clone(), port };
            Ok(Bound { fd: listener.into(), address, file: None })
        }
        Address::Unix(path) => {
            let listener = match UnixListener::bind(path) {
                Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
                    remove_stale(path)?;
                    UnixListener::bind(path)
                }
                other => other,
            }
            .map_err(fail)?;
            let file = Some(SocketFile(path.clone()));
            Ok(Bound { fd: listener.into(), address: address.clone(), file })
        }
    }
}

/// Removes a socket that a process which is gone has left behind.
fn remove_stale(path: &PathBuf) -> Result<(), ListenError> {
    let fail = |source| ListenError::Bind { address: Address::Unix(path.clone()), source };
    if !std::fs::symlink_metadata(path).map_err(fail)?.file_type().is_socket() {
        return Err(ListenError::NotASocket(path.clone()));
    }
    match UnixStream::connect(path) {
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(fail)
        }
        // An answer, or a reason to believe that there is somebody.
        _ => Err(ListenError::InUse(path.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let address = Address::Unix(path.clone());
        drop(UnixListener::bind(&path).unwrap());
        let bound = bind(&address).unwrap();
        assert!(matches!(bind(&address), Err(ListenError::InUse(_))));
        drop(bound);
        assert!(!path.exists());
        std::fs::write(&path, "precious").unwrap();
        assert!(matches!(bind(&address), Err(ListenError::NotASocket(_))));
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn port_zero_becomes_a_port() {
        let bound = bind(&Address::Tcp { host: "127.0.0.1".into(), port: 0 }).unwrap();
        assert!(matches!(bound.address, Address::Tcp { port: 1.., .. }));
    }
}
