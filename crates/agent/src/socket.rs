//! A unix socket that is answered one connection at a time, for rare requests.

use std::io::{self, ErrorKind, Read};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parda_block::{SocketAccess, SocketFile};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Longest wait of each end for the other.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// A thread that answers at a socket until it is dropped.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _file: SocketFile,
}

/// Pause after a failed accept, most likely for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

impl Server {
    /// Binds the socket, for the process's own user; `answer` is given each connection, which closes when it returns.
    ///
    /// # Errors
    /// The socket cannot be bound, for example because another process listens there. The file of a killed process is taken over.
    pub fn start(
        socket: &Path,
        answer: impl Fn(UnixStream) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Server> {
        let (listener, file) = bind(socket)?;
        let heard = listener.try_clone()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("status".to_owned()).spawn(move || {
            for stream in heard.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else {
                    std::thread::sleep(PAUSE);
                    continue;
                };
                let patient = stream.set_write_timeout(Some(PATIENCE));
                let patient = patient.and_then(|()| stream.set_read_timeout(Some(PATIENCE)));
                if let Err(error) = patient.and_then(|()| answer(stream)) {
                    tracing::debug!("an answer was not delivered: {error}");
                }
            }
        })?;
        Ok(Server { listener, stop, thread: Some(thread), _file: file })
    }
}

/// Binds a socket for the process's own user. The file of a killed process is taken over.
pub(crate) fn bind(socket: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let (listener, file) = SocketFile::take(socket, SocketAccess::default())?;
    Ok((UnixListener::from(listener), file))
}

/// Process that has a socket.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// No process: no client can connect.
    Nobody,
    /// The owner answers the connection.
    Answers,
    /// The owner has not answered yet. A killed agent whose last IOs are still in Linux never will.
    Silent,
}

/// Repeated checks of a socket over one connection, so that a busy owner has time for its answer.
#[derive(Debug)]
pub(crate) struct SocketWatch<'a> {
    path: &'a Path,
    connection: Option<UnixStream>,
}

impl<'a> SocketWatch<'a> {
    pub(crate) fn at(path: &'a Path) -> SocketWatch<'a> {
        SocketWatch { path, connection: None }
    }

    /// The owner as far as it is known now. Does not wait.
    pub(crate) fn owner(&mut self) -> Owner {
        if self.connection.is_none() {
            match connect(self.path) {
                Ok(connection) => self.connection = Some(connection),
                // Its queue of connections is full.
                Err(Errno::AGAIN) => return Owner::Silent,
                Err(_) => return Owner::Nobody,
            }
        }
        match self.connection.as_mut().map(|connection| connection.read(&mut [0])) {
            Some(Ok(1..)) => return Owner::Answers,
            Some(Err(error)) if error.kind() == ErrorKind::WouldBlock => {}
            // Closed without an answer. The next look shows whether an owner is left.
            _ => self.connection = None,
        }
        Owner::Silent
    }
}

/// Connects without waiting.
fn connect(path: &Path) -> Result<UnixStream, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // The thread waits for a connection. A connect would wake the process that listens at that path now.
        let woken = net::shutdown(&self.listener, net::Shutdown::Both);
        if let (Ok(()), Some(thread)) = (woken, self.thread.take()) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_server_ends_though_another_has_taken_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let says = |word: &'static [u8]| move |mut to: UnixStream| to.write_all(word);
        let ours = Server::start(&path, says(b"ours")).unwrap();
        std::fs::remove_file(&path).unwrap();
        let other = Server::start(&path, says(b"other")).unwrap();
        drop(ours);
        let mut heard = String::new();
        UnixStream::connect(&path).unwrap().read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "other");
        drop(other);
        assert!(!path.exists());
    }
}
