//! Magics, constants and byte layouts of NBD. Every number on the wire is big-endian (spec,
//! "Conventions"); no other file of this crate knows a number of the protocol.

use parda_disk::{Errno, Extent};

/// First magic of a server's greeting (`NBDMAGIC`).
pub const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second magic of a newstyle greeting, and the magic of every option (`IHAVEOPT`).
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Second magic of an oldstyle greeting, which the client refuses.
pub const OLDSTYLE_MAGIC: u64 = 0x0000_4202_8186_1253;
/// Magic of an option reply.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Magic of a request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Magic of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Magic of a structured reply chunk.
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;
/// Magic of a request with an extended header.
pub const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// Magic of a reply chunk with an extended header.
pub const EXTENDED_CHUNK_MAGIC: u32 = 0x6e8a_278c;

/// Bytes of the server's greeting.
pub const GREETING_LEN: usize = 18;
/// Bytes of the client's flags.
pub const CLIENT_FLAGS_LEN: usize = 4;
/// Bytes before an option's data.
pub const OPTION_HEADER_LEN: usize = 16;
/// Bytes before an option reply's data.
pub const OPTION_REPLY_HEADER_LEN: usize = 20;
/// Bytes of the answer to `NBD_OPT_EXPORT_NAME`, without the reserved zeroes.
pub const EXPORT_NAME_REPLY_LEN: usize = 10;
/// Reserved zeroes after that answer, unless both sides agreed to leave them out.
pub const EXPORT_NAME_ZEROES: usize = 124;
/// Bytes of a request, without a write's payload.
pub const REQUEST_LEN: usize = 28;
/// Bytes of a simple reply, without a read's payload.
pub const SIMPLE_REPLY_LEN: usize = 16;
/// Bytes before a structured reply chunk's payload.
pub const CHUNK_HEADER_LEN: usize = 20;
/// Bytes of an extended header, of requests and of reply chunks, without the payload.
pub const EXTENDED_HEADER_LEN: usize = 32;

/// Longest string the spec allows, in bytes.
pub const MAX_STRING: usize = 4096;
/// Longest option data we accept, in bytes: a name and a generous list of requests or queries. With
/// its header an option has 8 KiB.
pub const MAX_OPTION_DATA: usize = 2 * MAX_STRING - OPTION_HEADER_LEN;
/// Longest option data that is thrown away and refused, in bytes. A longer one ends the connection.
pub const MAX_REFUSED_OPTION_DATA: usize = 1 << 20;
/// Longest option reply data we accept, in bytes: a name and a description.
pub const MAX_OPTION_REPLY_DATA: usize = 2 * MAX_STRING + 64;
/// Largest payload in one request that every peer must expect when block sizes were not
/// negotiated, in bytes (spec, "Block size constraints").
pub const DEFAULT_MAX_PAYLOAD: u32 = 32 << 20;

// What any disk takes and any name has, without more agreed on, is what the spec says of NBD.
const _: () = assert!(DEFAULT_MAX_PAYLOAD == parda_disk::MAX_PAYLOAD);
const _: () = assert!(MAX_STRING == parda_address::ExportName::MAX_LEN);

/// Handshake flag of the server and, with the same value, of the client: fixed newstyle.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1 << 0;
/// Handshake flag, both sides: leave out the reserved zeroes after `NBD_OPT_EXPORT_NAME`.
pub const FLAG_NO_ZEROES: u16 = 1 << 1;

