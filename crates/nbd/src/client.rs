//! The client's side: a handshake that ends in [`Agreed`], requests out, replies in.

use crate::export::{BlockSizeError, BlockSizes, ExportName};
use crate::extents::{Descriptor, MAX_EXTENTS, Status};
use crate::meta;
use crate::validate::Op;
use crate::wire::{
    self, Cookie, Errno, Extent, Reader, RequestHeader, TransmissionFlags, chunk, command,
    command_flag, info, option, reply,
};

/// What client and server agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Size of the export in bytes.
    pub size: u64,
    /// What the server offers.
    pub flags: TransmissionFlags,
    /// What requests must respect.
    pub blocks: BlockSizes,
    /// Replies to reads are structured.
    pub structured: bool,
    /// The server's number of the metadata context `base:allocation`, if BLOCK_STATUS can be
    /// asked.
    pub allocation: Option<u32>,
}

/// Why a handshake failed. The connection is to be closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// Whoever answers does not speak NBD.
    #[error("the peer is not an NBD server: it greets with {0:#018x}")]
    NotNbd(u64),
    /// The server speaks the protocol's first version.
    #[error("the server speaks the oldstyle protocol, which is not supported")]
    Oldstyle,
    /// An option reply does not begin like one.
    #[error("an option reply begins with {0:#018x}, which is no NBD magic")]
    WrongReplyMagic(u64),
    /// A reply to an option that was not asked.
    #[error("the server answers option {got} when option {asked} was asked")]
    WrongOption {
        /// What we asked.
        asked: u32,
        /// What it answers.
        got: u32,
    },
    /// A reply longer than any we know.
    #[error("an option reply announces {0} bytes, at most {max} are accepted",
            max = wire::MAX_OPTION_REPLY_DATA)]
    ReplyTooLong(u32),
    /// A reply that does not make sense.
    #[error("the server sent a malformed reply to option {0}")]
    Malformed(u32),
    /// The server has no such export.
    #[error("the server has no export {name:?}: {message}")]
    UnknownExport {
        /// What we asked for.
        name: String,
        /// What the server says; may be empty.
        message: String,
    },
    /// The server insists on TLS.
    #[error("the server requires TLS: use nbds:// or nbds+unix://")]
    TlsRequired,
    /// The server has no TLS, or somebody on the way says so.
    #[error("the server has no TLS, and nothing else is asked of it: {0}")]
    NoTls(String),
    /// The server refused for another reason.
    #[error("the server refused option {option} with error {code:#x}: {message}")]
    Refused {
        /// The option.
        option: u32,
        /// Its reply type.
        code: u32,
        /// What the server says; may be empty.
        message: String,
    },
    /// The block sizes are not possible.
    #[error("the server announced impossible block sizes: {0}")]
    BlockSizes(#[from] BlockSizeError),
}

/// A step of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// More bytes are needed.
    Incomplete,
    /// A message of this many bytes was taken off the front; there may be more.
    Taken(usize),
    /// As [`Step::Taken`], and transmission begins.
    Transmission {
        /// Bytes taken.
        taken: usize,
        /// What was agreed.
        agreed: Agreed,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Greeting,
    /// Waiting for the answer to STARTTLS.
    StartTls,
    /// The server waits for TLS to begin.
    Tls,
    /// Waiting for the answer to STRUCTURED_REPLY.
    Structured,
    /// Waiting for the answer to SET_META_CONTEXT.
    Meta,
    /// Waiting for the information of GO and its end.
    Go,
    /// Waiting for the answer to EXPORT_NAME, which has no header.
    ExportName,
}

/// The client's handshake: fixed newstyle with GO, and EXPORT_NAME where a server lacks that.
#[derive(Clone, Debug)]
pub struct Handshake {
    name: ExportName,
    /// Nothing is asked outside of TLS.
    tls: bool,
    state: State,
    no_zeroes: bool,
    structured: bool,
    allocation: Option<u32>,
    export: Option<(u64, TransmissionFlags)>,
    blocks: BlockSizes,
}

