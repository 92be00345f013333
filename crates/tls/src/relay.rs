//! Relay between a socket with TLS and one with plaintext.
//!
//! A relay has a thread of its own. Neither a handshake's signatures nor the encryption of data
//! delay the plaintext side, and a peer stalls only itself. Memory is bounded: a relay takes no
//! more from either side than it can hand on.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use parda_awake::Instant;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, send, shutdown,
    socketpair,
};

use crate::channel::{Channel, TlsError};

/// Bytes that are received from one side at once.
const CHUNK: usize = 64 << 10;

/// Bytes that may wait to be handed on, in either direction. Beyond this, the relay stops receiving
/// from the side that they came from.
const MAX_WAITING: usize = 64 << 10;

/// Time for a peer to take the rest of its data once the plaintext side is closed.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// Reason why a relay ended early.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The handshake failed, or a record could not be decrypted.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// One of the two sockets failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// A connection that is relayed between its two sockets.
#[derive(Debug)]
pub struct TlsRelay {
    channel: Channel,
    outside: OwnedFd,
    inside: OwnedFd,
    /// Buffer for one receive.
    chunk: Box<[u8]>,
    /// Bytes that were received and not decrypted yet.
    records: Vec<u8>,
    to_inside: Outgoing,
    to_outside: Outgoing,
    /// The peer has closed its direction.
    peer_done: bool,
    /// The plaintext side has closed its direction.
    inside_done: bool,
    /// The plaintext side is closed in both directions.
    inside_gone: bool,
    /// `close_notify` was queued for the peer.
    closed: bool,
    /// The peer's socket was shut down for writing.
    shut: bool,
    /// Deadline for a peer that takes no more data.
    until: Option<Instant>,
}

/// Bytes that wait to be sent on one socket.
#[derive(Debug, Default)]
struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
}

impl Outgoing {
    fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Sends as many bytes as the socket takes without blocking.
    fn flush(&mut self, to: &OwnedFd) -> Result<(), Errno> {
        while !self.is_empty() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(to, &self.bytes[self.sent..], flags) {
                Ok(n) => self.sent += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.bytes.clear();
        self.sent = 0;
        Ok(())
    }
}

impl TlsRelay {
    /// A relay between `outside`, the peer's socket, and a new socket, where plaintext comes and goes.
    ///
    /// # Errors
    /// There are no descriptors for that.
    pub fn beside(channel: Channel, outside: OwnedFd) -> io::Result<(OwnedFd, Self)> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let (ours, inside) = socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
        Ok((ours, Self::new(channel, outside, inside)))
    }

    /// A relay between `outside`, the peer's socket, and `inside`, the plaintext socket.
    #[must_use]
    pub fn new(mut channel: Channel, outside: OwnedFd, inside: OwnedFd) -> Self {
        let mut first = Vec::new();
        channel.put_records(&mut first);
        Self {
            channel,
            outside,
            inside,
            chunk: vec![0; CHUNK].into(),
            records: Vec::new(),
            to_inside: Outgoing::default(),
            to_outside: Outgoing { bytes: first, sent: 0 },
            peer_done: false,
            inside_done: false,
            inside_gone: false,
            closed: false,
            shut: false,
            until: None,
        }
    }

