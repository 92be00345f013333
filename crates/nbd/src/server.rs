//! The server's side: a handshake that ends in a [`Session`], and the session's requests and
//! replies.

mod session;

use crate::error::{ProtocolError, fail};
use crate::export::Export;
use crate::meta::{self, Queries};
use crate::validate::Terms;
use crate::wire::{self, Framing, OptionReply, Reader, info, option, reply};

pub use session::{Incoming, ReplyTo, Session};

/// A step of the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// More bytes are needed.
    Incomplete,
    /// A message of this many bytes was taken off the front; there may be more.
    Taken(usize),
    /// As [`Step::Taken`], and what follows is transmission.
    Transmission {
        /// Bytes of the input that were used.
        taken: usize,
        /// Index of the chosen export.
        export: usize,
        /// Session on the terms that the handshake agreed on.
        session: Session,
    },
    /// The client ended the session; close after sending what is to be sent.
    Closed,
}

/// The most options of one handshake: a client may ask about each of hundreds of exports.
pub const MAX_OPTIONS: u32 = 4096;

/// Whether a handshake goes over to TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Security {
    /// There is no TLS here.
    #[default]
    Plain,
    /// A client may go over to TLS.
    Optional,
    /// A client must go over to TLS before anything else.
    Required,
    /// The client was told to begin TLS: what it sends now is no option.
    Starting,
    /// All bytes are inside of TLS.
    Secured,
}

/// The server's handshake: fixed newstyle.
#[derive(Clone, Debug, Default)]
pub struct Handshake {
    security: Security,
    greeted: bool,
    no_zeroes: bool,
    framing: Framing,
    /// The export for which `base:allocation` was chosen.
    allocation: Option<usize>,
    options: u32,
    /// Bytes of a refused option's data that are still to be thrown away.
    discard: usize,
}

impl Handshake {
    /// Starts a handshake and appends the greeting to `out`.
    pub fn start(out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(&wire::GREETING_MAGIC.to_be_bytes());
        out.extend_from_slice(&wire::OPTION_MAGIC.to_be_bytes());
        let flags = wire::FLAG_FIXED_NEWSTYLE | wire::FLAG_NO_ZEROES;
        out.extend_from_slice(&flags.to_be_bytes());
        Self::default()
    }

    /// As [`Handshake::start`], on a listener that has TLS.
    pub fn start_with(security: Security, out: &mut Vec<u8>) -> Self {
        Self { security, ..Self::start(out) }
    }

    /// Whether the client was told to begin TLS. It was told to wait for that, so bytes which it
    /// sent before were put there by somebody else, or by a broken client: the connection must be
    /// closed if there are any.
    #[must_use]
    pub fn starts_tls(&self) -> bool {
        self.security == Security::Starting
    }

    /// Goes on inside of TLS.
    pub fn secured(&mut self) {
        self.security = Security::Secured;
    }

    /// Takes at most one message off the front of `input` and appends the answer to `out`.
    ///
    /// One at a time, so that a caller who sends `out` before it goes on bounds its length.
    ///
    /// # Errors
    /// When the client broke the protocol.
    pub fn advance(
        &mut self,
        input: &[u8],
        exports: &[Export],
        out: &mut Vec<u8>,
    ) -> Result<Step, ProtocolError> {
        match (self.greeted, self.starts_tls()) {
            (false, _) => self.client_flags(input),
            (true, false) if self.discard > 0 => {
                let n = self.discard.min(input.len());
                self.discard -= n;
                Ok(if n == 0 { Step::Incomplete } else { Step::Taken(n) })
            }
            (true, false) => self.option(input, exports, out),
            (true, true) => Ok(Step::Incomplete),
        }
    }

    /// Answers STARTTLS. Nothing that was agreed on before it holds after it: anybody on the way
    /// could have said it.
    fn start_tls(&mut self, data: &[u8], answer: &mut impl FnMut(u32, &[u8])) {
        match self.security {
            Security::Plain => answer(reply::ERR_UNSUP, b"this listener has no TLS"),
            _ if !data.is_empty() => answer(reply::ERR_INVALID, b"this option takes no data"),
            Security::Starting | Security::Secured => {
                answer(reply::ERR_INVALID, b"TLS is in use already");
            }
            Security::Optional | Security::Required => {
                answer(reply::ACK, b"");
                let Self { greeted, no_zeroes, options, .. } = *self;
                let security = Security::Starting;
                *self = Self { security, greeted, no_zeroes, options, ..Self::default() };
            }
        }
    }

    fn client_flags(&mut self, input: &[u8]) -> Result<Step, ProtocolError> {
        if input.len() < wire::CLIENT_FLAGS_LEN {
            return Ok(Step::Incomplete);
        }
        let flags = Reader(input).u32();
        // A client that does not set FIXED_NEWSTYLE only sends EXPORT_NAME; no need to insist.
        if flags & !u32::from(wire::FLAG_FIXED_NEWSTYLE | wire::FLAG_NO_ZEROES) != 0 {
            // The spec demands to disconnect.
            return fail(format!("the client set unknown handshake flags {flags:#x}"));
        }
        self.no_zeroes = flags & u32::from(wire::FLAG_NO_ZEROES) != 0;
        self.greeted = true;
        Ok(Step::Taken(wire::CLIENT_FLAGS_LEN))
    }

