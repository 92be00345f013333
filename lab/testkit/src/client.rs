//! An NBD client that sees every reply, in the server's order, and may send any bytes.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use parda_address::ExportName;
use parda_disk::{Errno, Extent, Op};
use parda_nbd::client::{self, Agreed, Expected, Handshake, HandshakeError, Reply, Step};
use parda_nbd::wire::RequestHeader;
use parda_nbd::{Cookie, Framing};

/// Time after which a reply that has not come fails the test.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a request ended: the data of a read, extents as on the wire of a block status, nothing of all else; or the
/// server's error.
pub type Answer = Result<Vec<u8>, Errno>;

/// Why there is no connection.
#[derive(Debug)]
pub enum ConnectError {
    /// The server is not there, or went away before the handshake was done.
    Gone(io::Error),
    /// Server and client do not agree.
    Handshake(HandshakeError),
}

/// A connection in transmission.
#[derive(Debug)]
pub struct Client {
    /// The connection, for bytes sent by hand.
    pub socket: UnixStream,
    /// Size, abilities and block sizes of the export.
    pub agreed: Agreed,
    input: Vec<u8>,
    pending: HashMap<Cookie, Op>,
    next: u64,
}

/// `len` bytes from `offset` on.
#[must_use]
pub fn at(offset: u64, len: u32) -> Extent {
    Extent { offset, len: len.into() }
}

/// A request to read a range.
#[must_use]
pub fn read(offset: u64, len: u32) -> Op {
    Op::Read(at(offset, len))
}

/// A write without FUA.
#[must_use]
pub fn write(offset: u64, len: u32) -> Op {
    Op::Write { extent: at(offset, len), fua: false }
}

fn handshake(export: &str) -> Handshake {
    Handshake::new(ExportName::new(export).unwrap())
}

impl Client {
    /// Connects to a server that is there.
    #[must_use]
    pub fn connect(socket: &Path, export: &str) -> Client {
        Client::try_connect(socket, export).expect("a server")
    }

    /// Connects.
    ///
    /// # Errors
    /// There is no server, or no such export.
    pub fn try_connect(socket: &Path, export: &str) -> Result<Client, ConnectError> {
        Client::over(UnixStream::connect(socket).map_err(ConnectError::Gone)?, export)
    }

    /// Shakes hands on a socket that is connected already.
    ///
    /// # Errors
    /// The server goes away, or has no such export.
    pub fn over(socket: UnixStream, export: &str) -> Result<Client, ConnectError> {
        Client::agree(socket, handshake(export))
    }

    /// Connects with extended headers.
    #[must_use]
    pub fn connect_extended(socket: &Path, export: &str) -> Client {
        let socket = UnixStream::connect(socket).unwrap();
        let client = Client::agree(socket, handshake(export).ask_extended_headers()).unwrap();
        assert_eq!(client.agreed.framing, Framing::Extended);
        client
    }

    fn agree(mut socket: UnixStream, mut handshake: Handshake) -> Result<Client, ConnectError> {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let (mut input, mut out) = (Vec::new(), Vec::new());
        loop {
            let step = handshake.advance(&input, &mut out).map_err(ConnectError::Handshake)?;
            socket.write_all(&out).map_err(ConnectError::Gone)?;
            out.clear();
            match step {
                Step::Taken(n) => drop(input.drain(..n)),
                Step::Incomplete => receive(&mut socket, &mut input).map_err(ConnectError::Gone)?,
                Step::Transmission { taken, agreed } => {
                    input.drain(..taken);
                    return Ok(Client { socket, agreed, input, pending: HashMap::new(), next: 0 });
                }
            }
        }
    }

    /// Sends a request without waiting. The payload is empty unless the request is a write. `None` if the connection
    /// is gone.
    pub fn send(&mut self, op: Op, payload: &[u8]) -> Option<Cookie> {
        let cookie = Cookie(self.next);
        self.next += 1;
        let mut out = Vec::new();
        client::put_request_in(self.agreed.framing, &mut out, cookie, op);
        out.extend_from_slice(payload);
        self.pending.insert(cookie, op);
        self.socket.write_all(&out).ok().map(|()| cookie)
    }

    /// Expects the reply to a request that was sent by hand.
    pub fn expect(&mut self, cookie: Cookie, op: Op) {
        self.pending.insert(cookie, op);
    }

    /// The next reply, in the server's order. `None` if the connection is gone.
    pub fn receive(&mut self) -> Option<(Cookie, Answer)> {
        loop {
            if let Some(answered) = self.take_reply() {
                return Some(answered);
            }
            receive(&mut self.socket, &mut self.input).ok()?;
        }
    }

    fn take_reply(&mut self) -> Option<(Cookie, Answer)> {
        let expected = |cookie: Cookie| {
            Some(match *self.pending.get(&cookie)? {
                Op::Read(extent) => Expected::Data(extent),
                Op::BlockStatus { extent, .. } => {
                    Expected::Status { extent, context: self.agreed.allocation? }
                }
                _ => Expected::Outcome,
            })
        };
        let framing = self.agreed.framing;
        let head = client::reply(&self.input, framing, expected).unwrap()?;
        let len = match head.reply {
            Reply::Data { extent, .. } => extent.len as usize,
            _ => 0,
        };
        if self.input.len() < head.taken + len {
            return None;
        }
        let data = self.input.drain(..head.taken + len).skip(head.taken).collect();
        self.pending.remove(&head.cookie);
        let outcome = match head.reply {
            Reply::Error { errno, .. } => Err(errno),
            Reply::Hole { extent, .. } => Ok(vec![0; extent.len as usize]),
            Reply::Status { extents, .. } if framing == Framing::Extended => Ok(extents
                .iter()
                .flat_map(|e| [e.len, e.status.bits().into()].map(u64::to_be_bytes))
                .flatten()
                .collect()),
            Reply::Status { extents, .. } => Ok(extents
                .iter()
                .flat_map(|e| [(e.len as u32).to_be_bytes(), e.status.bits().to_be_bytes()])
                .flatten()
                .collect()),
            _ => Ok(data),
        };
        Some((head.cookie, outcome))
    }

    /// Sends a request and waits for its reply.
    pub fn call(&mut self, op: Op, payload: &[u8]) -> Answer {
        let cookie = self.send(op, payload).expect("the connection is gone");
        let (answered, outcome) = self.receive().expect("the connection is gone");
        assert_eq!(answered, cookie);
        outcome
    }

    /// Sends a request that must be refused, and returns the error.
    pub fn refused(&mut self, header: RequestHeader, payload: &[u8]) -> Errno {
        self.expect(header.cookie, Op::Flush);
        let mut bytes = Vec::new();
        header.put(Framing::Simple, &mut bytes);
        bytes.extend_from_slice(payload);
        self.socket.write_all(&bytes).unwrap();
        let (cookie, outcome) = self.receive().expect("the connection is gone");
        assert_eq!(cookie, header.cookie);
        outcome.expect_err("it should have been refused")
    }
}

/// Appends what has come.
fn receive(socket: &mut UnixStream, input: &mut Vec<u8>) -> io::Result<()> {
    let mut chunk = vec![0; 256 << 10];
    match socket.read(&mut chunk) {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Ok(n) => {
            input.extend_from_slice(&chunk[..n]);
            Ok(())
        }
        Err(e) if e.kind() == ErrorKind::WouldBlock => panic!("no reply within {PATIENCE:?}"),
        Err(error) => Err(error),
    }
}
