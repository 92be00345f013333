//! Replies, as the client reads them.

use parda_disk::status::{Descriptor, ExtentStatus, MAX_EXTENTS};
use parda_disk::{Errno, Extent};

use crate::wire::{self, Cookie, Framing, Reader, chunk};

/// Kind of reply that a request in flight expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Data of this range.
    Data(Extent),
    /// Block status of this range, in the context of this number.
    Status {
        /// The range that was asked for.
        extent: Extent,
        /// The number, see `Agreed::allocation`.
        context: u32,
    },
    /// Success or failure only.
    Outcome,
}

impl Expected {
    /// The offset of the request, where it is known.
    fn offset(self) -> Option<u64> {
        match self {
            Self::Data(extent) | Self::Status { extent, .. } => Some(extent.offset),
            Self::Outcome => None,
        }
    }

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

/// The longest chunk of extents that is taken, in bytes: more than servers are known to send. Twice
/// that with extended headers.
const MAX_STATUS_CHUNK: u32 = 16 << 20;

/// A reply, or one piece of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Nothing more for this request; it succeeded unless a piece before said otherwise.
    Done,
    /// As many bytes of data as `extent` has follow the head.
    Data {
        /// Place of the data, within the range asked for.
        extent: Extent,
        /// Whether this is the last piece of the reply.
        last: bool,
    },
    /// A range that reads as zeroes.
    Hole {
        /// Where, within the range asked for.
        extent: Extent,
        /// Whether this is the last piece of the reply.
        last: bool,
    },
    /// What is known of the range asked for, from its beginning on. The last extent may reach
    /// beyond the range.
    Status {
        /// At least one and at most [`MAX_EXTENTS`], none of them empty.
        extents: Vec<Descriptor>,
        /// Bytes of further extents that follow the head, to be thrown away.
        discard: u32,
        /// Whether this is the last piece of the reply.
        last: bool,
    },
    /// The server could not do what the request asked for.
    Error {
        /// Error code of the server.
        errno: Errno,
        /// Message of the server; may be empty.
        message: String,
        /// Offset in the export, if the server reports one within the range asked for.
        at: Option<u64>,
        /// Whether this is the last piece of the reply.
        last: bool,
    },
}

/// A reply's head at the front of the received bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyHead {
    /// Bytes of the head, after which a [`Reply::Data`]'s data begins.
    pub taken: usize,
    /// The request it answers.
    pub cookie: Cookie,
    /// The reply, or the piece of it.
    pub reply: Reply,
}

/// Reason why transmission cannot go on. The connection is to be closed.
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
        /// Type of the chunk, as received.
        kind: u16,
        /// Length of its payload, as received.
        len: u64,
    },
    /// An extended header with the offset of another request.
    #[error("a reply names offset {got} where the request had {asked}")]
    WrongOffset {
        /// Offset of the request.
        asked: u64,
        /// Offset in the reply.
        got: u64,
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
/// it, and nothing twice, is for [`ReplyParts`](crate::answer::ReplyParts) to find.
///
/// # Errors
/// When the server broke the protocol; the stream cannot be followed any more.
pub fn reply(
    input: &[u8],
    framing: Framing,
    expected: impl FnOnce(Cookie) -> Option<Expected>,
) -> Result<Option<ReplyHead>, ReplyError> {
    let mut reader = Reader(input);
    let Some(magic) = reader.take(4).map(|b| Reader(b).u32()) else { return Ok(None) };
    match (magic, framing) {
        (wire::SIMPLE_REPLY_MAGIC, Framing::Simple | Framing::Structured) => {
            simple(reader, framing.has_chunks(), expected)
        }
        (wire::CHUNK_MAGIC, Framing::Structured)
        | (wire::EXTENDED_CHUNK_MAGIC, Framing::Extended) => {
            in_chunks(reader, framing == Framing::Extended, expected)
        }
        (wire::SIMPLE_REPLY_MAGIC | wire::CHUNK_MAGIC | wire::EXTENDED_CHUNK_MAGIC, _) => {
            Err(ReplyError::WrongKind)
        }
        (other, _) => Err(ReplyError::WrongMagic(other)),
    }
}

fn simple(
    mut reader: Reader<'_>,
    structured: bool,
    expected: impl FnOnce(Cookie) -> Option<Expected>,
) -> Result<Option<ReplyHead>, ReplyError> {
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
            let (errno, message) = (wire::errno(code), String::new());
            Reply::Error { errno, message, at: None, last: true }
        }
    };
    Ok(Some(ReplyHead { taken: wire::SIMPLE_REPLY_LEN, cookie, reply }))
}

fn in_chunks(
    mut reader: Reader<'_>,
    extended: bool,
    expected: impl FnOnce(Cookie) -> Option<Expected>,
) -> Result<Option<ReplyHead>, ReplyError> {
    let header_len = if extended { wire::EXTENDED_HEADER_LEN } else { wire::CHUNK_HEADER_LEN };
    if reader.0.len() < header_len - 4 {
        return Ok(None);
    }
    let (flags, kind, cookie) = (reader.u16(), reader.u16(), Cookie(reader.u64()));
    let (offset, len) =
        if extended { (Some(reader.u64()), reader.u64()) } else { (None, u64::from(reader.u32())) };
    let expected = expected(cookie).ok_or(ReplyError::UnknownCookie(cookie.0))?;
    if let (Some(got), Some(asked)) = (offset, expected.offset())
        && got != asked
    {
        return Err(ReplyError::WrongOffset { asked, got });
    }
    // No payload is longer than 32 bits say, whatever the width of the field.
    let len = u32::try_from(len).map_err(|_| ReplyError::BadChunk { kind, len })?;
    let chunk = Chunk { kind, len, last: flags & chunk::FLAG_DONE != 0, extended, expected };
    let head_len = chunk.head_len()?;
    let Some(payload) = reader.take(head_len) else { return Ok(None) };
    let reply = chunk.reply(Reader(payload), head_len)?;
    Ok(Some(ReplyHead { taken: header_len + head_len, cookie, reply }))
}