    fn option(
        &mut self,
        input: &[u8],
        exports: &[Export],
        out: &mut Vec<u8>,
    ) -> Result<Step, ProtocolError> {
        let mut reader = Reader(input);
        let Some((option, len)) = option_header(&mut reader)? else {
            return Ok(Step::Incomplete);
        };
        if len as usize > wire::MAX_OPTION_DATA {
            return self.refuse_too_long(option, len, out);
        }
        let Some(data) = reader.take(len as usize) else { return Ok(Step::Incomplete) };
        let taken = wire::OPTION_HEADER_LEN + data.len();
        self.count_option()?;
        if option == option::EXPORT_NAME {
            return self.export_name(data, exports, taken, out);
        }
        let mut answer = |kind, text: &[u8]| {
            wire::put_option_reply(out, option, OptionReply(kind), text);
        };
        match option {
            option::STARTTLS => self.start_tls(data, &mut answer),
            other if self.security == Security::Required && other != option::ABORT => {
                answer(reply::ERR_TLS_REQD, b"STARTTLS first");
            }
            option::ABORT => {
                answer(reply::ACK, b"");
                return Ok(Step::Closed);
            }
            option::LIST if data.is_empty() => list(exports, &mut answer),
            option::STRUCTURED_REPLY if data.is_empty() => {
                if self.framing == Framing::Extended {
                    answer(reply::ERR_EXT_HEADER_REQD, b"extended headers were agreed on");
                } else {
                    self.framing = Framing::Structured;
                    answer(reply::ACK, b"");
                }
            }
            option::EXTENDED_HEADERS if data.is_empty() => {
                self.framing = Framing::Extended;
                answer(reply::ACK, b"");
            }
            option::LIST | option::STRUCTURED_REPLY | option::EXTENDED_HEADERS => {
                answer(reply::ERR_INVALID, b"this option takes no data");
            }
            option::INFO | option::GO => {
                let described = self.info(data, exports, &mut answer);
                if let (option::GO, Some(export)) = (option, described) {
                    return Ok(self.transmission(taken, export));
                }
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.meta_context(option, data, exports, &mut answer);
            }
            _ => answer(reply::ERR_UNSUP, b"option not supported by this server"),
        }
        Ok(Step::Taken(taken))
    }

    fn count_option(&mut self) -> Result<(), ProtocolError> {
        self.options += 1;
        // A client that goes on asking would keep its place for ever.
        if self.options > MAX_OPTIONS {
            return fail(format!("the client sent more than {MAX_OPTIONS} options"));
        }
        Ok(())
    }

    /// Refuses an option with more data than is kept, and discards the data.
    fn refuse_too_long(
        &mut self,
        option: u32,
        len: u32,
        out: &mut Vec<u8>,
    ) -> Result<Step, ProtocolError> {
        if option == option::EXPORT_NAME || len as usize > wire::MAX_REFUSED_OPTION_DATA {
            let (name, max) = (option::name(option), wire::MAX_OPTION_DATA);
            let why = format!("{name} announces {len} bytes of data, at most {max} are accepted");
            return fail(why);
        }
        self.count_option()?;
        // A choice that failed leaves none.
        self.allocation = self.allocation.filter(|_| option != option::SET_META_CONTEXT);
        self.discard = len as usize;
        let (kind, text) = if self.security == Security::Required {
            (reply::ERR_TLS_REQD, &b"STARTTLS first"[..])
        } else {
            (reply::ERR_TOO_BIG, &b"the data of this option is too long for this server"[..])
        };
        wire::put_option_reply(out, option, OptionReply(kind), text);
        Ok(Step::Taken(wire::OPTION_HEADER_LEN))
    }

    /// Answers EXPORT_NAME, which has no way to refuse.
    fn export_name(
        &self,
        name: &[u8],
        exports: &[Export],
        taken: usize,
        out: &mut Vec<u8>,
    ) -> Result<Step, ProtocolError> {
        if self.security == Security::Required {
            return fail("the client asked for an export without TLS, which is required here");
        }
        if self.framing == Framing::Extended {
            // The spec forbids it: the answer cannot say what extended headers allow.
            return fail(
                "the client asked for extended headers and then by EXPORT_NAME, which excludes them",
            );
        }
        let Some(export) = find(exports, name) else {
            let name = String::from_utf8_lossy(name);
            return fail(format!("the client asked for export {name:?}, which does not exist"));
        };
        let chosen = &exports[export];
        out.extend_from_slice(&chosen.geometry.size.to_be_bytes());
        out.extend_from_slice(&chosen.flags(self.framing).0.to_be_bytes());
        if !self.no_zeroes {
            out.extend_from_slice(&[0; wire::EXPORT_NAME_ZEROES]);
        }
        Ok(self.transmission(taken, export))
    }

