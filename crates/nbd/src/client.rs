//! The client's side: a handshake that ends in [`Agreed`], requests out, replies in.

mod reply;

use parda_address::ExportName;
use parda_disk::{BlockSizeError, BlockSizes, Extent, Op};

use crate::meta;
use crate::names::{OptionName, ReplyName};
use crate::wire::reply as answer;
use crate::wire::{
    self, Cookie, Framing, Reader, RequestHeader, TransmissionFlags, command, command_flag, info,
    option,
};

pub use reply::{Expected, Head, Reply, ReplyError, reply};

/// Terms that client and server agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Size of the export in bytes.
    pub size: u64,
    /// Flags of the export, as the server sent them.
    pub flags: TransmissionFlags,
    /// Sizes that requests must respect.
    pub blocks: BlockSizes,
    /// Layout of requests and replies.
    pub framing: Framing,
    /// The server's number of the metadata context `base:allocation`, if BLOCK_STATUS can be
    /// asked.
    pub allocation: Option<u32>,
}

/// Reason why a handshake failed. The connection is to be closed.
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
    #[error("the server answers {} where {} was asked", OptionName(*got), OptionName(*asked))]
    WrongOption {
        /// The option that was sent.
        asked: u32,
        /// The option that the reply names.
        got: u32,
    },
    /// A reply longer than any we know.
    #[error("an option reply announces {0} bytes, at most {max} are accepted",
            max = wire::MAX_OPTION_REPLY_DATA)]
    ReplyTooLong(u32),
    /// A reply that does not make sense.
    #[error("the server sent a malformed reply to {}", OptionName(*.0))]
    Malformed(u32),
    /// The server has no such export.
    #[error("the server has no export {name:?}: {message}")]
    UnknownExport {
        /// Name that was asked for.
        name: String,
        /// Message of the server; may be empty.
        message: String,
    },
    /// The server insists on TLS.
    #[error("the server requires TLS: use nbds:// or nbds+unix://")]
    TlsRequired,
    /// The server has no TLS, or somebody on the way says so.
    #[error("the server has no TLS, and nothing else is asked of it: {0}")]
    NoTls(String),
    /// The server refused for another reason.
    #[error("the server refused {} with {}: {message}", OptionName(*option), ReplyName(*code))]
    Refused {
        /// Number of the option, one of [`wire::option`].
        option: u32,
        /// The error, a type of option replies.
        code: u32,
        /// Message of the server; may be empty.
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
        /// Bytes of the input that were used.
        taken: usize,
        /// Terms that the handshake agreed on.
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
    /// Waiting for the answer to EXTENDED_HEADERS.
    Extended,
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
    /// Extended headers are asked for.
    extended: bool,
    state: State,
    no_zeroes: bool,
    framing: Framing,
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
            extended: false,
            state: State::Greeting,
            no_zeroes: false,
            framing: Framing::Simple,
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

    /// The same, and extended headers are asked for: see [`Agreed::framing`] for the answer.
    #[must_use]
    pub fn ask_extended_headers(self) -> Self {
        Self { extended: true, ..self }
    }

    /// Whether the server waits for TLS to begin. It sends nothing before that: bytes that came
    /// with its answer were put there by somebody else, and the connection must be closed.
    #[must_use]
    pub fn starts_tls(&self) -> bool {
        self.state == State::Tls
    }

    /// Goes on inside of TLS.
    pub fn secured(&mut self, out: &mut Vec<u8>) {
        self.ask_framing(out);
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
            State::Extended => self.reply(input, option::EXTENDED_HEADERS, out),
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
            self.ask_framing(out);
        } else {
            self.ask_export_name(out);
        }
        Ok(Step::Taken(wire::GREETING_LEN))
    }

    fn ask_framing(&mut self, out: &mut Vec<u8>) {
        let (option, state) = if self.extended {
            (option::EXTENDED_HEADERS, State::Extended)
        } else {
            (option::STRUCTURED_REPLY, State::Structured)
        };
        wire::put_option(out, option, b"");
        self.state = state;
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
        let Some((kind, data)) = option_reply(input, asked)? else { return Ok(Step::Incomplete) };
        let taken = wire::OPTION_REPLY_HEADER_LEN + data.len();
        // Any error means: not with this server. An option that needs TLS is no such answer.
        let declined = kind & answer::ERROR_BIT != 0 && kind != answer::ERR_TLS_REQD;

        match (self.state, kind) {
            (State::StartTls, answer::ACK) => self.state = State::Tls,
            (State::StartTls, kind) if kind & answer::ERROR_BIT != 0 => {
                let message = String::from_utf8_lossy(data).into_owned();
                return Err(HandshakeError::NoTls(message));
            }
            (State::Extended, answer::ACK) => {
                self.framing = Framing::Extended;
                self.ask_meta(out);
            }
            (State::Extended, _) if declined => {
                wire::put_option(out, option::STRUCTURED_REPLY, b"");
                self.state = State::Structured;
            }
            (State::Structured, answer::ACK) => {
                self.framing = Framing::Structured;
                self.ask_meta(out);
            }
            (State::Meta, answer::META_CONTEXT) => {
                let mut data = Reader(data);
                let id = data.take(4).map(|b| Reader(b).u32());
                // A context that was not asked for is of no use to anybody.
                if data.0 == meta::ALLOCATION.as_bytes() {
                    self.allocation = id;
                }
            }
            (State::Meta, answer::ACK) => self.ask_go(out),
            (State::Structured | State::Meta, _) if declined => {
                self.allocation = None;
                self.ask_go(out);
            }
            (State::Go, answer::INFO) => self.learn(data)?,
            (State::Go, answer::ACK) => {
                let (size, flags) = self.export.ok_or(HandshakeError::Malformed(asked))?;
                return Ok(Step::Transmission { taken, agreed: self.agreed(size, flags) });
            }
            // A server with extended headers has GO, and EXPORT_NAME would not go with them.
            (State::Go, answer::ERR_UNSUP) if self.framing != Framing::Extended => {
                self.ask_export_name(out);
            }
            (_, answer::ERR_TLS_REQD) => return Err(HandshakeError::TlsRequired),
            (_, code) if declined => return Err(self.refused(asked, code, data)),
            _ => return Err(HandshakeError::Malformed(asked)),
        }
        Ok(Step::Taken(taken))
    }

    fn refused(&self, option: u32, code: u32, message: &[u8]) -> HandshakeError {
        let message = String::from_utf8_lossy(message).into_owned();
        if code == answer::ERR_UNKNOWN {
            HandshakeError::UnknownExport { name: self.name.to_string(), message }
        } else {
            HandshakeError::Refused { option, code, message }
        }
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
                self.blocks = BlockSizes::new([reader.u32(), reader.u32(), reader.u32()])?;
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
        let (framing, allocation) = (self.framing, self.allocation);
        Agreed { size, flags, blocks: self.blocks, framing, allocation }
    }
}

