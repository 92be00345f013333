//! The one validator: is this request one that this export can take?

use crate::export::Export;
use crate::wire::{Errno, Extent, RequestHeader, command, command_flag};

/// A request that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read a range.
    Read(Extent),
    /// Write the payload that follows.
    Write {
        /// Where to.
        extent: Extent,
        /// Durable before the reply.
        fua: bool,
    },
    /// Make every acknowledged write durable.
    Flush,
    /// Give up the contents of a range.
    Trim {
        /// Which range.
        extent: Extent,
        /// Durable before the reply.
        fua: bool,
    },
    /// Write zeroes.
    WriteZeroes {
        /// Where to.
        extent: Extent,
        /// Durable before the reply.
        fua: bool,
        /// The range must stay allocated.
        no_hole: bool,
    },
}

/// A request that did not pass: what to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{errno}: {reason}")]
pub struct Refusal {
    /// The error to send.
    pub errno: Errno,
    /// Why, for people; sent along when structured replies were negotiated.
    pub reason: &'static str,
}

fn refuse(errno: Errno, reason: &'static str) -> Result<Op, Refusal> {
    Err(Refusal { errno, reason })
}

/// Judges a request. The caller handles `NBD_CMD_DISC`, which has neither range nor reply.
///
/// The order is: command, flags, permission, range. `structured` says whether structured replies
/// were negotiated, without which the DF flag does not exist.
///
/// # Errors
/// The refusal to answer with, chosen as the spec says under "Error values" and "Request types".
pub fn check(header: &RequestHeader, export: &Export, structured: bool) -> Result<Op, Refusal> {
    let extent = header.extent;
    let (known_flags, writes) = match header.command {
        command::READ => (if structured { command_flag::DF } else { 0 }, false),
        command::WRITE => (0, true),
        command::FLUSH => (0, false),
        command::TRIM if export.trim => (0, true),
        command::WRITE_ZEROES if export.write_zeroes => (command_flag::NO_HOLE, true),
        command::TRIM | command::WRITE_ZEROES => {
            return refuse(Errno::Inval, "this command was not offered for the export");
        }
        _ => return refuse(Errno::Inval, "unknown command"),
    };
    // FUA is valid on every command once it was offered, and we always offer it.
    if header.flags & !(known_flags | command_flag::FUA) != 0 {
        return refuse(Errno::Inval, "unknown flag for this command");
    }
    let fua = header.flags & command_flag::FUA != 0;
    if writes && export.read_only {
        return refuse(Errno::Perm, "the export is read-only");
    }
    if header.command == command::FLUSH {
        // Offset and length are reserved. Clients send them as zero; others do no harm.
        return Ok(Op::Flush);
    }
    check_extent(header, export)?;
    Ok(match header.command {
        command::READ => Op::Read(extent),
        command::WRITE => Op::Write { extent, fua },
        command::TRIM => Op::Trim { extent, fua },
        _ => {
            let no_hole = header.flags & command_flag::NO_HOLE != 0;
            Op::WriteZeroes { extent, fua, no_hole }
        }
    })
}

fn check_extent(header: &RequestHeader, export: &Export) -> Result<(), Refusal> {
    let refuse = |errno, reason| Err(Refusal { errno, reason });
    let extent = header.extent;
    if extent.len == 0 {
        return refuse(Errno::Inval, "a length of zero");
    }
    let carries_payload = matches!(header.command, command::READ | command::WRITE);
    if carries_payload && extent.len > export.blocks.max() {
        // The spec keeps EOVERFLOW for reads that must not be fragmented.
        let df = header.flags & command_flag::DF != 0;
        let errno = if df { Errno::Overflow } else { Errno::Inval };
        return refuse(errno, "longer than the maximum block size");
    }
    if extent.end().is_none_or(|end| end > export.size) {
        // "ENOSPC if it receives a write request including sectors beyond the size of the device"
        let fills = matches!(header.command, command::WRITE | command::WRITE_ZEROES);
        let errno = if fills { Errno::NoSpc } else { Errno::Inval };
        return refuse(errno, "beyond the end of the export");
    }
    let mask = export.blocks.min() - 1;
    if extent.offset & u64::from(mask) != 0 || extent.len & mask != 0 {
        return refuse(Errno::Inval, "not aligned to the minimum block size");
    }
    Ok(())
}