impl Handshake {
    /// A handshake for the export of that name. The server speaks first.
    #[must_use]
    pub fn new(name: ExportName) -> Self {
        Self {
            name,
            tls: false,
            state: State::Greeting,
            no_zeroes: false,
            structured: false,
            allocation: None,
            export: None,
            blocks: BlockSizes::DEFAULT,
        }
    }

    /// As [`Handshake::new`], inside of TLS: nothing but STARTTLS is said before it.
    #[must_use]
    pub fn new_with_tls(name: ExportName) -> Self {
        Self { tls: true, ..Self::new(name) }
    }

    /// Whether the server waits for TLS to begin. It sends nothing before that: bytes that came
    /// with its answer were put there by somebody else, and the connection must be closed.
    #[must_use]
    pub fn starts_tls(&self) -> bool {
        self.state == State::Tls
    }

    /// Goes on inside of TLS.
    pub fn secured(&mut self, out: &mut Vec<u8>) {
        wire::put_option(out, option::STRUCTURED_REPLY, b"");
        self.state = State::Structured;
    }

    /// Takes at most one message off the front of `input` and appends the answer to `out`.
    ///
    /// # Errors
    /// When the server refused or broke the protocol; see [`HandshakeError`].
    pub fn advance(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Step, HandshakeError> {
        match self.state {
            State::Greeting => self.greeting(input, out),
            State::StartTls => self.reply(input, option::STARTTLS, out),
            State::Tls => Ok(Step::Incomplete),
            State::Structured => self.reply(input, option::STRUCTURED_REPLY, out),
            State::Meta => self.reply(input, option::SET_META_CONTEXT, out),
            State::Go => self.reply(input, option::GO, out),
            State::ExportName => Ok(self.export_name(input)),
        }
    }

    fn greeting(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Step, HandshakeError> {
        let mut reader = Reader(input);
        // Judged as soon as they are there: a peer that is no NBD server may never send the rest.
        let Some(magic) = reader.take(8).map(|b| Reader(b).u64()) else {
            return Ok(Step::Incomplete);
        };
        if magic != wire::GREETING_MAGIC {
            return Err(HandshakeError::NotNbd(magic));
        }
        match reader.take(8).map(|b| Reader(b).u64()) {
            None => return Ok(Step::Incomplete),
            Some(wire::OPTION_MAGIC) => {}
            Some(wire::OLDSTYLE_MAGIC) => return Err(HandshakeError::Oldstyle),
            Some(other) => return Err(HandshakeError::NotNbd(other)),
        }
        let Some(offered) = reader.take(2).map(|b| Reader(b).u16()) else {
            return Ok(Step::Incomplete);
        };
        let flags = offered & (wire::FLAG_FIXED_NEWSTYLE | wire::FLAG_NO_ZEROES);
        self.no_zeroes = flags & wire::FLAG_NO_ZEROES != 0;
        out.extend_from_slice(&u32::from(flags).to_be_bytes());
        if self.tls && flags & wire::FLAG_FIXED_NEWSTYLE == 0 {
            return Err(HandshakeError::NoTls("it has no options".to_owned()));
        }
        if self.tls {
            wire::put_option(out, option::STARTTLS, b"");
            self.state = State::StartTls;
        } else if flags & wire::FLAG_FIXED_NEWSTYLE != 0 {
            wire::put_option(out, option::STRUCTURED_REPLY, b"");
            self.state = State::Structured;
        } else {
            self.ask_export_name(out);
        }
        Ok(Step::Taken(wire::GREETING_LEN))
    }

    fn ask_export_name(&mut self, out: &mut Vec<u8>) {
        wire::put_option(out, option::EXPORT_NAME, self.name.as_str().as_bytes());
        self.state = State::ExportName;
    }

    fn ask_meta(&mut self, out: &mut Vec<u8>) {
        let data = meta::queries(self.name.as_str(), &[meta::ALLOCATION]);
        wire::put_option(out, option::SET_META_CONTEXT, &data);
        self.state = State::Meta;
    }

    fn ask_go(&mut self, out: &mut Vec<u8>) {
        let name = self.name.as_str().as_bytes();
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend_from_slice(name);
        data.extend_from_slice(&1u16.to_be_bytes());
        data.extend_from_slice(&info::BLOCK_SIZE.to_be_bytes());
        wire::put_option(out, option::GO, &data);
        self.state = State::Go;
    }

    fn reply(
        &mut self,
        input: &[u8],
        asked: u32,
        out: &mut Vec<u8>,
    ) -> Result<Step, HandshakeError> {
        let mut reader = Reader(input);
        let Some(header) = reader.take(wire::OPTION_REPLY_HEADER_LEN) else {
            return Ok(Step::Incomplete);
        };
        let mut header = Reader(header);
        let magic = header.u64();
        if magic != wire::OPTION_REPLY_MAGIC {
            return Err(HandshakeError::WrongReplyMagic(magic));
        }
        let (got, kind, len) = (header.u32(), header.u32(), header.u32());
        if got != asked {
            return Err(HandshakeError::WrongOption { asked, got });
        }
        if len as usize > wire::MAX_OPTION_REPLY_DATA {
            return Err(HandshakeError::ReplyTooLong(len));
        }
        let Some(data) = reader.take(len as usize) else { return Ok(Step::Incomplete) };
        let taken = wire::OPTION_REPLY_HEADER_LEN + data.len();

        match (self.state, kind) {
            (State::StartTls, reply::ACK) => self.state = State::Tls,
            (State::StartTls, kind) if kind & reply::ERROR_BIT != 0 => {
                let message = String::from_utf8_lossy(data).into_owned();
                return Err(HandshakeError::NoTls(message));
            }
            (State::Structured, reply::ACK) => {
                self.structured = true;
                self.ask_meta(out);
            }
            (State::Meta, reply::META_CONTEXT) => {
                let mut data = Reader(data);
                let id = data.take(4).map(|b| Reader(b).u32());
                // A context that was not asked for is of no use to anybody.
                if data.0 == meta::ALLOCATION.as_bytes() {
                    self.allocation = id;
                }
            }
            (State::Meta, reply::ACK) => self.ask_go(out),
            // Any error means: not with this server.
            (State::Structured | State::Meta, kind)
                if kind & reply::ERROR_BIT != 0 && kind != reply::ERR_TLS_REQD =>
            {
                self.allocation = None;
                self.ask_go(out);
            }
            (State::Go, reply::INFO) => self.learn(data)?,
            (State::Go, reply::ACK) => {
                let (size, flags) = self.export.ok_or(HandshakeError::Malformed(asked))?;
                return Ok(Step::Transmission { taken, agreed: self.agreed(size, flags) });
            }
            (State::Go, reply::ERR_UNSUP) => self.ask_export_name(out),
            (_, reply::ERR_TLS_REQD) => return Err(HandshakeError::TlsRequired),
            (_, code) if code & reply::ERROR_BIT != 0 => {
                let message = String::from_utf8_lossy(data).into_owned();
                return Err(if code == reply::ERR_UNKNOWN {
                    HandshakeError::UnknownExport { name: self.name.to_string(), message }
                } else {
                    HandshakeError::Refused { option: asked, code, message }
                });
            }
            _ => return Err(HandshakeError::Malformed(asked)),
        }
        Ok(Step::Taken(taken))
    }

    fn learn(&mut self, data: &[u8]) -> Result<(), HandshakeError> {
        let mut reader = Reader(data);
        let malformed = HandshakeError::Malformed(option::GO);
        let kind = reader.take(2).map(|b| Reader(b).u16()).ok_or(malformed.clone())?;
        match (kind, reader.0.len()) {
            (info::EXPORT, 10) => {
                self.export = Some((reader.u64(), TransmissionFlags(reader.u16())));
            }
            (info::BLOCK_SIZE, 12) => {
                self.blocks = BlockSizes::from_wire([reader.u32(), reader.u32(), reader.u32()])?;
            }
            (info::EXPORT | info::BLOCK_SIZE, _) => return Err(malformed),
            // "The client MUST ignore information types it does not recognise."
            _ => {}
        }
        Ok(())
    }

    fn export_name(&self, input: &[u8]) -> Step {
        let zeroes = if self.no_zeroes { 0 } else { wire::EXPORT_NAME_ZEROES };
        let taken = wire::EXPORT_NAME_REPLY_LEN + zeroes;
        if input.len() < taken {
            return Step::Incomplete;
        }
        let mut reader = Reader(input);
        let (size, flags) = (reader.u64(), TransmissionFlags(reader.u16()));
        Step::Transmission { taken, agreed: self.agreed(size, flags) }
    }

    fn agreed(&self, size: u64, flags: TransmissionFlags) -> Agreed {
        let (structured, allocation) = (self.structured, self.allocation);
        Agreed { size, flags, blocks: self.blocks, structured, allocation }
    }
}

/// Appends a request. The payload of a write must follow.
pub fn put_request(out: &mut Vec<u8>, cookie: Cookie, op: Op) {
    let nothing = Extent { offset: 0, len: 0 };
    let fua_flag = |fua| if fua { command_flag::FUA } else { 0 };
    let (command, flags, extent) = match op {
        Op::Read(extent) => (command::READ, 0, extent),
        Op::Write { extent, fua } => (command::WRITE, fua_flag(fua), extent),
        Op::Flush => (command::FLUSH, 0, nothing),
        Op::Trim { extent, fua } => (command::TRIM, fua_flag(fua), extent),
        Op::WriteZeroes { extent, fua, no_hole, fast } => {
            let no_hole = if no_hole { command_flag::NO_HOLE } else { 0 };
            let fast = if fast { command_flag::FAST_ZERO } else { 0 };
            (command::WRITE_ZEROES, fua_flag(fua) | no_hole | fast, extent)
        }
        Op::Cache(extent) => (command::CACHE, 0, extent),
        Op::BlockStatus { extent, one } => {
            (command::BLOCK_STATUS, if one { command_flag::REQ_ONE } else { 0 }, extent)
        }
    };
    out.extend_from_slice(&RequestHeader { flags, command, cookie, extent }.encode());
}

/// Appends the request that ends the session.
pub fn put_disconnect(out: &mut Vec<u8>) {
    let extent = Extent { offset: 0, len: 0 };
    let header = RequestHeader { flags: 0, command: command::DISC, cookie: Cookie(0), extent };
    out.extend_from_slice(&header.encode());
}

/// What the parser must know of a request in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Data of this range.
    Data(Extent),
    /// Block status of this range, in the context of this number.
    Status {
        /// The range.
        extent: Extent,
        /// The number, see [`Agreed::allocation`].
        context: u32,
    },
    /// Success or failure only.
    Outcome,
}

impl Expected {
    fn holds(self, offset: u64) -> bool {
        match self {
            Self::Data(extent) | Self::Status { extent, .. } => {
                offset >= extent.offset && extent.end().is_some_and(|end| offset < end)
            }
            // The range is not known here: it is for the caller to compare.
            Self::Outcome => true,
        }
    }
}

/// The longest chunk of extents that is taken, in bytes: more than servers are known to send.
const MAX_STATUS_CHUNK: u32 = 16 << 20;

/// A reply, or one piece of it. `last` says that none follows for this request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Nothing more for this request; it succeeded unless a piece before said otherwise.
    Done,
    /// As many bytes of data as `extent` has follow the head.
    Data {
        /// Where the data belongs, within the range asked for.
        extent: Extent,
        /// No piece follows.
        last: bool,
    },
    /// A range that reads as zeroes.
    Hole {
        /// Where, within the range asked for.
        extent: Extent,
        /// No piece follows.
        last: bool,
    },
    /// What is known of the range asked for, from its beginning on. The last extent may reach
    /// beyond the range.
    Status {
        /// At least one and at most [`MAX_EXTENTS`], none of them empty.
        extents: Vec<Descriptor>,
        /// Bytes of further extents that follow the head, to be thrown away.
        discard: u32,
        /// No piece follows.
        last: bool,
    },
    /// The request failed.
    Error {
        /// Why.
        errno: Errno,
        /// What the server says; may be empty.
        message: String,
        /// Where in the export, if the server says so and it is within the range asked for.
        at: Option<u64>,
        /// No piece follows.
        last: bool,
    },
}