/// Numbers of the protocol, each with its name in the protocol's description.
macro_rules! numbers {
    ($prefix:literal, $unknown:literal; $($(#[$doc:meta])* $name:ident = $value:expr;)*) => {
        $($(#[$doc])* pub const $name: u32 = $value;)*

        /// Name in the protocol's description; without one, the number. For messages.
        pub(crate) fn name(number: u32) -> String {
            match number {
                $($name => concat!($prefix, stringify!($name)).to_owned(),)*
                unknown => format!($unknown, unknown),
            }
        }
    };
}

/// Options a client may send in the handshake.
pub mod option {
    numbers! { "NBD_OPT_", "option {}";
        /// Choose an export and start transmission; cannot report an error.
        EXPORT_NAME = 1;
        /// The client ends the session.
        ABORT = 2;
        /// The client asks for the names of all exports.
        LIST = 3;
        /// Go over to TLS.
        STARTTLS = 5;
        /// The client asks for the description of an export.
        INFO = 6;
        /// Describe an export and start transmission.
        GO = 7;
        /// The client asks for structured replies.
        STRUCTURED_REPLY = 8;
        /// List the metadata contexts of an export.
        LIST_META_CONTEXT = 9;
        /// Choose the metadata contexts that BLOCK_STATUS tells of.
        SET_META_CONTEXT = 10;
        /// Use extended headers, which have 64-bit lengths.
        EXTENDED_HEADERS = 11;
    }
}

/// Types of option replies.
pub mod reply {
    /// Set in every error reply.
    pub const ERROR_BIT: u32 = 1 << 31;

    numbers! { "NBD_REP_", "reply {:#x}";
        /// The option was accepted; last reply.
        ACK = 1;
        /// One export of a list.
        SERVER = 2;
        /// One piece of information about an export.
        INFO = 3;
        /// One metadata context: its number and its name.
        META_CONTEXT = 4;
        /// The option is not known.
        ERR_UNSUP = ERROR_BIT | 1;
        /// The server does not want to, for a reason of its own.
        ERR_POLICY = ERROR_BIT | 2;
        /// The option is malformed.
        ERR_INVALID = ERROR_BIT | 3;
        /// The server insists on TLS.
        ERR_TLS_REQD = ERROR_BIT | 5;
        /// There is no such export.
        ERR_UNKNOWN = ERROR_BIT | 6;
        /// The request or its reply is too large.
        ERR_TOO_BIG = ERROR_BIT | 9;
        /// Extended headers are needed for this, or were agreed on and cannot be given up again.
        ERR_EXT_HEADER_REQD = ERROR_BIT | 10;
    }
}

/// Types of information about an export.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// The export's canonical name.
    pub const NAME: u16 = 1;
    /// A description of the export for people.
    pub const DESCRIPTION: u16 = 2;
    /// Minimum, preferred and maximum block size.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Commands of a request.
pub mod command {
    /// Reads a range of the export.
    pub const READ: u16 = 0;
    /// Write; the payload follows the request.
    pub const WRITE: u16 = 1;
    /// End the session; has no reply.
    pub const DISC: u16 = 2;
    /// Make all acknowledged writes durable.
    pub const FLUSH: u16 = 3;
    /// Give up the contents of a range.
    pub const TRIM: u16 = 4;
    /// Fetch a range into the server's cache.
    pub const CACHE: u16 = 5;
    /// Makes a range read as zeroes.
    pub const WRITE_ZEROES: u16 = 6;
    /// Tell which parts of a range are holes or read as zeroes.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of a request.
pub mod command_flag {
    /// Reply only when the written data is durable.
    pub const FUA: u16 = 1 << 0;
    /// Write zeroes without making a hole.
    pub const NO_HOLE: u16 = 1 << 1;
    /// Answer a read in one chunk.
    pub const DF: u16 = 1 << 2;
    /// Answer BLOCK_STATUS with one extent.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Fail with ENOTSUP if zeroes would take as long as writing them.
    pub const FAST_ZERO: u16 = 1 << 4;
    /// The length is that of a payload that follows; only with extended headers.
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Types and flags of structured reply chunks.
pub mod chunk {
    /// Flag: the last chunk of its reply.
    pub const FLAG_DONE: u16 = 1 << 0;
    /// A chunk without payload, which ends a reply.
    pub const NONE: u16 = 0;
    /// An offset, and the data from there on.
    pub const OFFSET_DATA: u16 = 1;
    /// Offset and length of a range that reads as zeroes.
    pub const OFFSET_HOLE: u16 = 2;
    /// A metadata context and extents.
    pub const BLOCK_STATUS: u16 = 5;
    /// A metadata context and extents with 64-bit lengths; only with extended headers.
    pub const BLOCK_STATUS_EXT: u16 = 6;
    /// Set in the type of every error chunk.
    pub const ERROR_BIT: u16 = 1 << 15;
    /// An error code and a message.
    pub const ERROR: u16 = ERROR_BIT | 1;
    /// Error, message, and the offset where it happened.
    pub const ERROR_OFFSET: u16 = ERROR_BIT | 2;
}

/// Flags of an export that a server sends when transmission starts (spec, "Transmission flags").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransmissionFlags(pub u16);

impl TransmissionFlags {
    /// The field is meaningful; always set.
    pub const HAS_FLAGS: Self = Self(1 << 0);
    /// The export refuses writes.
    pub const READ_ONLY: Self = Self(1 << 1);
    /// The export supports FLUSH requests.
    pub const SEND_FLUSH: Self = Self(1 << 2);
    /// The FUA flag is supported.
    pub const SEND_FUA: Self = Self(1 << 3);
    /// The export supports TRIM requests.
    pub const SEND_TRIM: Self = Self(1 << 5);
    /// The export supports WRITE_ZEROES requests.
    pub const SEND_WRITE_ZEROES: Self = Self(1 << 6);
    /// The DF flag is supported; only with structured replies.
    pub const SEND_DF: Self = Self(1 << 7);
    /// A flush on one connection covers what was acknowledged on all of them.
    pub const CAN_MULTI_CONN: Self = Self(1 << 8);
    /// The export supports CACHE requests.
    pub const SEND_CACHE: Self = Self(1 << 10);
    /// The FAST_ZERO flag is supported.
    pub const SEND_FAST_ZERO: Self = Self(1 << 11);

    /// Whether all bits of `other` are set.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These flags, and those of `other` if `on`.
    #[must_use]
    pub fn with(self, other: Self, on: bool) -> Self {
        if on { Self(self.0 | other.0) } else { self }
    }
}

/// The error of a number that a server sent (spec, "Error values"). One that the spec does not
/// list counts as EINVAL, as it says.
#[must_use]
pub fn errno(code: u32) -> Errno {
    Errno::of_code(code).unwrap_or(Errno::Inval)
}

/// A client's name for a request in flight; the reply carries it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cookie(pub u64);

/// A request as it came off the wire, unjudged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// Command flags, see [`command_flag`].
    pub flags: u16,
    /// Number of the command, one of [`command`].
    pub command: u16,
    /// The client's name for it.
    pub cookie: Cookie,
    /// Range of the request.
    pub extent: Extent,
}

impl RequestHeader {
    /// Reads the request at the front of `input`, or `None` if it is not complete yet; `Err` holds
    /// the magic found in place of [`Framing::request_magic`].
    pub fn decode(framing: Framing, input: &[u8]) -> Result<Option<Self>, u32> {
        let Some(header) = input.get(..framing.request_len()) else { return Ok(None) };
        let mut r = Reader(header);
        let magic = r.u32();
        if magic != framing.request_magic() {
            return Err(magic);
        }
        let (flags, command, cookie, offset) = (r.u16(), r.u16(), Cookie(r.u64()), r.u64());
        let len = if framing == Framing::Extended { r.u64() } else { r.u32().into() };
        Ok(Some(Self { flags, command, cookie, extent: Extent { offset, len } }))
    }

    /// Appends this request, whose length must fit 32 bits without extended headers.
    pub fn put(&self, framing: Framing, out: &mut Vec<u8>) {
        let Self { flags, command, cookie, extent: Extent { offset, len } } = *self;
        let words = [flags, command];
        let offset = &offset.to_be_bytes();
        if framing == Framing::Extended {
            let rest = [&offset[..], &len.to_be_bytes()];
            put_message(out, EXTENDED_REQUEST_MAGIC, words, cookie, rest);
        } else {
            debug_assert!(u32::try_from(len).is_ok(), "{self:?}");
            let rest = [&offset[..], &(len as u32).to_be_bytes()];
            put_message(out, REQUEST_MAGIC, words, cookie, rest);
        }
    }
}

/// Appends a request or a chunk's header: all of them begin alike.
fn put_message(
    out: &mut Vec<u8>,
    magic: u32,
    words: [u16; 2],
    cookie: Cookie,
    [first, second]: [&[u8]; 2],
) {
    let mut b = [0; EXTENDED_HEADER_LEN];
    b[0..4].copy_from_slice(&magic.to_be_bytes());
    b[4..6].copy_from_slice(&words[0].to_be_bytes());
    b[6..8].copy_from_slice(&words[1].to_be_bytes());
    b[8..16].copy_from_slice(&cookie.0.to_be_bytes());
    let middle = 16 + first.len();
    let end = middle + second.len();
    b[16..middle].copy_from_slice(first);
    b[middle..end].copy_from_slice(second);
    out.extend_from_slice(&b[..end]);
}

/// Layout of requests and replies, as the handshake agreed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Framing {
    /// One header for each reply, data behind it.
    #[default]
    Simple,
    /// Replies in chunks, and simple ones where there is no data.
    Structured,
    /// Headers of 32 bytes with 64-bit lengths; all replies in chunks.
    Extended,
}

impl Framing {
    /// Whether replies with data come in chunks.
    #[must_use]
    pub fn has_chunks(self) -> bool {
        self >= Self::Structured
    }

    /// Bytes of a request, without a write's payload.
    #[must_use]
    pub fn request_len(self) -> usize {
        match self {
            Self::Simple | Self::Structured => REQUEST_LEN,
            Self::Extended => EXTENDED_HEADER_LEN,
        }
    }

    /// How a request begins.
    #[must_use]
    pub fn request_magic(self) -> u32 {
        match self {
            Self::Simple | Self::Structured => REQUEST_MAGIC,
            Self::Extended => EXTENDED_REQUEST_MAGIC,
        }
    }
}

/// Appends an option's header and data.
pub fn put_option(out: &mut Vec<u8>, option: u32, data: &[u8]) {
    out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&(data.len() as u32).to_be_bytes());
    out.extend_from_slice(data);
}

/// Appends an option reply's header and data. `kind` is one of [`reply`].
pub fn put_option_reply(out: &mut Vec<u8>, option: u32, kind: OptionReply, data: &[u8]) {
    out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&kind.0.to_be_bytes());
    out.extend_from_slice(&(data.len() as u32).to_be_bytes());
    out.extend_from_slice(data);
}

/// The type of an option reply, one of [`reply`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionReply(pub u32);

/// Appends a simple reply; `error` is `None` for success.
pub fn put_simple_reply(out: &mut Vec<u8>, cookie: Cookie, error: Option<Errno>) {
    let mut b = [0; SIMPLE_REPLY_LEN];
    b[0..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    b[4..8].copy_from_slice(&error.map_or(0, Errno::code).to_be_bytes());
    b[8..16].copy_from_slice(&cookie.0.to_be_bytes());
    out.extend_from_slice(&b);
}

/// The header of a structured reply chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// Flags of the chunk, such as [`chunk::FLAG_DONE`].
    pub flags: u16,
    /// Type of the chunk, one of [`chunk`].
    pub kind: u16,
    /// The request it answers.
    pub cookie: Cookie,
    /// Bytes of payload after the header.
    pub len: u32,
}

/// Appends a chunk's header: an extended one if there is an `offset`, which is that of the request.
pub fn put_chunk_header(out: &mut Vec<u8>, header: ChunkHeader, offset: Option<u64>) {
    let ChunkHeader { flags, kind, cookie, len } = header;
    let words = [flags, kind];
    if let Some(offset) = offset {
        let rest = [&offset.to_be_bytes()[..], &u64::from(len).to_be_bytes()];
        put_message(out, EXTENDED_CHUNK_MAGIC, words, cookie, rest);
    } else {
        put_message(out, CHUNK_MAGIC, words, cookie, [&len.to_be_bytes(), &[]]);
    }
}

/// Reads big-endian numbers off a slice whose length was checked before.
///
/// Past the end it reads zeroes rather than panic; [`Reader::take`] says so instead.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(n)?;
        self.0 = tail;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        self.take(N).and_then(|b| b.try_into().ok()).unwrap_or([0; N])
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.array())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.array())
    }
}
