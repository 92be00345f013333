//! An NBD server that shakes hands as it should and then does what a test tells it to.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parda_address::{ExportName, Uri};
use parda_disk::{BlockSizes, Extent, Geometry};
use parda_nbd::server::Security;
use parda_nbd::wire::{self, ChunkHeader, OptionReply, RequestHeader, chunk, command, option};
use parda_nbd::{Cookie, Export, Framing, server};
use parda_tls::{Acceptor, TlsRelay};

/// One connection of a client, after the handshake.
pub(crate) struct Peer {
    pub(crate) stream: UnixStream,
    /// How many connections there were before it.
    pub(crate) number: usize,
    pub(crate) structured: bool,
}

/// A request with its payload.
pub(crate) struct Asked {
    pub(crate) header: RequestHeader,
    pub(crate) payload: Vec<u8>,
}

pub(crate) struct Hostile {
    pub(crate) socket: PathBuf,
    connections: Arc<AtomicUsize>,
}

pub(crate) fn export(size: u64) -> Export {
    Export {
        name: ExportName::default(),
        description: String::new(),
        geometry: Geometry {
            trim: true,
            write_zeroes: true,
            ..Geometry::new(size, BlockSizes::DEFAULT)
        },
    }
}

impl Hostile {
    /// Serves `export`; `behave` has every connection to itself until it returns. The threads end
    /// with the process.
    pub(crate) fn start(
        socket: &Path,
        export: Export,
        behave: impl Fn(&mut Peer) -> Option<()> + Send + Sync + 'static,
    ) -> Self {
        Self::start_with(socket, export, None, behave)
    }

    /// As [`Hostile::start`], inside of TLS if there is an acceptor.
    pub(crate) fn start_with(
        socket: &Path,
        export: Export,
        acceptor: Option<Arc<Acceptor>>,
        behave: impl Fn(&mut Peer) -> Option<()> + Send + Sync + 'static,
    ) -> Self {
        // A server that is started anew takes over its socket's name.
        let _ = std::fs::remove_file(socket);
        let listener = UnixListener::bind(socket).unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (behave, counter) = (Arc::new(behave), Arc::clone(&connections));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let number = counter.fetch_add(1, Ordering::SeqCst);
                let (behave, export) = (Arc::clone(&behave), export.clone());
                let acceptor = acceptor.clone();
                std::thread::spawn(move || {
                    let mut peer = Peer { stream, number, structured: false };
                    // `None` is the end of a connection, however it came.
                    let agreed = peer.shake_hands(&export, acceptor.as_deref());
                    agreed.and_then(|()| behave(&mut peer))
                });
            }
        });
        Self { socket: socket.into(), connections }
    }

    pub(crate) fn uri(&self) -> Uri {
        Uri::from_str(&format!("nbd+unix:///?socket={}", self.socket.display())).unwrap()
    }

    /// Number of connections that were accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Peer {
    fn shake_hands(&mut self, export: &Export, acceptor: Option<&Acceptor>) -> Option<()> {
        let (mut input, mut out) = (Vec::new(), Vec::new());
        let security = acceptor.map_or(Security::Plain, |_| Security::Required);
        let mut handshake = server::Handshake::start_with(security, &mut out);
        let exports = [export.clone()];
        loop {
            self.stream.write_all(&out).ok()?;
            out.clear();
            if let (true, Some(acceptor)) = (handshake.starts_tls(), acceptor) {
                self.begin_tls(acceptor)?;
                handshake.secured();
            }
            if refuse_extended_headers(&mut input, &mut out) {
                continue;
            }
            match handshake.advance(&input, &exports, &mut out).ok()? {
                server::Step::Incomplete => {
                    let mut byte = [0; 1];
                    self.stream.read_exact(&mut byte).ok()?;
                    input.push(byte[0]);
                }
                server::Step::Taken(n) => drop(input.drain(..n)),
                server::Step::Closed => return None,
                server::Step::Transmission { session, .. } => {
                    self.stream.write_all(&out).ok()?;
                    // What kind of reply was agreed on shows in the head of one.
                    let mut head = Vec::new();
                    session.put_read(&mut head, Cookie(0), Extent { offset: 0, len: 1 });
                    self.structured = head.starts_with(&wire::CHUNK_MAGIC.to_be_bytes());
                    return Some(());
                }
            }
        }
    }

    fn begin_tls(&mut self, acceptor: &Acceptor) -> Option<()> {
        let (ours, inside) = UnixStream::pair().ok()?;
        let outside = std::mem::replace(&mut self.stream, ours);
        let channel = acceptor.accept().unwrap();
        let mut relay = TlsRelay::new(channel, outside.into(), inside.into());
        std::thread::spawn(move || relay.run());
        Some(())
    }

    /// The next request of the client; `None` if it has closed.
    pub(crate) fn next(&mut self) -> Option<Asked> {
        let mut bytes = [0; wire::REQUEST_LEN];
        self.stream.read_exact(&mut bytes).ok()?;
        let header = RequestHeader::decode(Framing::Simple, &bytes).unwrap().unwrap();
        let len = if header.command == command::WRITE { header.extent.len } else { 0 };
        let mut payload = vec![0; len as usize];
        self.stream.read_exact(&mut payload).ok()?;
        (header.command != command::DISC).then_some(Asked { header, payload })
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Option<()> {
        self.stream.write_all(bytes).ok()
    }

    /// Answers a request as a good server does; `data` is what a read returns.
    pub(crate) fn answer(&mut self, header: &RequestHeader, data: &[u8]) -> Option<()> {
        if header.command != command::READ {
            return self.send(&simple(header.cookie, 0));
        }
        let bytes = if self.structured {
            let RequestHeader { cookie, extent, .. } = *header;
            data_chunk(chunk::FLAG_DONE, cookie, extent.offset, data)
        } else {
            [simple(header.cookie, 0), data.to_vec()].concat()
        };
        self.send(&bytes)
    }
}