/// A reply's head at the front of the received bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Bytes of the head, after which a [`Reply::Data`]'s data begins.
    pub taken: usize,
    /// The request it answers.
    pub cookie: Cookie,
    /// What it says.
    pub reply: Reply,
}

/// Why transmission cannot go on. The connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// No reply begins where one should.
    #[error("a reply begins with {0:#010x}, which is no NBD magic")]
    WrongMagic(u32),
    /// A reply to a request that is not in flight.
    #[error("the server answers request {0:#x}, which is not in flight")]
    UnknownCookie(u64),
    /// A simple reply to a read when structured replies were agreed, or the reverse.
    #[error("the server used a kind of reply that was not agreed on")]
    WrongKind,
    /// A chunk of a type that is not known, or not fitting to the request.
    #[error("the server sent a chunk of type {kind:#x} and length {len} that fits no request")]
    BadChunk {
        /// Its type.
        kind: u16,
        /// Its length.
        len: u32,
    },
    /// Data outside of what was asked for.
    #[error("the server sent data outside of the range that was asked for")]
    OutsideRequest,
    /// Data of a range that another piece has covered.
    #[error("the server sent data of one range twice")]
    Overlap,
    /// More pieces than any server has a reason to send.
    #[error("the server splits a reply into too many pieces")]
    TooManyPieces,
}