    /// Completes the handshake within `limit`. Call it before [`TlsRelay::run`] to learn whether the
    /// handshake succeeds before data is relayed.
    ///
    /// # Errors
    /// The peer is not trusted, broke the protocol, or does not answer in time.
    pub fn handshake(&mut self, limit: Duration) -> Result<(), RelayError> {
        let until = Instant::now() + limit;
        while !self.channel.is_established() {
            let taken = self.take_records();
            self.send_outside()?;
            taken?;
            if self.peer_done {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            if !self.channel.is_established() && !self.wait(Some(until))? {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
        }
        Ok(())
    }

    /// Relays in both directions until one side is closed. The sockets stay open until the relay is
    /// dropped.
    ///
    /// # Errors
    /// The peer broke the protocol, or a socket failed.
    pub fn run(&mut self) -> Result<(), RelayError> {
        let ended = self.carry();
        if ended.is_err() {
            // The alert that explains the failure reaches a peer that still listens.
            let _ = self.to_outside.flush(&self.outside);
        }
        ended
    }

    fn carry(&mut self) -> Result<(), RelayError> {
        loop {
            self.take_records()?;
            if self.to_inside.flush(&self.inside).is_err() {
                // The plaintext side is closed for writing. Data that it sent before may still be there
                // to be read.
                self.to_inside = Outgoing::default();
                self.peer_done = true;
            }
            self.send_outside()?;
            if self.peer_done && self.records.is_empty() && self.to_inside.is_empty() {
                // The socket may be closed already.
                let _ = shutdown(&self.inside, Shutdown::Write);
            }
            if self.inside_done {
                if self.inside_gone || !self.channel.is_established() {
                    return self.finish();
                }
                // Requests that were sent may still be answered. The peer closes when it has answered.
                self.say_end();
                if self.peer_done && self.to_inside.is_empty() {
                    return Ok(());
                }
            }
            if !self.wait(None)? {
                return Ok(());
            }
        }
    }

    /// Closes the direction to the peer: `close_notify`, then the socket's write side.
    fn say_end(&mut self) {
        if !self.closed {
            self.closed = true;
            self.channel.close(&mut self.to_outside.bytes);
        }
        if !self.shut && self.to_outside.flush(&self.outside).is_ok() && self.to_outside.is_empty()
        {
            self.shut = true;
            // The socket may be closed already.
            let _ = shutdown(&self.outside, Shutdown::Write);
        }
    }

    /// Sends the remaining data, then closes the direction to the peer.
    fn finish(&mut self) -> Result<(), RelayError> {
        if self.channel.is_established() {
            self.say_end();
        }
        let until = *self.until.get_or_insert_with(|| Instant::now() + LAST_WAIT);
        loop {
            self.send_outside()?;
            if self.to_outside.is_empty() {
                return Ok(());
            }
            let mut fds = [PollFd::from_borrowed_fd(self.outside.as_fd(), PollFlags::OUT)];
            if !poll_until(&mut fds, Some(until))? {
                return Ok(());
            }
        }
    }

    /// Decrypts received records, up to the bound on waiting bytes.
    fn take_records(&mut self) -> Result<(), RelayError> {
        let mut at = 0;
        let mut result = Ok(());
        while at < self.records.len() && self.has_room() {
            let (plain, out) = (&mut self.to_inside.bytes, &mut self.to_outside.bytes);
            match self.channel.receive(&self.records[at..], plain, out) {
                // Bytes after the end of TLS are discarded.
                Ok(0) => at = self.records.len(),
                Ok(n) => at += n,
                Err(error) => {
                    result = Err(error.into());
                    break;
                }
            }
            self.peer_done |= self.channel.peer_has_closed();
        }
        self.records.drain(..at);
        result
    }

    /// Whether more may be received from the peer.
    fn has_room(&self) -> bool {
        self.to_inside.len() < MAX_WAITING && self.to_outside.len() < 2 * MAX_WAITING
    }

    /// Waits until a side is readable or writable, then receives and sends. `false` if the deadline has
    /// passed.
    fn wait(&mut self, until: Option<Instant>) -> Result<bool, RelayError> {
        let flag = |wanted, flag| if wanted { flag } else { PollFlags::empty() };
        let room = self.has_room();
        if room && !self.records.is_empty() {
            // Records wait that had no room before. Nothing may follow them on the socket, so polling
            // could block.
            return Ok(true);
        }
        let outside = flag(room && !self.peer_done, PollFlags::IN)
            | flag(!self.to_outside.is_empty(), PollFlags::OUT);
        let takes = self.channel.is_established()
            && self.to_outside.len() < MAX_WAITING
            && !self.inside_done;
        let inside = flag(takes, PollFlags::IN) | flag(!self.to_inside.is_empty(), PollFlags::OUT);
        let mut fds = Vec::with_capacity(2);
        // A socket that is polled for no event reports its hang-up again and again.
        if !outside.is_empty() {
            fds.push(PollFd::from_borrowed_fd(self.outside.as_fd(), outside));
        }
        // The hang-up of the plaintext side ends the relay, and is reported once.
        if !inside.is_empty() || self.until.is_none() {
            fds.push(PollFd::from_borrowed_fd(self.inside.as_fd(), inside));
        }
        if !poll_until(&mut fds, until.or(self.until))? {
            return Ok(false);
        }
        let mut events = fds.iter().map(PollFd::revents);
        let from_outside = if outside.is_empty() { None } else { events.next() };
        let from_inside = events.next();
        let gone = PollFlags::HUP | PollFlags::ERR;
        if from_outside.is_some_and(|e| e.intersects(PollFlags::IN | gone)) && room {
            self.receive()?;
        }
        if from_inside.is_some_and(|e| e.intersects(gone)) {
            // Data that was sent before can still be read, if the peer takes it.
            self.inside_gone = true;
            self.until.get_or_insert_with(|| Instant::now() + LAST_WAIT);
            self.inside_done |= !self.channel.is_established();
        }
        if from_inside.is_some_and(|e| e.intersects(PollFlags::IN | gone)) && takes {
            self.send_inside()?;
        }
        Ok(true)
    }

    /// Receives from the peer.
    fn receive(&mut self) -> Result<(), RelayError> {
        match recv(&self.outside, &mut self.chunk[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => self.peer_done = true,
            Ok((n, _)) => self.records.extend_from_slice(&self.chunk[..n]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
        Ok(())
    }

    /// Sends to the peer as many bytes as it takes.
    ///
    /// A peer that refuses us closes the connection behind its alert. Its alert is the error then, rather than
    /// the broken pipe.
    fn send_outside(&mut self) -> Result<(), RelayError> {
        let Err(error) = self.to_outside.flush(&self.outside) else { return Ok(()) };
        loop {
            let had = self.records.len();
            let received = self.receive();
            if received.is_err() || self.records.len() == had {
                break;
            }
            self.take_records()?;
        }
        Err(io::Error::from(error).into())
    }

    /// Receives from the plaintext side and encrypts.
    fn send_inside(&mut self) -> Result<(), RelayError> {
        match recv(&self.inside, &mut self.chunk[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => self.inside_done = true,
            Ok((n, _)) => self.channel.send(&self.chunk[..n], &mut self.to_outside.bytes),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
        Ok(())
    }
}

/// Waits until one of the descriptors is ready. `false` if the deadline has passed.
fn poll_until(fds: &mut [PollFd<'_>], until: Option<Instant>) -> io::Result<bool> {
    loop {
        let left = until.map(|at| at.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        match poll(fds, left.as_ref()) {
            // The kernel's time-out counts also while this process is stopped.
            Ok(0) if until.is_some_and(|at| Instant::now() < at) => {}
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
