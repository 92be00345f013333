//! The thread that reads datagrams as they come. So a flood of them neither delays the control thread nor displaces other hosts'
//! datagrams in the kernel's buffer.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::counters::Refused;
use super::datagram::{self, MOST_BYTES};
use super::key::Keys;
use super::members::Members;
use super::refusals::Refusals;

/// Most datagrams that are read in one [`INTERVAL`]. The kernel keeps the others, and drops those that its buffer has no room for.
/// So a flood takes a bounded part of a processor.
const MOST_IN_INTERVAL: u32 = 2_000;
const INTERVAL: Duration = Duration::from_millis(10);

/// Pause after an error of the socket, so that an error that repeats does not keep a processor busy.
const AFTER_ERROR: Duration = Duration::from_millis(100);

/// State that the reader and the control thread share.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) members: Members,
    pub(super) keys: Arc<Keys>,
    /// Refused datagrams that are not yet logged.
    pub(super) refusals: Refusals,
}

impl Inbox {
    fn refuse(&mut self, why: Refused, from: SocketAddr) {
        self.members.counters.refuse(why);
        self.refusals.add(why, from);
    }

    /// Takes in one datagram.
    pub(super) fn receive(inbox: &Mutex<Inbox>, keys: &Keys, bytes: &[u8], from: SocketAddr) {
        let opened = match bytes.len() > MOST_BYTES {
            true => Err(Refused::Oversized),
            false => datagram::open(keys, bytes),
        };
        let mut inbox = lock(inbox);
        match opened {
            Err(why) => inbox.refuse(why, from),
            Ok(datagram) => {
                if let Some(why) = inbox.members.hear(datagram, from) {
                    inbox.refusals.add(why, from);
                }
            }
        }
    }
}

/// Locks state that two threads share. A panic of the other thread leaves a counter or a look-up that is one behind, and nothing
/// worse.
pub(super) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Reader {
    stop: Arc<(AtomicBool, OwnedFd)>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    pub(super) fn start(socket: Arc<UdpSocket>, inbox: Arc<Mutex<Inbox>>) -> io::Result<Reader> {
        let stop = Arc::new((AtomicBool::new(false), eventfd(0, EventfdFlags::CLOEXEC)?));
        let told = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("parda-udp".to_owned())
            .spawn(move || read(&socket, &inbox, &told))?;
        Ok(Reader { stop, thread: Some(thread) })
    }

    /// Whether the thread has ended by itself, which a panic alone can do.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop.0.store(true, Ordering::Release);
        // An event that nobody waits for does no harm.
        let _ = rustix::io::write(&self.stop.1, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn read(socket: &UdpSocket, inbox: &Mutex<Inbox>, stop: &(AtomicBool, OwnedFd)) {
    // One byte more than the longest datagram, so that longer ones are recognised.
    let mut buffer = [0; MOST_BYTES + 1];
    while !stop.0.load(Ordering::Acquire) {
        let mut waits = [PollFd::new(socket, PollFlags::IN), PollFd::new(&stop.1, PollFlags::IN)];
        if poll(&mut waits, None).is_err() {
            continue;
        }
        let begun = Instant::now();
        let keys = Arc::clone(&lock(inbox).keys);
        let mut read = 0;
        let rest = loop {
            if read == MOST_IN_INTERVAL {
                break INTERVAL.saturating_sub(begun.elapsed());
            }
            match socket.recv_from(&mut buffer) {
                Ok((length, from)) => Inbox::receive(inbox, &keys, &buffer[..length], from),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Duration::ZERO,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break AFTER_ERROR,
            }
            read += 1;
        };
        if !rest.is_zero() {
            std::thread::sleep(rest);
        }
    }
}