/// Reads the reply at the front of `input`, or `None` if its head is not complete yet.
///
/// `expected` tells what a request in flight waits for. Whether the pieces of a read cover all of
/// it, and nothing twice, is for [`Answer`](crate::answer::Answer) to find.
///
/// # Errors
/// When the server broke the protocol; the stream cannot be followed any more.
pub fn reply(
    input: &[u8],
    structured: bool,
    expected: impl FnOnce(Cookie) -> Option<Expected>,
) -> Result<Option<Head>, ReplyError> {
    let mut reader = Reader(input);
    let Some(magic) = reader.take(4).map(|b| Reader(b).u32()) else { return Ok(None) };
    match magic {
        wire::SIMPLE_REPLY_MAGIC => simple(reader, structured, expected),
        wire::CHUNK_MAGIC if structured => structured_chunk(reader, expected),
        wire::CHUNK_MAGIC => Err(ReplyError::WrongKind),
        other => Err(ReplyError::WrongMagic(other)),
    }
}

fn simple(
    mut reader: Reader<'_>,
    structured: bool,
    expected: impl FnOnce(Cookie) -> Option<Expected>,
) -> Result<Option<Head>, ReplyError> {
    if reader.0.len() < wire::SIMPLE_REPLY_LEN - 4 {
        return Ok(None);
    }
    let (code, cookie) = (reader.u32(), Cookie(reader.u64()));
    let expected = expected(cookie).ok_or(ReplyError::UnknownCookie(cookie.0))?;
    let reply = match (code, expected) {
        (0, Expected::Outcome) => Reply::Done,
        // A reply to BLOCK_STATUS holds extents, which a simple reply cannot.
        (0, Expected::Status { .. }) => return Err(ReplyError::WrongKind),
        (_, Expected::Data(_)) if structured => return Err(ReplyError::WrongKind),
        (0, Expected::Data(extent)) => Reply::Data { extent, last: true },
        (code, _) => {
            let (errno, message) = (Errno::from_code(code), String::new());
            Reply::Error { errno, message, at: None, last: true }
        }
    };
    Ok(Some(Head { taken: wire::SIMPLE_REPLY_LEN, cookie, reply }))
}

