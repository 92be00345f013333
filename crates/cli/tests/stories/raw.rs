//! An NBD client without manners or retries: it sees every reply, and may send any bytes.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use parda_nbd::client::{self, Agreed, Expected, Handshake, Reply, Step};
use parda_nbd::wire::RequestHeader;
use parda_nbd::{Cookie, Errno, ExportName, Extent, Op};

/// How long a reply may take before it counts as none.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a request ended: its data, if it is a read, or the server's error.
pub(crate) type Outcome = Result<Vec<u8>, Errno>;

pub(crate) struct Client {
    pub(crate) socket: UnixStream,
    agreed: Agreed,
    input: Vec<u8>,
    pending: HashMap<Cookie, Op>,
    next: u64,
}

pub(crate) fn read(offset: u64, len: u32) -> Op {
    Op::Read(Extent { offset, len: len.into() })
}

pub(crate) fn write(offset: u64, len: u32) -> Op {
    Op::Write { extent: Extent { offset, len: len.into() }, fua: false }
}

impl Client {
    pub(crate) fn connect(socket: &Path, export: &str) -> Client {
        Client::try_connect(socket, export).expect("the server closed the connection")
    }

    /// As [`Client::connect`]; `None` if the server goes away before the handshake is done.
    pub(crate) fn try_connect(socket: &Path, export: &str) -> Option<Client> {
        Client::over(UnixStream::connect(socket).ok()?, export)
    }

    /// As [`Client::try_connect`], on a socket that is connected already.
    pub(crate) fn over(mut socket: UnixStream, export: &str) -> Option<Client> {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut handshake = Handshake::new(ExportName::new(export).unwrap());
        let (mut input, mut out) = (Vec::new(), Vec::new());
        loop {
            let step = handshake.advance(&input, &mut out).unwrap();
            socket.write_all(&out).ok()?;
            out.clear();
            match step {
                Step::Taken(n) => drop(input.drain(..n)),
                Step::Incomplete if receive(&mut socket, &mut input) => {}
                Step::Incomplete => return None,
                Step::Transmission { taken, agreed } => {
                    input.drain(..taken);
                    return Some(Client {
                        socket,
                        agreed,
                        input,
                        pending: HashMap::new(),
                        next: 0,
                    });
                }
            }
        }
    }

    /// Sends a request. `None` if the connection is gone.
    pub(crate) fn send(&mut self, op: Op, payload: &[u8]) -> Option<Cookie> {
        let cookie = Cookie(self.next);
        self.next += 1;
        let mut out = Vec::new();
        client::put_request(&mut out, cookie, op);
        out.extend_from_slice(payload);
        self.pending.insert(cookie, op);
        self.socket.write_all(&out).ok().map(|()| cookie)
    }

    /// The next reply, in the server's order. `None` if the connection is gone.
    pub(crate) fn receive(&mut self) -> Option<(Cookie, Outcome)> {
        loop {
            let expected = |cookie: Cookie| {
                Some(match *self.pending.get(&cookie)? {
                    Op::Read(extent) => Expected::Data(extent),
                    Op::BlockStatus { extent, .. } => {
                        Expected::Status { extent, context: self.agreed.allocation? }
                    }
                    _ => Expected::Outcome,
                })
            };
            let head = client::reply(&self.input, self.agreed.framing, expected).unwrap();
            if let Some(head) = head {
                let len = match head.reply {
                    Reply::Data { extent, .. } => extent.len as usize,
                    _ => 0,
                };
                if self.input.len() >= head.taken + len {
                    let data = self.input.drain(..head.taken + len).skip(head.taken).collect();
                    self.pending.remove(&head.cookie);
                    let outcome = match head.reply {
                        Reply::Error { errno, .. } => Err(errno),
                        Reply::Hole { extent, .. } => Ok(vec![0; extent.len as usize]),
                        // As on the wire: length and flags of each.
                        Reply::Status { extents, .. } => Ok(extents
                            .iter()
                            .flat_map(|e| {
                                [(e.len as u32).to_be_bytes(), e.status.bits().to_be_bytes()]
                            })
                            .flatten()
                            .collect()),
                        _ => Ok(data),
                    };
                    return Some((head.cookie, outcome));
                }
            }
            if !receive(&mut self.socket, &mut self.input) {
                return None;
            }
        }
    }

    /// Sends a request that must be refused, and returns the error.
    pub(crate) fn refused(&mut self, header: RequestHeader, payload: &[u8]) -> Errno {
        self.pending.insert(header.cookie, Op::Flush);
        self.socket.write_all(&[&header.encode()[..], payload].concat()).unwrap();
        let (cookie, outcome) = self.receive().expect("the connection is gone");
        assert_eq!(cookie, header.cookie);
        outcome.expect_err("it should have been refused")
    }

    /// Sends a request and waits for its reply.
    pub(crate) fn call(&mut self, op: Op, payload: &[u8]) -> Outcome {
        let cookie = self.send(op, payload).expect("the connection is gone");
        let (answered, outcome) = self.receive().expect("the connection is gone");
        assert_eq!(answered, cookie);
        outcome
    }
}

/// Appends what has come. False if the other side is gone.
fn receive(socket: &mut UnixStream, input: &mut Vec<u8>) -> bool {
    let mut chunk = vec![0; 64 << 10];
    match socket.read(&mut chunk) {
        Ok(0) => false,
        Ok(n) => {
            input.extend_from_slice(&chunk[..n]);
            true
        }
        Err(e) if e.kind() == ErrorKind::WouldBlock => panic!("no reply within {PATIENCE:?}"),
        Err(_) => false,
    }
}
