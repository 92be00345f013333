//! A blocking NBD connection, one request at a time.

use std::io::{self, ErrorKind};
use std::time::Duration;

use parda_address::Uri;
use parda_awake::Instant;
use parda_dial::{Connected, DialError, Dialler, Stream};
use parda_disk::{Errno, Extent, Op};
use parda_nbd::answer::ReplyParts;
use parda_nbd::client::{Agreed, Expected, Reply, put_request, reply};
use parda_nbd::{Cookie, TransmissionFlags};

use crate::region::{Block, RegionFault};

/// A connection to an export, with a clock for the call under way.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    /// Bytes that came and are not used yet.
    received: Vec<u8>,
    /// Time limit of the call under way.
    limit: Duration,
    agreed: Agreed,
    next_cookie: u64,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum RequestFailure {
    /// The server said no; the connection is good.
    #[error("the server refused it: {0:?}")]
    Refused(Errno),
    /// The connection is of no more use.
    #[error(transparent)]
    Broken(RegionFault),
}

impl<T: Into<RegionFault>> From<T> for RequestFailure {
    fn from(fault: T) -> RequestFailure {
        RequestFailure::Broken(fault.into())
    }
}

impl Connection {
    /// Connects and shakes hands, all within `limit`.
    ///
    /// # Errors
    /// There is no such server or export, or it does not answer in time.
    pub fn open(uri: &Uri, limit: Duration) -> Result<Connection, RegionFault> {
        let until = Instant::now() + limit;
        let connected = Dialler::within(limit).dial(uri).map_err(|error| match error {
            error if error.is_timeout() => RegionFault::Timeout(limit),
            DialError::Connect(error) => RegionFault::Connect(error),
            DialError::Handshake(error) => RegionFault::Handshake(error),
        })?;
        let Connected { socket, agreed, tls_end } = connected;
        let stream = Stream { socket, until, tls_end };
        Ok(Connection { stream, received: Vec::new(), limit, agreed, next_cookie: 0 })
    }

    /// Negotiated properties of the export.
    #[must_use]
    pub fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    /// A new call begins, which may take `limit`.
    pub fn restart_clock(&mut self, limit: Duration) {
        self.limit = limit;
        self.stream.until = Instant::now() + limit;
    }

    /// Reads `len` bytes from `start` on, with one request unless the server takes only smaller ones.
    ///
    /// # Errors
    /// The server refuses, or the connection breaks.
    pub fn read(&mut self, start: u64, len: usize) -> Result<Vec<u8>, RequestFailure> {
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
    pub fn write(&mut self, start: u64, bytes: &[u8]) -> Result<(), RequestFailure> {
        if self.agreed.flags.contains(TransmissionFlags::READ_ONLY) {
            return Err(RequestFailure::Refused(Errno::Perm));
        }
        let extent = Extent { offset: start, len: bytes.len() as u64 };
        let cookie = self.ask(Op::Write { extent, fua: false }, bytes)?;
        self.answer(cookie, Expected::Outcome, &mut [])
    }

    /// Waits until all written data is on the medium. Without effect if the server has no flush.
    ///
    /// # Errors
    /// The server refuses, or the connection breaks.
    pub fn flush(&mut self) -> Result<(), RequestFailure> {
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
        let sent = self.stream.send_all(&request);
        sent.map_err(|error| self.fault(error, RegionFault::Write))?;
        Ok(cookie)
    }

    /// Takes in all pieces of the reply to `asked`; its data goes to `data`.
    fn answer(
        &mut self,
        asked: Cookie,
        expected: Expected,
        data: &mut [u8],
    ) -> Result<(), RequestFailure> {
        let (mut answer, mut refused) = (ReplyParts::new(expected), None);
        let within = |extent: Extent| {
            let start = if let Expected::Data(asked) = expected { asked.offset } else { 0 };
            let at = (extent.offset - start) as usize;
            at..at + extent.len as usize
        };
        loop {
            let waiting = |cookie| (cookie == asked).then_some(expected);
            let Some(head) = reply(&self.received, self.agreed.framing, waiting)? else {
                self.receive()?;
                continue;
            };
            self.received.drain(..head.taken);
            answer.take(&head.reply)?;
            let last = match head.reply {
                Reply::Done => true,
                Reply::Data { extent, last } => {
                    self.take(&mut data[within(extent)])?;
                    last
                }
                Reply::Hole { extent, last } => {
                    data[within(extent)].fill(0);
                    last
                }
                // Only of a request for it.
                Reply::Status { last, .. } => last,
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
            Some(errno) => Err(RequestFailure::Refused(errno)),
            None => answer.outcome().map_err(|short| {
                RegionFault::Read(io::Error::new(ErrorKind::InvalidData, short.message)).into()
            }),
        }
    }

    /// Waits for more bytes.
    fn receive(&mut self) -> Result<(), RegionFault> {
        let received = self.stream.receive_some(&mut self.received, "unexpected end of file");
        received.map_err(|error| self.fault(error, RegionFault::Read))
    }

    /// Fills `data` with the next bytes.
    fn take(&mut self, data: &mut [u8]) -> Result<(), RegionFault> {
        while self.received.len() < data.len() {
            self.receive()?;
        }
        data.copy_from_slice(&self.received[..data.len()]);
        self.received.drain(..data.len());
        Ok(())
    }

    fn fault(&self, error: io::Error, fault: fn(io::Error) -> RegionFault) -> RegionFault {
        match error.kind() {
            ErrorKind::TimedOut => RegionFault::Timeout(self.limit),
            _ => fault(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use parda_disk::BlockSizes;
    use parda_nbd::Framing;
    use parda_nbd::client::ReplyError;
    use parda_nbd::wire::{ChunkHeader, chunk, put_chunk_header};
    use parda_tls::CloseReason;

    use super::*;

    #[test]
    fn a_piece_that_comes_twice_is_not_taken_for_the_whole() {
        let (socket, mut server) = UnixStream::pair().unwrap();
        let limit = Duration::from_secs(60);
        let (socket, until) = (socket.into(), Instant::now() + limit);
        let mut connection = Connection {
            stream: Stream { socket, until, tls_end: CloseReason::default() },
            received: Vec::new(),
            limit,
            agreed: Agreed {
                size: 8192,
                flags: TransmissionFlags::HAS_FLAGS,
                blocks: BlockSizes::DEFAULT,
                framing: Framing::Structured,
                allocation: None,
            },
            next_cookie: 0,
        };
        let mut pieces = Vec::new();
        for flags in [0, chunk::FLAG_DONE] {
            let (kind, cookie, len) = (chunk::OFFSET_DATA, Cookie(0), 8 + 4096);
            put_chunk_header(&mut pieces, ChunkHeader { flags, kind, cookie, len }, None);
            pieces.extend([0; 8]);
            pieces.extend([7; 4096]);
        }
        server.write_all(&pieces).unwrap();
        let failure = connection.read(0, 8192).unwrap_err();
        let twice = RequestFailure::Broken(RegionFault::Reply(ReplyError::Overlap));
        assert_eq!(failure.to_string(), twice.to_string());
    }
}