/// Header of a chunk, and what its request expects.
struct Chunk {
    kind: u16,
    /// Length of the payload.
    len: u32,
    last: bool,
    extended: bool,
    expected: Expected,
}

impl Chunk {
    fn bad(&self) -> ReplyError {
        ReplyError::BadChunk { kind: self.kind, len: u64::from(self.len) }
    }

    /// Length of the part of the payload that belongs to the head.
    fn head_len(&self) -> Result<usize, ReplyError> {
        let len = self.len as usize;
        Ok(match (self.kind, self.len) {
            (chunk::NONE, 0) if self.last => 0,
            (chunk::OFFSET_DATA, 9..) => 8,
            (chunk::OFFSET_HOLE, 12) => 12,
            (chunk::BLOCK_STATUS, 12..=MAX_STATUS_CHUNK) if !self.extended && self.len % 8 == 4 => {
                len.min(4 + 8 * MAX_EXTENTS)
            }
            (chunk::BLOCK_STATUS_EXT, 24..)
                if self.extended && self.len % 16 == 8 && self.len <= 2 * MAX_STATUS_CHUNK =>
            {
                len.min(8 + 16 * MAX_EXTENTS)
            }
            (kind, 6..) if kind & chunk::ERROR_BIT != 0 && len <= wire::MAX_STRING + 64 => len,
            _ => return Err(self.bad()),
        })
    }

    /// Reply from the part of the payload that belongs to the head.
    fn reply(&self, mut payload: Reader<'_>, head_len: usize) -> Result<Reply, ReplyError> {
        let last = self.last;
        match self.kind {
            chunk::NONE => Ok(Reply::Done),
            chunk::OFFSET_DATA => {
                let extent = Extent { offset: payload.u64(), len: u64::from(self.len - 8) };
                Ok(Reply::Data { extent: self.within(extent)?, last })
            }
            chunk::OFFSET_HOLE => {
                let extent = Extent { offset: payload.u64(), len: u64::from(payload.u32()) };
                let extent = self.within(extent)?;
                if extent.len == 0 { Err(self.bad()) } else { Ok(Reply::Hole { extent, last }) }
            }
            chunk::BLOCK_STATUS | chunk::BLOCK_STATUS_EXT => {
                let extents = descriptors(payload, self.kind, self.len, self.expected)
                    .ok_or_else(|| self.bad())?;
                Ok(Reply::Status { extents, discard: self.len - head_len as u32, last })
            }
            _ => self.error(payload),
        }
    }

    /// The extent of data or of a hole, if it lies within the request's.
    fn within(&self, extent: Extent) -> Result<Extent, ReplyError> {
        match self.expected {
            Expected::Data(asked)
                if extent.offset >= asked.offset
                    && extent.end().is_some_and(|end| Some(end) <= asked.end()) =>
            {
                Ok(extent)
            }
            Expected::Data(_) => Err(ReplyError::OutsideRequest),
            Expected::Outcome | Expected::Status { .. } => Err(self.bad()),
        }
    }

    fn error(&self, mut payload: Reader<'_>) -> Result<Reply, ReplyError> {
        let (code, message_len) = (payload.u32(), payload.u16());
        let message = payload.take(usize::from(message_len)).ok_or_else(|| self.bad())?;
        let message = String::from_utf8_lossy(message).into_owned();
        // Zero is no error.
        if code == 0 {
            return Err(self.bad());
        }
        let at = (self.kind == chunk::ERROR_OFFSET).then_some(payload).filter(|p| p.0.len() == 8);
        let at = at.map(|mut p| p.u64()).filter(|at| self.expected.holds(*at));
        Ok(Reply::Error { errno: wire::errno(code), message, at, last: self.last })
    }
}

/// The extents of a chunk of `len` bytes, as many of them as are kept; `None` if they are no answer
/// to what was asked.
fn descriptors(
    mut payload: Reader<'_>,
    kind: u16,
    len: u32,
    expected: Expected,
) -> Option<Vec<Descriptor>> {
    let Expected::Status { context, .. } = expected else { return None };
    if payload.u32() != context {
        return None;
    }
    let extents: Vec<_> = if kind == chunk::BLOCK_STATUS_EXT {
        if payload.u32() != (len - 8) / 16 {
            return None;
        }
        let extents = payload.0.chunks_exact(16).map(Reader);
        let extents = extents.map(|mut r| {
            let (len, status) = (r.u64(), u32::try_from(r.u64()).ok()?);
            Some(Descriptor { len, status: ExtentStatus::from_bits(status) })
        });
        extents.collect::<Option<_>>()?
    } else {
        let extents = payload.0.chunks_exact(8).map(Reader);
        let extents = extents.map(|mut r| Descriptor {
            len: u64::from(r.u32()),
            status: ExtentStatus::from_bits(r.u32()),
        });
        extents.collect()
    };
    extents.iter().all(|extent| extent.len > 0).then_some(extents)
}
