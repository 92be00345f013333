//! Transmission, the server's side.

use parda_disk::Op;
use parda_disk::status::Descriptor;
use parda_disk::{Errno, Extent};

use crate::error::{ProtocolError, fail};
use crate::export::Export;
use crate::meta;
use crate::validate::{self, RequestRefusal, Terms};
use crate::wire::{
    self, ChunkHeader, Cookie, Framing, RequestHeader, chunk, command, command_flag,
};

/// Request at the front of the received bytes. Its header takes [`Session::request_len`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A valid request. The payload of a write follows its header.
    Request {
        /// The client's name for it.
        cookie: Cookie,
        /// Operation to perform.
        op: Op,
    },
    /// A request to answer with an error.
    Refused {
        /// Request to which the reply belongs.
        to: ReplyTo,
        /// Reason of the refusal, with its error code.
        refusal: RequestRefusal,
        /// Bytes of payload after the header, to be thrown away.
        discard: u32,
    },
    /// The client is done: answer what is in flight, then close.
    Disconnect,
}

/// Part of a request that its reply carries back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    /// The client's name for it.
    pub cookie: Cookie,
    /// The request's offset, which extended headers repeat.
    pub offset: u64,
}

impl ReplyTo {
    /// A reply to this request.
    #[must_use]
    pub fn new(cookie: Cookie, op: Op) -> Self {
        Self { cookie, offset: op.extent().offset }
    }
}

/// Transmission as agreed in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session(pub(super) Terms);

impl Session {
    /// Layout of requests and replies.
    #[must_use]
    pub fn framing(self) -> Framing {
        self.0.framing
    }

    /// Bytes of a request's header.
    #[must_use]
    pub fn request_len(self) -> usize {
        self.0.framing.request_len()
    }

    /// Reads the request at the front of `input`, or `None` if it is not complete yet.
    ///
    /// # Errors
    /// When the stream cannot be followed any more.
    pub fn request(self, input: &[u8], export: &Export) -> Result<Option<Incoming>, ProtocolError> {
        let framing = self.0.framing;
        let header = match RequestHeader::decode(framing, input) {
            Ok(Some(header)) => header,
            Ok(None) => return Ok(None),
            Err(got) => {
                let (why, magic) = ("in place of the magic", framing.request_magic());
                return fail(format!("a request begins with {got:#010x} {why} {magic:#010x}"));
            }
        };
        let extended = framing == Framing::Extended;
        if header.command == command::DISC {
            return Ok(Some(Incoming::Disconnect));
        }
        if extended {
            check_payload(&header, export)?;
        }
        let cookie = header.cookie;
        Ok(Some(match validate::check(&header, &export.geometry, self.0) {
            Ok(op) => Incoming::Request { cookie, op },
            Err(refusal) => {
                let has_payload = has_payload(&header, extended);
                // With extended headers a longer one has ended the connection.
                let discard = if has_payload { header.extent.len as u32 } else { 0 };
                let to = ReplyTo { cookie, offset: header.extent.offset };
                Incoming::Refused { to, refusal, discard }
            }
        }))
    }

    fn put_chunk(self, out: &mut Vec<u8>, to: ReplyTo, kind: u16, len: u32) {
        // All that there is to say is at hand, so nothing can fail after a chunk: it is the last.
        let header = ChunkHeader { flags: chunk::FLAG_DONE, kind, cookie: to.cookie, len };
        let extended = self.0.framing == Framing::Extended;
        wire::put_chunk_header(out, header, extended.then_some(to.offset));
    }

    /// Appends the reply to a request that succeeded, other than a read or BLOCK_STATUS.
    pub fn put_done(self, out: &mut Vec<u8>, to: ReplyTo) {
        if self.0.framing == Framing::Extended {
            self.put_chunk(out, to, chunk::NONE, 0);
        } else {
            wire::put_simple_reply(out, to.cookie, None);
        }
    }

    /// Appends the head of the reply to a read that succeeded; its data must follow.
    pub fn put_read(self, out: &mut Vec<u8>, cookie: Cookie, extent: Extent) {
        if self.0.framing.has_chunks() {
            let to = ReplyTo { cookie, offset: extent.offset };
            // A read is at most the maximum block size, far from overflowing here.
            let len = (extent.len as u32).saturating_add(8);
            self.put_chunk(out, to, chunk::OFFSET_DATA, len);
            out.extend_from_slice(&extent.offset.to_be_bytes());
        } else {
            wire::put_simple_reply(out, cookie, None);
        }
    }

