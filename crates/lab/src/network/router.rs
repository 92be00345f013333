//! The thread that takes packets and hands them on.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

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
            .spawn(move || Route { doors, links, late: Late::default() }.run(&stopped))?;
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

/// Packets that are due later: time, number, destination.
type Late = BinaryHeap<Reverse<(Instant, u64, usize, Vec<u8>)>>;

struct Route {
    doors: Doors,
    links: Arc<Mutex<Links>>,
    late: Late,
}

impl Route {
    fn run(mut self, stopped: &UnixStream) {
        let mut buffer = vec![0; LARGEST];
        let mut number = 0;
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
                    if let Some(from) = from {
                        self.pass(from, place, &buffer[..length], &mut number);
                    }
                }
            }
            self.deliver();
        }
    }

    /// Waits for packets, or for a late one to be due. The places that have packets; `None` at the end.
    fn wait(&self, stopped: &UnixStream) -> io::Result<Option<Vec<usize>>> {
        let mut fds = vec![PollFd::new(stopped, PollFlags::IN)];
        fds.extend(self.doors.sockets().iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        let due = self.late.peek().map(|Reverse((at, ..))| {
            let wait = at.saturating_duration_since(Instant::now());
            Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) }
        });
        match poll(&mut fds, due.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !fds[0].revents().is_empty() {
            return Ok(None);
        }
        let ready = fds[1..].iter().enumerate().filter(|(_, fd)| !fd.revents().is_empty());
        Ok(Some(ready.map(|(place, _)| place).collect()))
    }

    fn pass(&mut self, from: usize, to: usize, packet: &[u8], number: &mut u64) {
        let passes = self.links.lock().unwrap_or_else(PoisonError::into_inner).passes(from, to);
        match passes {
            None => {}
            Some(Duration::ZERO) => self.doors.hand(to, packet),
            Some(delay) => {
                *number += 1;
                let due = Instant::now() + delay;
                self.late.push(Reverse((due, *number, to, packet.to_vec())));
            }
        }
    }

    fn deliver(&mut self) {
        let now = Instant::now();
        while self.late.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            if let Some(Reverse((_, _, to, packet))) = self.late.pop() {
                self.doors.hand(to, &packet);
            }
        }
    }
}