fn structured_chunk(
    mut reader: Reader<'_>,
    expected: impl FnOnce(Cookie) -> Option<Expected>,
) -> Result<Option<Head>, ReplyError> {
    if reader.0.len() < wire::CHUNK_HEADER_LEN - 4 {
        return Ok(None);
    }
    let (flags, kind, cookie, len) =
        (reader.u16(), reader.u16(), Cookie(reader.u64()), reader.u32());
    let last = flags & chunk::FLAG_DONE != 0;
    let expected = expected(cookie).ok_or(ReplyError::UnknownCookie(cookie.0))?;
    let bad = ReplyError::BadChunk { kind, len };
    let within = |extent: Extent| match expected {
        Expected::Data(asked)
            if extent.offset >= asked.offset
                && extent.end().is_some_and(|end| Some(end) <= asked.end()) =>
        {
            Ok(extent)
        }
        Expected::Data(_) => Err(ReplyError::OutsideRequest),
        Expected::Outcome | Expected::Status { .. } => Err(bad),
    };
    // How much of the payload belongs to the head.
    let head_len = match (kind, len) {
        (chunk::NONE, 0) if last => 0,
        (chunk::OFFSET_DATA, 9..) => 8,
        (chunk::OFFSET_HOLE, 12) => 12,
        (chunk::BLOCK_STATUS, 12..) if len % 8 == 4 && len <= MAX_STATUS_CHUNK => {
            (len as usize).min(4 + 8 * MAX_EXTENTS)
        }
        (kind, 6..) if kind & chunk::ERROR_BIT != 0 => {
            if len as usize > wire::MAX_STRING + 64 {
                return Err(bad);
            }
            len as usize
        }
        _ => return Err(bad),
    };
    let Some(payload) = reader.take(head_len) else { return Ok(None) };
    let mut payload = Reader(payload);
    let reply = match kind {
        chunk::NONE => Reply::Done,
        chunk::OFFSET_DATA => {
            let extent = within(Extent { offset: payload.u64(), len: len - 8 })?;
            Reply::Data { extent, last }
        }
        chunk::OFFSET_HOLE => {
            let extent = within(Extent { offset: payload.u64(), len: payload.u32() })?;
            if extent.len == 0 {
                return Err(bad);
            }
            Reply::Hole { extent, last }
        }
        chunk::BLOCK_STATUS => match expected {
            Expected::Status { context, .. } if payload.u32() == context => {
                let extents: Vec<_> = payload
                    .0
                    .chunks_exact(8)
                    .map(Reader)
                    .map(|mut r| Descriptor { len: r.u32(), status: Status::from_wire(r.u32()) })
                    .collect();
                if extents.iter().any(|extent| extent.len == 0) {
                    return Err(bad);
                }
                Reply::Status { extents, discard: len - head_len as u32, last }
            }
            _ => return Err(bad),
        },
        _ => {
            let (code, message_len) = (payload.u32(), payload.u16());
            let message = payload.take(usize::from(message_len)).ok_or(bad)?;
            let message = String::from_utf8_lossy(message).into_owned();
            // Zero is no error.
            if code == 0 {
                return Err(bad);
            }
            let at = (kind == chunk::ERROR_OFFSET).then_some(payload).filter(|p| p.0.len() == 8);
            let at = at.map(|mut p| p.u64()).filter(|at| expected.holds(*at));
            Reply::Error { errno: Errno::from_code(code), message, at, last }
        }
    };
    Ok(Some(Head { taken: wire::CHUNK_HEADER_LEN + head_len, cookie, reply }))
}