    /// Whether a read that found nothing but zeroes can be answered by [`Session::put_hole`].
    #[must_use]
    pub fn can_put_hole(self) -> bool {
        self.0.framing.has_chunks()
    }

    /// Appends the reply to a read of a range that reads as zeroes. Nothing follows it.
    ///
    /// Only where [`Session::can_put_hole`] says so.
    pub fn put_hole(self, out: &mut Vec<u8>, cookie: Cookie, extent: Extent) {
        let to = ReplyTo { cookie, offset: extent.offset };
        self.put_chunk(out, to, chunk::OFFSET_HOLE, 12);
        out.extend_from_slice(&extent.offset.to_be_bytes());
        out.extend_from_slice(&(extent.len as u32).to_be_bytes());
    }

    /// Appends the reply to a BLOCK_STATUS that succeeded: at least one extent.
    pub fn put_status(self, out: &mut Vec<u8>, to: ReplyTo, extents: &[Descriptor]) {
        let count = extents.len() as u32;
        if self.0.framing == Framing::Extended {
            self.put_chunk(out, to, chunk::BLOCK_STATUS_EXT, 8 + 16 * count);
            out.extend_from_slice(&meta::ALLOCATION_ID.to_be_bytes());
            out.extend_from_slice(&count.to_be_bytes());
            for Descriptor { len, status } in extents {
                out.extend_from_slice(&len.to_be_bytes());
                out.extend_from_slice(&u64::from(status.bits()).to_be_bytes());
            }
        } else {
            self.put_chunk(out, to, chunk::BLOCK_STATUS, 4 + 8 * count);
            out.extend_from_slice(&meta::ALLOCATION_ID.to_be_bytes());
            for Descriptor { len, status } in extents {
                // Together they are at most what was asked for, which had 32 bits.
                out.extend_from_slice(&(*len as u32).to_be_bytes());
                out.extend_from_slice(&status.bits().to_be_bytes());
            }
        }
    }

    /// Appends the reply to a request that failed; `message` is for people and may be cut.
    pub fn put_error(self, out: &mut Vec<u8>, to: ReplyTo, errno: Errno, message: &str) {
        self.put_error_at(out, to, errno, message, None);
    }

    /// As [`Session::put_error`], with the offset within the export where it happened, if known.
    pub fn put_error_at(
        self,
        out: &mut Vec<u8>,
        to: ReplyTo,
        errno: Errno,
        message: &str,
        at: Option<u64>,
    ) {
        if self.0.framing.has_chunks() {
            let message = cut(message);
            let kind = if at.is_some() { chunk::ERROR_OFFSET } else { chunk::ERROR };
            let len = 6 + message.len() as u32 + if at.is_some() { 8 } else { 0 };
            self.put_chunk(out, to, kind, len);
            out.extend_from_slice(&errno.code().to_be_bytes());
            out.extend_from_slice(&(message.len() as u16).to_be_bytes());
            out.extend_from_slice(message.as_bytes());
            at.into_iter().for_each(|at| out.extend_from_slice(&at.to_be_bytes()));
        } else {
            wire::put_simple_reply(out, to.cookie, Some(errno));
        }
    }
}

/// Whether a payload follows a header, of the length that it says.
///
/// With extended headers the spec demands a flag on a write. QEMU 10.0 leaves it out and sends the
/// data all the same, as its server expects; so a write always has its data.
fn has_payload(header: &RequestHeader, extended: bool) -> bool {
    header.command == command::WRITE || (extended && header.flags & command_flag::PAYLOAD_LEN != 0)
}

/// Whether what follows an extended header is not too long to be thrown away.
fn check_payload(header: &RequestHeader, export: &Export) -> Result<(), ProtocolError> {
    let len = header.extent.len;
    // A client may not know yet, or not heed, a maximum that is smaller than the default.
    let max = u64::from(export.geometry.blocks.max().max(wire::DEFAULT_MAX_PAYLOAD));
    if has_payload(header, true) && len > max {
        let why =
            format!("a request announces a payload of {len} bytes, at most {max} are accepted");
        return fail(why);
    }
    Ok(())
}

/// `message`, or as much of it as the spec lets a string have.
fn cut(message: &str) -> &str {
    let mut end = message.len().min(wire::MAX_STRING);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    &message[..end]
}
