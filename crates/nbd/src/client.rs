//! The client's side: a handshake that ends in [`Agreed`], requests out, replies in.

mod reply;

use parda_address::ExportName;
use parda_disk::{BlockSizes, Extent, Op};

use crate::error::{ProtocolError, fail};
use crate::meta;
use crate::wire::reply as answer;
use crate::wire::{
    self, Cookie, Framing, Reader, RequestHeader, TransmissionFlags, command, command_flag, info,
    option,
};

pub use reply::{Expected, Reply, ReplyError, ReplyHead, reply};

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

/// Reason why a handshake failed.
pub type HandshakeError = ProtocolError;

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
    /// Waiting for the answer to this option, one of [`option`].
    Asked(u32),
    /// The server waits for TLS to begin.
    Tls,
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
            State::Asked(option) => self.reply(input, option, out),
            State::Tls => Ok(Step::Incomplete),
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
            return not_nbd(magic);
        }
        match reader.take(8).map(|b| Reader(b).u64()) {
            None => return Ok(Step::Incomplete),
            Some(wire::OPTION_MAGIC) => {}
            Some(wire::OLDSTYLE_MAGIC) => {
                return fail("the server speaks the oldstyle protocol, which is not supported");
            }
            Some(other) => return not_nbd(other),
        }
        let Some(offered) = reader.take(2).map(|b| Reader(b).u16()) else {
            return Ok(Step::Incomplete);
        };
        let flags = offered & (wire::FLAG_FIXED_NEWSTYLE | wire::FLAG_NO_ZEROES);
        self.no_zeroes = flags & wire::FLAG_NO_ZEROES != 0;
        out.extend_from_slice(&u32::from(flags).to_be_bytes());
        if self.tls && flags & wire::FLAG_FIXED_NEWSTYLE == 0 {
            return no_tls("it has no options");
        }
        if self.tls {
            self.ask(option::STARTTLS, b"", out);
        } else if flags & wire::FLAG_FIXED_NEWSTYLE != 0 {
            self.ask_framing(out);
        } else {
            self.ask_export_name(out);
        }
        Ok(Step::Taken(wire::GREETING_LEN))
    }

    fn ask(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) {
        wire::put_option(out, option, data);
        self.state = State::Asked(option);
    }

    fn ask_framing(&mut self, out: &mut Vec<u8>) {
        let structured = option::STRUCTURED_REPLY;
        self.ask(if self.extended { option::EXTENDED_HEADERS } else { structured }, b"", out);
    }

    fn ask_export_name(&mut self, out: &mut Vec<u8>) {
        wire::put_option(out, option::EXPORT_NAME, self.name.as_str().as_bytes());
        self.state = State::ExportName;
    }

    fn ask_meta(&mut self, out: &mut Vec<u8>) {
        let data = meta::queries(self.name.as_str(), &[meta::ALLOCATION]);
        self.ask(option::SET_META_CONTEXT, &data, out);
    }

    fn ask_go(&mut self, out: &mut Vec<u8>) {
        let name = self.name.as_str().as_bytes();
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend_from_slice(name);
        data.extend_from_slice(&1u16.to_be_bytes());
        data.extend_from_slice(&info::BLOCK_SIZE.to_be_bytes());
        self.ask(option::GO, &data, out);
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

        match (asked, kind) {
            (option::STARTTLS, answer::ACK) => self.state = State::Tls,
            (option::STARTTLS, kind) if kind & answer::ERROR_BIT != 0 => {
                return no_tls(&String::from_utf8_lossy(data));
            }
            (option::EXTENDED_HEADERS, answer::ACK) => {
                self.framing = Framing::Extended;
                self.ask_meta(out);
            }
            (option::EXTENDED_HEADERS, _) if declined => {
                self.ask(option::STRUCTURED_REPLY, b"", out);
            }
            (option::STRUCTURED_REPLY, answer::ACK) => {
                self.framing = Framing::Structured;
                self.ask_meta(out);
            }
            (option::SET_META_CONTEXT, answer::META_CONTEXT) => {
                let mut data = Reader(data);
                let id = data.take(4).map(|b| Reader(b).u32());
                // A context that was not asked for is of no use to anybody.
                if data.0 == meta::ALLOCATION.as_bytes() {
                    self.allocation = id;
                }
            }
            (option::SET_META_CONTEXT, answer::ACK) => self.ask_go(out),
            (option::STRUCTURED_REPLY | option::SET_META_CONTEXT, _) if declined => {
                self.allocation = None;
                self.ask_go(out);
            }
            (option::GO, answer::INFO) => self.learn(data)?,
            (option::GO, answer::ACK) => {
                let Some((size, flags)) = self.export else { return malformed(asked) };
                return Ok(Step::Transmission { taken, agreed: self.agreed(size, flags) });
            }
            // A server with extended headers has GO, and EXPORT_NAME would not go with them.
            (option::GO, answer::ERR_UNSUP) if self.framing != Framing::Extended => {
                self.ask_export_name(out);
            }
            (_, answer::ERR_TLS_REQD) => {
                return fail("the server requires TLS: use nbds:// or nbds+unix://");
            }
            (_, code) if declined => return self.refused(asked, code, data),
            _ => return malformed(asked),
        }
        Ok(Step::Taken(taken))
    }

    fn refused<T>(&self, option: u32, code: u32, message: &[u8]) -> Result<T, HandshakeError> {
        let message = String::from_utf8_lossy(message);
        if code == answer::ERR_UNKNOWN {
            return fail(format!("the server has no export {:?}: {message}", self.name.as_str()));
        }
        let (option, code) = (option::name(option), answer::name(code));
        fail(format!("the server refused {option} with {code}: {message}"))
    }

    fn learn(&mut self, data: &[u8]) -> Result<(), HandshakeError> {
        let mut reader = Reader(data);
        let Some(kind) = reader.take(2) else { return malformed(option::GO) };
        match (Reader(kind).u16(), reader.0.len()) {
            (info::EXPORT, 10) => {
                self.export = Some((reader.u64(), TransmissionFlags(reader.u16())));
            }
            (info::BLOCK_SIZE, 12) => {
                let sizes = BlockSizes::new([reader.u32(), reader.u32(), reader.u32()]);
                self.blocks = sizes.or_else(|error| {
                    fail(format!("the server announced impossible block sizes: {error}"))
                })?;
            }
            (info::EXPORT | info::BLOCK_SIZE, _) => return malformed(option::GO),
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

/// Whoever answers does not speak NBD.
fn not_nbd<T>(magic: u64) -> Result<T, HandshakeError> {
    fail(format!("the peer is not an NBD server: it greets with {magic:#018x}"))
}

/// The server has no TLS, or somebody on the way says so.
fn no_tls<T>(why: &str) -> Result<T, HandshakeError> {
    fail(format!("the server has no TLS, and nothing else is asked of it: {why}"))
}

fn malformed<T>(option: u32) -> Result<T, HandshakeError> {
    fail(format!("the server sent a malformed reply to {}", option::name(option)))
}

/// Kind and data of the reply to the option that was asked. `None` if it is incomplete.
fn option_reply(input: &[u8], asked: u32) -> Result<Option<(u32, &[u8])>, HandshakeError> {
    let mut reader = Reader(input);
    let Some(header) = reader.take(wire::OPTION_REPLY_HEADER_LEN) else { return Ok(None) };
    let mut header = Reader(header);
    let magic = header.u64();
    if magic != wire::OPTION_REPLY_MAGIC {
        return fail(format!("an option reply begins with {magic:#018x}, which is no NBD magic"));
    }
    let (got, kind, len) = (header.u32(), header.u32(), header.u32());
    if got != asked {
        let (got, asked) = (option::name(got), option::name(asked));
        return fail(format!("the server answers {got} where {asked} was asked"));
    }
    if len as usize > wire::MAX_OPTION_REPLY_DATA {
        let max = wire::MAX_OPTION_REPLY_DATA;
        return fail(format!("an option reply announces {len} bytes, at most {max} are accepted"));
    }
    Ok(reader.take(len as usize).map(|data| (kind, data)))
}

/// Appends a request without extended headers, so that its length must fit 32 bits. The payload of
/// a write must follow.
pub fn put_request(out: &mut Vec<u8>, cookie: Cookie, op: Op) {
    put_request_in(Framing::Simple, out, cookie, op);
}

/// Appends a request as the framing has it. The payload of a write must follow.
pub fn put_request_in(framing: Framing, out: &mut Vec<u8>, cookie: Cookie, op: Op) {
    put_header(framing, out, header_of(cookie, op));
}

fn put_header(framing: Framing, out: &mut Vec<u8>, mut header: RequestHeader) {
    if framing == Framing::Extended && header.command == command::WRITE {
        header.flags |= command_flag::PAYLOAD_LEN;
    }
    header.put(framing, out);
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
    put_header(framing, out, header);
}
