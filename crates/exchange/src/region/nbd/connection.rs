//! A blocking NBD connection, one request at a time.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use parda_address::Uri;
use parda_dial::{Connected, DialError, Dialler};
use parda_disk::{Errno, Extent, Op};
use parda_nbd::client::{Agreed, Expected, Reply, put_request, reply};
use parda_nbd::{Cookie, TransmissionFlags};
use parda_tls::End;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{RecvFlags, SendFlags};

use crate::region::{Block, RegionFault};

/// A connection to an export, with a clock for the call under way.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    agreed: Agreed,
    next_cookie: u64,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The server said no; the connection is good.
    #[error("the server refused it: {0:?}")]
    Refused(Errno),
    /// The connection is of no more use.
    #[error(transparent)]
    Broken(RegionFault),
}

impl<T: Into<RegionFault>> From<T> for Failure {
    fn from(fault: T) -> Failure {
        Failure::Broken(fault.into())
    }
}

impl Connection {
    /// Connects and shakes hands, all within `limit`.
    ///
    /// # Errors
    /// There is no such server or export, or it does not answer in time.
    pub fn open(uri: &Uri, limit: Duration) -> Result<Connection, RegionFault> {
        let deadline = Instant::now() + limit;
        let connected = Dialler::within(limit).dial(uri).map_err(|error| match error {
            error if error.is_timeout() => RegionFault::Timeout(limit),
            DialError::Connect(error) => RegionFault::Connect(error),
            DialError::Handshake(error) => RegionFault::Handshake(error),
        })?;
        let Connected { socket, agreed, tls_end } = connected;
        let stream = Stream { socket, received: Vec::new(), limit, deadline, tls_end };
        Ok(Connection { stream, agreed, next_cookie: 0 })
    }

    /// What the export is.
    #[must_use]
    pub fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    /// A new call begins, which may take `limit`.
    pub fn restart_clock(&mut self, limit: Duration) {
        self.stream.limit = limit;
        self.stream.deadline = Instant::now() + limit;
    }

    /// Reads `len` bytes from `start` on, with one request unless the server takes only smaller ones.
    ///
    /// # Errors
    /// The server refuses, or the connection breaks.
    pub fn read(&mut self, start: u64, len: usize) -> Result<Vec<u8>, Failure> {
        let max = self.agreed.blocks.max() as usize / Block::BYTES * Block::BYTES;
        let mut bytes = vec![0; len];
        let mut offset = start;
        for piece in bytes.chunks_mut(max) {
            let extent = Extent { offset, len: piece.len() as u64 };
            let cookie = self.ask(Op::Read(extent), &[])?;
            self.answer(cookie, Expected::Data(extent), piece)?;
            offset += piece.len() as u64;
        }
        Ok(bytes)
    }

    /// Writes `bytes` at `start`, with one request.
    ///
    /// # Errors
    /// The server refuses, or the connection breaks.
    pub fn write(&mut self, start: u64, bytes: &[u8]) -> Result<(), Failure> {
        if self.agreed.flags.contains(TransmissionFlags::READ_ONLY) {
            return Err(Failure::Refused(Errno::Perm));
        }
        let extent = Extent { offset: start, len: bytes.len() as u64 };
        let cookie = self.ask(Op::Write { extent, fua: false }, bytes)?;
        self.answer(cookie, Expected::Outcome, &mut [])
    }

    /// Waits until all that was written is on the medium. Nothing is done if the server knows no flush.
    ///
    /// # Errors
    /// The server refuses, or the connection breaks.
    pub fn flush(&mut self) -> Result<(), Failure> {
        if !self.agreed.flags.contains(TransmissionFlags::SEND_FLUSH) {
            return Ok(());
        }
        let cookie = self.ask(Op::Flush, &[])?;
        self.answer(cookie, Expected::Outcome, &mut [])
    }

    fn ask(&mut self, op: Op, payload: &[u8]) -> Result<Cookie, RegionFault> {
        let cookie = Cookie(self.next_cookie);
        self.next_cookie = self.next_cookie.wrapping_add(1);
        let mut request = Vec::new();
        put_request(&mut request, cookie, op);
        request.extend_from_slice(payload);
        self.stream.send(&request)?;
        Ok(cookie)
    }