/// Kind and data of the reply to the option that was asked. `None` if it is incomplete.
fn option_reply(input: &[u8], asked: u32) -> Result<Option<(u32, &[u8])>, HandshakeError> {
    let mut reader = Reader(input);
    let Some(header) = reader.take(wire::OPTION_REPLY_HEADER_LEN) else { return Ok(None) };
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
    Ok(reader.take(len as usize).map(|data| (kind, data)))
}

/// Appends a request without extended headers, so that its length must fit 32 bits. The payload of
/// a write must follow.
pub fn put_request(out: &mut Vec<u8>, cookie: Cookie, op: Op) {
    out.extend_from_slice(&header_of(cookie, op).encode());
}

/// Appends a request with an extended header. The payload of a write must follow.
pub fn put_extended_request(out: &mut Vec<u8>, cookie: Cookie, op: Op) {
    let mut header = header_of(cookie, op);
    if header.command == command::WRITE {
        header.flags |= command_flag::PAYLOAD_LEN;
    }
    out.extend_from_slice(&header.encode_extended());
}

fn header_of(cookie: Cookie, op: Op) -> RequestHeader {
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
    RequestHeader { flags, command, cookie, extent }
}

/// Appends the request that ends the session.
pub fn put_disconnect(out: &mut Vec<u8>, framing: Framing) {
    let extent = Extent { offset: 0, len: 0 };
    let header = RequestHeader { flags: 0, command: command::DISC, cookie: Cookie(0), extent };
    match framing {
        Framing::Simple | Framing::Structured => out.extend_from_slice(&header.encode()),
        Framing::Extended => out.extend_from_slice(&header.encode_extended()),
    }
}