    /// Answers INFO or GO. The export, if it was described.
    fn info(
        &self,
        data: &[u8],
        exports: &[Export],
        answer: &mut impl FnMut(u32, &[u8]),
    ) -> Option<usize> {
        let Some(request) = InfoRequest::parse(data) else {
            answer(reply::ERR_INVALID, b"malformed export name or information list");
            return None;
        };
        let Some(export) = find(exports, request.name) else {
            answer(reply::ERR_UNKNOWN, b"no such export");
            return None;
        };
        self.describe(&exports[export], &request, answer);
        answer(reply::ACK, b"");
        Some(export)
    }

    fn transmission(&self, taken: usize, export: usize) -> Step {
        let allocation = self.framing.has_chunks() && self.allocation == Some(export);
        let session = Session(Terms { framing: self.framing, allocation });
        Step::Transmission { taken, export, session }
    }

    fn meta_context(
        &mut self,
        option: u32,
        data: &[u8],
        exports: &[Export],
        answer: &mut impl FnMut(u32, &[u8]),
    ) {
        let set = option == option::SET_META_CONTEXT;
        if set {
            // What was chosen before does not hold any more, even if this option fails.
            self.allocation = None;
        }
        if !self.framing.has_chunks() {
            let why = b"structured replies or extended headers must be agreed on first";
            return answer(reply::ERR_INVALID, why);
        }
        let Some(queries) = Queries::parse(data) else {
            return answer(reply::ERR_INVALID, b"malformed export name or list of queries");
        };
        let Some(export) = find(exports, queries.name) else {
            return answer(reply::ERR_UNKNOWN, b"no such export");
        };
        let (found, id) = if set {
            (queries.chooses_allocation(), meta::ALLOCATION_ID)
        } else {
            (queries.lists_allocation(), 0)
        };
        if found {
            let name = meta::ALLOCATION.as_bytes();
            answer(reply::META_CONTEXT, &[&id.to_be_bytes(), name].concat());
            if set {
                self.allocation = Some(export);
            }
        }
        answer(reply::ACK, b"");
    }

    fn describe(
        &self,
        export: &Export,
        request: &InfoRequest<'_>,
        answer: &mut impl FnMut(u32, &[u8]),
    ) {
        let mut send = |kind: u16, parts: &[&[u8]]| {
            let mut data = kind.to_be_bytes().to_vec();
            parts.iter().for_each(|part| data.extend_from_slice(part));
            answer(reply::INFO, &data);
        };
        let flags = export.flags(self.framing);
        send(info::EXPORT, &[&export.geometry.size.to_be_bytes(), &flags.0.to_be_bytes()]);
        // Sent unasked as well: a client that knows the sizes will not send what is refused.
        let blocks = export.geometry.blocks;
        let sizes = [blocks.min(), blocks.preferred(), blocks.max()].map(u32::to_be_bytes);
        send(info::BLOCK_SIZE, &[&sizes.concat()]);
        if request.asks(info::NAME) {
            send(info::NAME, &[export.name.as_str().as_bytes()]);
        }
        if request.asks(info::DESCRIPTION) && !export.description.is_empty() {
            send(info::DESCRIPTION, &[export.description.as_bytes()]);
        }
    }
}

/// Number and data length of an option. `None` if its header is incomplete.
fn option_header(reader: &mut Reader<'_>) -> Result<Option<(u32, u32)>, ProtocolError> {
    let Some(header) = reader.take(wire::OPTION_HEADER_LEN) else { return Ok(None) };
    let mut header = Reader(header);
    let magic = header.u64();
    if magic != wire::OPTION_MAGIC {
        let why = format!("an option begins with {magic:#018x} in place of the magic IHAVEOPT");
        return fail(why);
    }
    Ok(Some((header.u32(), header.u32())))
}

/// Answers LIST.
fn list(exports: &[Export], answer: &mut impl FnMut(u32, &[u8])) {
    for export in exports {
        let name = export.name.as_str().as_bytes();
        let mut entry = (name.len() as u32).to_be_bytes().to_vec();
        entry.extend_from_slice(name);
        entry.extend_from_slice(export.description.as_bytes());
        answer(reply::SERVER, &entry);
    }
    answer(reply::ACK, b"");
}

/// The export of that name. The empty name means the only export, if there is just one.
fn find(exports: &[Export], name: &[u8]) -> Option<usize> {
    let named = exports.iter().position(|e| e.name.as_str().as_bytes() == name);
    named.or_else(|| (name.is_empty() && exports.len() == 1).then_some(0))
}

/// The data of INFO and GO.
struct InfoRequest<'a> {
    name: &'a [u8],
    kinds: &'a [u8],
}

impl<'a> InfoRequest<'a> {
    fn parse(data: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(data);
        let name_len = Reader(reader.take(4)?).u32();
        let name = reader.take(name_len as usize)?;
        let count = Reader(reader.take(2)?).u16();
        let kinds = reader.take(2 * usize::from(count))?;
        reader.0.is_empty().then_some(Self { name, kinds })
    }

    fn asks(&self, kind: u16) -> bool {
        self.kinds.chunks_exact(2).any(|k| k == kind.to_be_bytes())
    }
}