    /// Takes in all pieces of the reply to `asked`; its data goes to `data`.
    fn answer(
        &mut self,
        asked: Cookie,
        expected: Expected,
        data: &mut [u8],
    ) -> Result<(), Failure> {
        let start = match expected {
            Expected::Data(extent) => extent.offset,
            Expected::Status { extent, .. } => extent.offset,
            Expected::Outcome => 0,
        };
        let (mut covered, mut refused) = (0, None);
        loop {
            let waiting = |cookie| (cookie == asked).then_some(expected);
            let Some(head) = reply(&self.stream.received, self.agreed.framing, waiting)? else {
                self.stream.receive()?;
                continue;
            };
            self.stream.drop_front(head.taken);
            let last = match head.reply {
                Reply::Done => true,
                Reply::Data { extent, last } => {
                    let at = (extent.offset - start) as usize;
                    self.stream.take(&mut data[at..at + extent.len as usize])?;
                    covered += extent.len;
                    last
                }
                Reply::Hole { extent, last } => {
                    let at = (extent.offset - start) as usize;
                    data[at..at + extent.len as usize].fill(0);
                    covered += extent.len;
                    last
                }
                Reply::Status { .. } => {
                    let unasked = "the server told block status, which was not asked for";
                    let error = io::Error::new(ErrorKind::InvalidData, unasked);
                    return Err(RegionFault::Read(error).into());
                }
                Reply::Error { errno, last, .. } => {
                    refused = Some(errno);
                    last
                }
            };
            if last {
                break;
            }
        }
        match refused {
            Some(errno) => Err(Failure::Refused(errno)),
            None if covered == data.len() as u64 => Ok(()),
            None => Err(RegionFault::Read(io::Error::new(
                ErrorKind::InvalidData,
                format!("the server sent {covered} bytes of {}", data.len()),
            ))
            .into()),
        }
    }
}

/// A socket, what came over it and is not used yet, and until when the call may last.
#[derive(Debug)]
struct Stream {
    socket: OwnedFd,
    received: Vec<u8>,
    limit: Duration,
    deadline: Instant,
    tls_end: End,
}

impl Stream {
    fn send(&mut self, mut bytes: &[u8]) -> Result<(), RegionFault> {
        while !bytes.is_empty() {
            self.arm()?;
            match rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(e) => self.survive(e.into(), RegionFault::Write)?,
            }
        }
        Ok(())
    }

    /// Waits for more bytes.
    fn receive(&mut self) -> Result<(), RegionFault> {
        let mut buffer = [0; 64 * 1024];
        loop {
            self.arm()?;
            match rustix::net::recv(&self.socket, &mut buffer, RecvFlags::empty()) {
                Ok((_, 0)) => self.survive(ErrorKind::UnexpectedEof.into(), RegionFault::Read)?,
                Ok((_, read)) => {
                    self.received.extend_from_slice(&buffer[..read]);
                    return Ok(());
                }
                Err(e) => self.survive(e.into(), RegionFault::Read)?,
            }
        }
    }

    /// Fills `data` with the next bytes.
    fn take(&mut self, data: &mut [u8]) -> Result<(), RegionFault> {
        while self.received.len() < data.len() {
            self.receive()?;
        }
        data.copy_from_slice(&self.received[..data.len()]);
        self.drop_front(data.len());
        Ok(())
    }

    fn drop_front(&mut self, bytes: usize) {
        self.received.drain(..bytes);
    }

    /// Lets the next wait end with the call's time.
    fn arm(&self) -> Result<(), RegionFault> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(RegionFault::Timeout(self.limit));
        }
        for direction in [Timeout::Recv, Timeout::Send] {
            sockopt::set_socket_timeout(&self.socket, direction, Some(left))
                .map_err(|errno| RegionFault::Connect(errno.into()))?;
        }
        Ok(())
    }

    fn survive(
        &self,
        error: io::Error,
        fault: fn(io::Error) -> RegionFault,
    ) -> Result<(), RegionFault> {
        match error.kind() {
            ErrorKind::Interrupted => Ok(()),
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Err(RegionFault::Timeout(self.limit)),
            _ => Err(fault(self.tls_end.explain(error))),
        }
    }
}
