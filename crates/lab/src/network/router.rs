//! The thread that takes packets and hands them on.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, poll};

use super::doors::Doors;
use super::links::Links;

/// Largest packet, in bytes.
const LARGEST: usize = 1 << 16;

/// Most packets of one place before the others have their turn.
const TURN: usize = 64;

/// The router of a network. It ends when dropped.
#[derive(Debug)]
pub(super) struct Router {
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Router {
    pub(super) fn start(doors: Doors, links: Arc<Mutex<Links>>) -> io::Result<Router> {
        let (stop, stopped) = UnixStream::pair()?;
        let thread = thread::Builder::new()
            .name("network".to_owned())
            .spawn(move || Route { doors, links }.run(&stopped))?;
        Ok(Router { stop: Some(stop), thread: Some(thread) })
    }

    /// Whether its thread still passes packets on.
    pub(super) fn runs(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        // The thread sees the end of the pair.
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has nothing to clean up.
            let _ = thread.join();
        }
    }
}

struct Route {
    doors: Doors,
    links: Arc<Mutex<Links>>,
}

impl Route {
    fn run(self, stopped: &UnixStream) {
        let mut buffer = vec![0; LARGEST];
        loop {
            let ready = match self.wait(stopped) {
                Ok(Some(ready)) => ready,
                Ok(None) => return,
                Err(error) => {
                    tracing::error!("the network between the hosts has ended: {error}");
                    return;
                }
            };
            for place in ready {
                for _ in 0..TURN {
                    let Some((from, length)) = self.doors.take(place, &mut buffer) else { break };
                    if let Some(from) = from
                        && self.passes(from, place)
                    {
                        self.doors.hand(place, &buffer[..length]);
                    }
                }
            }
        }
    }

    /// Waits for packets. The places that have packets; `None` at the end.
    fn wait(&self, stopped: &UnixStream) -> io::Result<Option<Vec<usize>>> {
        let mut fds = vec![PollFd::new(stopped, PollFlags::IN)];
        fds.extend(self.doors.sockets.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !fds[0].revents().is_empty() {
            return Ok(None);
        }
        let ready = fds[1..].iter().enumerate().filter(|(_, fd)| !fd.revents().is_empty());
        Ok(Some(ready.map(|(place, _)| place).collect()))
    }

    fn passes(&self, from: usize, to: usize) -> bool {
        self.links.lock().unwrap_or_else(PoisonError::into_inner).passes(from, to)
    }
}
