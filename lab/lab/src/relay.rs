//! A relay of connections that can be cut: a host's way to the exchange.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::net::{SocketFlags, accept_with};

/// One end of a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelayEnd {
    /// Path of a unix socket.
    Unix(PathBuf),
    /// An address of TCP.
    Tcp(SocketAddr),
}

impl RelayEnd {
    fn listen(&self) -> io::Result<OwnedFd> {
        Ok(match self {
            RelayEnd::Unix(path) => UnixListener::bind(path)?.into(),
            RelayEnd::Tcp(address) => TcpListener::bind(address)?.into(),
        })
    }

    fn connect(&self) -> io::Result<UnixStream> {
        Ok(match self {
            RelayEnd::Unix(path) => UnixStream::connect(path)?,
            // Only read, written and shut down, which are alike for both.
            RelayEnd::Tcp(address) => OwnedFd::from(TcpStream::connect(address)?).into(),
        })
    }
}

/// A relay from one address to another. Dropping the relay closes its connections.
#[derive(Debug)]
pub struct AddressRelay {
    from: RelayEnd,
    to: RelayEnd,
    listener: OwnedFd,
    /// Thread that accepts connections.
    thread: Option<JoinHandle<()>>,
    streams: Streams,
}

/// Both ends of every connection.
type Streams = Arc<Mutex<Vec<UnixStream>>>;

impl AddressRelay {
    /// Relays connections at `from`, which it creates, to `to`.
    ///
    /// # Errors
    /// The socket cannot be created, or no thread can be started.
    pub fn start(from: RelayEnd, to: RelayEnd) -> io::Result<AddressRelay> {
        let listener = from.listen()?;
        let (accepts, leads_to) = (listener.try_clone()?, to.clone());
        let streams = Streams::default();
        let open = Arc::clone(&streams);
        let thread = thread::Builder::new().name("relay".to_owned()).spawn(move || {
            while let Ok(here) = accept_with(&accepts, SocketFlags::CLOEXEC) {
                if let Err(error) = leads_to.connect().and_then(|it| join(here.into(), it, &open)) {
                    tracing::debug!("not relayed: {error}");
                }
            }
        })?;
        Ok(AddressRelay { from, to, listener, thread: Some(thread), streams })
    }

    /// Whether the relay leads there.
    #[must_use]
    pub fn leads_to(&self, end: &RelayEnd) -> bool {
        self.to == *end
    }
}

/// Copies between two streams in both directions, on threads that end with them.
fn join(here: UnixStream, there: UnixStream, open: &Streams) -> io::Result<()> {
    let ends = [here.try_clone()?, there.try_clone()?];
    open.lock().unwrap_or_else(PoisonError::into_inner).extend(ends);
    for (mut from, mut to) in [(here.try_clone()?, there.try_clone()?), (there, here)] {
        thread::Builder::new().name("relay".to_owned()).spawn(move || {
            // The end of one stream ends both directions.
            let _ = io::copy(&mut from, &mut to);
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        })?;
    }
    Ok(())
}

impl Drop for AddressRelay {
    fn drop(&mut self) {
        if let RelayEnd::Unix(socket) = &self.from {
            let _ = std::fs::remove_file(socket);
        }
        // Ends the accepting thread, so that no connections are added.
        let ended = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        if let (Ok(()), Some(thread)) = (ended, self.thread.take()) {
            let _ = thread.join();
        }
        for stream in self.streams.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::path::Path;

    /// A server that echoes each byte plus one.
    fn server(socket: &Path) {
        let listener = UnixListener::bind(socket).unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                thread::spawn(move || {
                    let mut byte = [0];
                    while stream.read(&mut byte).unwrap() == 1 {
                        stream.write_all(&[byte[0] + 1]).unwrap();
                    }
                });
            }
        });
    }

    fn ask(stream: &mut UnixStream, byte: u8) -> io::Result<u8> {
        let mut answer = [0];
        stream.write_all(&[byte])?;
        stream.read_exact(&mut answer)?;
        Ok(answer[0])
    }

    #[test]
    fn who_was_cut_off_gets_nothing_until_there_is_a_way_again() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        server(&to);
        let start = || {
            AddressRelay::start(RelayEnd::Unix(from.clone()), RelayEnd::Unix(to.clone())).unwrap()
        };
        let relay = start();
        let mut streams = [0, 1].map(|_| UnixStream::connect(&from).unwrap());
        for (stream, byte) in streams.iter_mut().zip([3, 5]) {
            assert_eq!(ask(stream, byte).unwrap(), byte + 1);
        }
        drop(relay);
        assert!(streams.iter_mut().all(|stream| ask(stream, 3).is_err()));
        assert!(UnixStream::connect(&from).is_err());
        let _relay = start();
        assert_eq!(ask(&mut UnixStream::connect(&from).unwrap(), 7).unwrap(), 8);
    }
}
