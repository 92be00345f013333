//! A blocking NBD client, and volumes to try it on.
#![allow(dead_code, reason = "no test file uses all of it")]

pub(crate) mod hostile;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use parda_block::{
    AgentMemory, BackendConfig, Direct, DiskConfig, Handle, Limits, Lock, Timed, Volume,
    VolumeConfig,
};
use parda_control::law::Mode;
use parda_control::{Shares, VmConfig, Window};
use parda_nbd::client::{self, Agreed, Expected, Handshake, Reply, Step};
use parda_nbd::uri::Address;
use parda_nbd::{Cookie, Errno, ExportName, Extent, Framing, Op};

pub(crate) fn name(name: &str) -> ExportName {
    ExportName::new(name).unwrap()
}

pub(crate) fn disk(export: &str, backend: BackendConfig, socket: &Path) -> DiskConfig {
    DiskConfig {
        export: name(export),
        description: String::new(),
        backend,
        region: None,
        vm: VmConfig { shares: Shares(1000), burst: 0.0, target: None },
        read_only: false,
        listen: vec![Address::Unix(socket.into())],
    }
}

pub(crate) fn file(path: &Path) -> BackendConfig {
    file_as(path, Direct::Auto, Lock::On)
}

pub(crate) fn file_as(path: &Path, direct: Direct, lock: Lock) -> BackendConfig {
    BackendConfig::File { path: path.into(), direct, lock, raw: false }
}

pub(crate) fn config(disks: Vec<DiskConfig>) -> VolumeConfig {
    let mut control = parda_control::Config::default();
    control.law.mode = Mode::Static;
    VolumeConfig {
        name: "test".into(),
        control,
        disks,
        listeners: Vec::new(),
        model: None,
        limits: Limits::default(),
        memory: AgentMemory::default(),
    }
}

pub(crate) fn spawn(disks: Vec<DiskConfig>) -> Handle {
    Volume::spawn(config(disks)).unwrap()
}

/// A volume whose IOs are timed by a model, with a fixed window.
pub(crate) fn spawn_timed(
    disks: Vec<DiskConfig>,
    window: f64,
    model: impl Timed + 'static,
) -> Handle {
    let mut config = config(disks);
    config.control.law.window_max = Window(window);
    config.control.law.window_start = Window(window);
    config.model = Some(Box::new(model));
    Volume::spawn(config).unwrap()
}

pub(crate) fn at(offset: u64, len: u32) -> Extent {
    Extent { offset, len: len.into() }
}

pub(crate) fn read(offset: u64, len: u32) -> Op {
    Op::Read(at(offset, len))
}

pub(crate) fn write(offset: u64, len: u32) -> Op {
    Op::Write { extent: at(offset, len), fua: false }
}

pub(crate) type Outcome = Result<Vec<u8>, Errno>;

pub(crate) struct Client {
    pub(crate) socket: UnixStream,
    pub(crate) agreed: Agreed,
    input: Vec<u8>,
    pending: HashMap<Cookie, Op>,
    next: u64,
}

impl Client {
    pub(crate) fn connect(path: &Path, export: &str) -> Client {
        Self::try_connect(path, export).unwrap()
    }

    pub(crate) fn try_connect(path: &Path, export: &str) -> Result<Client, client::HandshakeError> {
        Self::connect_with(path, Handshake::new(name(export)))
    }

    /// A client with extended headers.
    pub(crate) fn connect_extended(path: &Path, export: &str) -> Client {
        let client = Self::connect_with(path, Handshake::new(name(export)).ask_extended_headers());
        let client = client.unwrap();
        assert_eq!(client.agreed.framing, Framing::Extended);
        client
    }

    fn connect_with(
        path: &Path,
        mut handshake: Handshake,
    ) -> Result<Client, client::HandshakeError> {
        let mut socket = UnixStream::connect(path).unwrap();
        let (mut input, mut out) = (Vec::new(), Vec::new());
        loop {
            let step = handshake.advance(&input, &mut out)?;
            socket.write_all(&out).unwrap();
            out.clear();
            match step {
                Step::Taken(n) => drop(input.drain(..n)),
                Step::Incomplete => receive(&mut socket, &mut input).unwrap(),
                Step::Transmission { taken, agreed } => {
                    input.drain(..taken);
                    return Ok(Client { socket, agreed, input, pending: HashMap::new(), next: 0 });
                }
            }
        }
    }

    /// Sends a request without waiting; the payload is empty unless it is a write.
    pub(crate) fn send(&mut self, op: Op, payload: &[u8]) -> Cookie {
        let cookie = Cookie(self.next);
        self.next += 1;
        let mut out = Vec::new();
        match self.agreed.framing {
            Framing::Extended => client::put_extended_request(&mut out, cookie, op),
            _ => client::put_request(&mut out, cookie, op),
        }
        out.extend_from_slice(payload);
        self.socket.write_all(&out).unwrap();
        self.pending.insert(cookie, op);
        cookie
    }

    /// Expects the reply to a request that was sent by hand.
    pub(crate) fn expect(&mut self, cookie: Cookie, op: Op) {
        self.pending.insert(cookie, op);
    }

    /// The next reply, in whatever order the server chose; `None` if it closed the connection.
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
                        // Length and flags of each, as they are in the layout that was agreed on.
                        Reply::Status { extents, .. }
                            if self.agreed.framing == Framing::Extended =>
                        {
                            Ok(extents
                                .iter()
                                .flat_map(|e| [e.len, e.status.bits().into()].map(u64::to_be_bytes))
                                .flatten()
                                .collect())
                        }
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
            receive(&mut self.socket, &mut self.input).ok()?;
        }
    }

    /// Sends a request and waits for its reply.
    pub(crate) fn call(&mut self, op: Op, payload: &[u8]) -> Outcome {
        let cookie = self.send(op, payload);
        let (answered, outcome) = self.receive().expect("the server closed the connection");
        assert_eq!(answered, cookie);
        outcome
    }
}

fn receive(socket: &mut UnixStream, input: &mut Vec<u8>) -> std::io::Result<()> {
    let mut chunk = vec![0; 256 << 10];
    match socket.read(&mut chunk)? {
        0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
        n => {
            input.extend_from_slice(&chunk[..n]);
            Ok(())
        }
    }
}

/// The server's part of a handshake, on any export; returns the connection, on which it says no
/// more.
pub(crate) fn agree(mut socket: UnixStream, size: u64) -> UnixStream {
    let blocks = parda_nbd::BlockSizes::DEFAULT;
    let export = parda_nbd::Export {
        name: name("x"),
        description: String::new(),
        size,
        blocks,
        read_only: false,
        trim: true,
        write_zeroes: true,
        multi_conn: true,
        cache: false,
        fast_zero: false,
    };
    let (mut input, mut out) = (Vec::new(), Vec::new());
    let mut handshake = parda_nbd::server::Handshake::start(&mut out);
    loop {
        socket.write_all(&out).unwrap();
        out.clear();
        let exports = std::slice::from_ref(&export);
        match handshake.advance(&input, exports, &mut out).unwrap() {
            parda_nbd::server::Step::Incomplete => receive(&mut socket, &mut input).unwrap(),
            parda_nbd::server::Step::Taken(n) => drop(input.drain(..n)),
            parda_nbd::server::Step::Closed => panic!("the client went"),
            parda_nbd::server::Step::Transmission { .. } => {
                socket.write_all(&out).unwrap();
                return socket;
            }
        }
    }
}