/// Answers a client that asks for extended headers as older servers do.
pub(crate) fn refuse_extended_headers(input: &mut Vec<u8>, out: &mut Vec<u8>) -> bool {
    let mut asked = Vec::new();
    wire::put_option(&mut asked, option::EXTENDED_HEADERS, b"");
    let asks = *input == asked;
    if asks {
        input.clear();
        let unknown = OptionReply(wire::reply::ERR_UNSUP);
        wire::put_option_reply(out, option::EXTENDED_HEADERS, unknown, b"");
    }
    asks
}

/// A simple reply with that error, 0 for none.
pub(crate) fn simple(cookie: Cookie, error: u32) -> Vec<u8> {
    let mut out = Vec::new();
    wire::put_simple_reply(&mut out, cookie, (error != 0).then(|| wire::errno(error)));
    out
}

/// A chunk of a structured reply, with any flags and kind.
pub(crate) fn chunk_of(flags: u16, kind: u16, cookie: Cookie, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let len = payload.len() as u32;
    wire::put_chunk_header(&mut out, ChunkHeader { flags, kind, cookie, len }, None);
    out.extend_from_slice(payload);
    out
}

/// A chunk of data.
pub(crate) fn data_chunk(flags: u16, cookie: Cookie, offset: u64, data: &[u8]) -> Vec<u8> {
    chunk_of(flags, chunk::OFFSET_DATA, cookie, &[&offset.to_be_bytes()[..], data].concat())
}

/// A chunk that says that a range is a hole.
pub(crate) fn hole_chunk(flags: u16, cookie: Cookie, offset: u64, len: u32) -> Vec<u8> {
    let payload = [&offset.to_be_bytes()[..], &len.to_be_bytes()].concat();
    chunk_of(flags, chunk::OFFSET_HOLE, cookie, &payload)
}

/// An error with a message.
pub(crate) fn error_chunk(flags: u16, cookie: Cookie, error: u32) -> Vec<u8> {
    let payload = [&error.to_be_bytes()[..], &2u16.to_be_bytes(), b"no"].concat();
    chunk_of(flags, chunk::ERROR, cookie, &payload)
}
