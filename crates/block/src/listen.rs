//! Sockets that clients connect to.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use parda_nbd::uri::Address;

/// For how long the sockets of a server that was killed may outlive it: the kernel closes what its
/// ring still has some time after the process is gone, and whoever restarts it need not wait.
const BURIAL: Duration = Duration::from_secs(2);

/// How long to wait before looking again whether they are gone.
const PAUSE: Duration = Duration::from_millis(20);

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
pub struct SocketFile {
    path: PathBuf,
    /// Its device and inode: another may have been put in its place since.
    instance: Option<(u64, u64)>,
}

impl SocketFile {
    /// The file that was just made by binding a socket to `path`.
    #[must_use]
    pub fn just_bound(path: PathBuf) -> SocketFile {
        let instance = instance(&path);
        SocketFile { path, instance }
    }
}

fn instance(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|m| (m.dev(), m.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Removed by hand, or another's.
        if instance(&self.path) == self.instance {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Binds an address and listens.
pub(crate) fn bind(address: &Address) -> Result<Bound, ListenError> {
    let fail = |source| ListenError::Bind { address: address.clone(), source };
    match address {
        Address::Tcp { host, port } => {
            let until = Instant::now() + BURIAL;
            let listener = loop {
                match TcpListener::bind((host.as_str(), *port)) {
                    Err(e) if e.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                        sleep(PAUSE);
                    }
                    bound => break bound.map_err(fail)?,
                }
            };
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
            let file = Some(SocketFile::just_bound(path.clone()));
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
    let until = Instant::now() + BURIAL;
    loop {
        match UnixStream::connect(path) {
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                return std::fs::remove_file(path).map_err(fail);
            }
            Ok(stream) if !speaks(&stream) && Instant::now() < until => sleep(PAUSE),
            // An answer, or a reason to believe that there is somebody.
            _ => return Err(ListenError::InUse(path.clone())),
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

    use super::*;

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let address = Address::Unix(path.clone());
        drop(UnixListener::bind(&path).unwrap());
        let bound = bind(&address).unwrap();
        let server = UnixListener::from(bound.fd);
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
    fn port_zero_becomes_a_port() {
        let bound = bind(&Address::Tcp { host: "127.0.0.1".into(), port: 0 }).unwrap();
        assert!(matches!(bound.address, Address::Tcp { port: 1.., .. }));
    }
}
