//! Whether a request is one that this export can take: command and flags here, permission and range by
//! [`Geometry::check`].

use parda_disk::{Errno, Fault, Geometry, Op};

use crate::wire::{Framing, RequestHeader, command, command_flag};

/// Terms of the handshake that decide which requests exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Layout of messages. Without chunks there is no DF flag.
    pub framing: Framing,
    /// The metadata context `base:allocation` was chosen. Without that there is no BLOCK_STATUS.
    pub allocation: bool,
}

/// A request that did not pass: what to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{errno}: {reason}")]
pub struct RequestRefusal {
    /// The error to send.
    pub errno: Errno,
    /// Why, for people; sent along where replies come in chunks.
    pub reason: &'static str,
}

fn refuse(errno: Errno, reason: &'static str) -> Result<Op, RequestRefusal> {
    Err(RequestRefusal { errno, reason })
}

/// Judges a request. The caller handles `NBD_CMD_DISC`, which has neither range nor reply.
///
/// The order is: command, flags, permission, range.
///
/// # Errors
/// The refusal to answer with, chosen as the spec says under "Error values" and "Request types".
pub fn check(header: &RequestHeader, disk: &Geometry, terms: Terms) -> Result<Op, RequestRefusal> {
    let extent = header.extent;
    let flag = |flag| header.flags & flag != 0;
    let fua = flag(command_flag::FUA);
    let (known_flags, op) = match header.command {
        command::READ => {
            let df = if terms.framing.has_chunks() { command_flag::DF } else { 0 };
            (df, Op::Read(extent))
        }
        command::WRITE => {
            // Said of the layout, and nothing of what is to be done.
            let extended = terms.framing == Framing::Extended;
            (if extended { command_flag::PAYLOAD_LEN } else { 0 }, Op::Write { extent, fua })
        }
        // Offset and length are reserved. Clients send them as zero; others do no harm.
        command::FLUSH => (0, Op::Flush),
        command::TRIM if disk.trim => (0, Op::Trim { extent, fua }),
        command::WRITE_ZEROES if disk.write_zeroes => {
            let known = if disk.fast_zero { command_flag::FAST_ZERO } else { 0 };
            let (no_hole, fast) = (flag(command_flag::NO_HOLE), flag(command_flag::FAST_ZERO));
            (command_flag::NO_HOLE | known, Op::WriteZeroes { extent, fua, no_hole, fast })
        }
        command::CACHE if disk.cache => (0, Op::Cache(extent)),
        command::BLOCK_STATUS if terms.allocation => {
            (command_flag::REQ_ONE, Op::BlockStatus { extent, one: flag(command_flag::REQ_ONE) })
        }
        command::BLOCK_STATUS => {
            return refuse(Errno::Inval, "no metadata context was chosen for this export");
        }
        command::TRIM | command::WRITE_ZEROES | command::CACHE => {
            return refuse(Errno::Inval, "this command was not offered for the export");
        }
        _ => return refuse(Errno::Inval, "unknown command"),
    };
    // FUA is valid on every command once it was offered, and we always offer it.
    if header.flags & !(known_flags | command_flag::FUA) != 0 {
        return refuse(Errno::Inval, "unknown flag for this command");
    }
    disk.check(op).map_err(|fault| refusal(fault, header))?;
    Ok(op)
}

/// The answer to a request that the disk cannot take.
fn refusal(fault: Fault, header: &RequestHeader) -> RequestRefusal {
    let errno = match fault {
        Fault::ReadOnly => Errno::Perm,
        // The spec keeps EOVERFLOW for reads that must not be fragmented.
        Fault::TooLong if header.flags & command_flag::DF != 0 => Errno::Overflow,
        // "ENOSPC if it receives a write request including sectors beyond the size of the device"
        Fault::BeyondEnd if matches!(header.command, command::WRITE | command::WRITE_ZEROES) => {
            Errno::NoSpc
        }
        Fault::Empty | Fault::TooLong | Fault::BeyondEnd | Fault::Unaligned => Errno::Inval,
    };
    RequestRefusal { errno, reason: fault.reason() }
}
