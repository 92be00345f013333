//! The thread that takes packets and hands them on.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, poll};

use super::doors::Doors;
use super::links::Links;

/// Largest packet, in bytes.
const LARGEST: usize = 1 << 16;

/// Most packets of one place before the others have their turn.
const TURN: usize = 64;

/// Passes packets on until the other end of `stopped` is closed.
pub(super) fn run(doors: &Doors, links: &Mutex<Links>, stopped: &UnixStream) {
    let mut buffer = vec![0; LARGEST];
    loop {
        let ready = match wait(doors, stopped) {
            Ok(Some(ready)) => ready,
            Ok(None) => return,
            Err(error) => {
                tracing::error!("the network between the hosts has ended: {error}");
                return;
            }
        };
        for place in ready {
            let passes =
                |from| links.lock().unwrap_or_else(PoisonError::into_inner).passes(from, place);
            for _ in 0..TURN {
                let Some((from, length)) = doors.take(place, &mut buffer) else { break };
                if from.is_some_and(passes) {
                    doors.hand(place, &buffer[..length]);
                }
            }
        }
    }
}

/// Waits for packets. The places that have packets; `None` at the end.
fn wait(doors: &Doors, stopped: &UnixStream) -> io::Result<Option<Vec<usize>>> {
    let mut fds = vec![PollFd::new(stopped, PollFlags::IN)];
    fds.extend(doors.sockets.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
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
