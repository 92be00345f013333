//! A unix socket that is answered one connection at a time, for what is asked seldom.

use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long both ends wait for each other.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// A thread that answers at a socket until it is dropped.
#[derive(Debug)]
pub struct Server {
    socket: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Binds the socket; `answer` is given each connection, which closes when it returns.
    ///
    /// # Errors
    /// The socket cannot be bound: somebody listens there, for one. What a killed process left is
    /// taken over.
    pub fn start(
        socket: &Path,
        answer: impl Fn(UnixStream) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Server> {
        let listener = match UnixListener::bind(socket) {
            Err(e) if e.kind() == ErrorKind::AddrInUse && is_abandoned(socket) => {
                std::fs::remove_file(socket)?;
                UnixListener::bind(socket)?
            }
            bound => bound?,
        };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("status".to_owned()).spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let patient = stream.set_write_timeout(Some(PATIENCE));
                let patient = patient.and_then(|()| stream.set_read_timeout(Some(PATIENCE)));
                if let Err(error) = patient.and_then(|()| answer(stream)) {
                    tracing::debug!("an answer was not delivered: {error}");
                }
            }
        })?;
        Ok(Server { socket: socket.to_owned(), stop, thread: Some(thread) })
    }
}

/// Whether this is a socket, and nobody listens to it any more: left over from a process that was
/// killed.
fn is_abandoned(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket())
        && UnixStream::connect(path).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused)
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // It waits for somebody to ask. If it cannot be woken it has ended.
        let woken = UnixStream::connect(&self.socket);
        if let (Ok(_), Some(thread)) = (woken, self.thread.take()) {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.socket);
    }
}
