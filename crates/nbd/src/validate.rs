//! The one validator: is this request one that this export can take?

use parda_disk::{Errno, Geometry, Op};

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
pub struct Refusal {
    /// The error to send.
    pub errno: Errno,
    /// Why, for people; sent along where replies come in chunks.
    pub reason: &'static str,
}

fn refuse(errno: Errno, reason: &'static str) -> Result<Op, Refusal> {
    Err(Refusal { errno, reason })
}

/// Judges a request. The caller handles `NBD_CMD_DISC`, which has neither range nor reply.
///
/// The order is: command, flags, permission, range.
///
/// # Errors
/// The refusal to answer with, chosen as the spec says under "Error values" and "Request types".
pub fn check(header: &RequestHeader, disk: &Geometry, terms: Terms) -> Result<Op, Refusal> {
    let extent = header.extent;
    let (known_flags, writes) = match header.command {
        command::READ => (if terms.framing.has_chunks() { command_flag::DF } else { 0 }, false),
        // Said of the layout, and nothing of what is to be done.
        command::WRITE if terms.framing == Framing::Extended => (command_flag::PAYLOAD_LEN, true),
        command::WRITE => (0, true),
        command::FLUSH => (0, false),
        command::TRIM if disk.trim => (0, true),
        command::WRITE_ZEROES if disk.write_zeroes => {
            let fast = if disk.fast_zero { command_flag::FAST_ZERO } else { 0 };
            (command_flag::NO_HOLE | fast, true)
        }
        command::CACHE if disk.cache => (0, false),
        command::BLOCK_STATUS if terms.allocation => (command_flag::REQ_ONE, false),
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
    let flag = |flag| header.flags & flag != 0;
    let fua = flag(command_flag::FUA);
    if writes && disk.read_only {
        return refuse(Errno::Perm, "the export is read-only");
    }
    if header.command == command::FLUSH {
        // Offset and length are reserved. Clients send them as zero; others do no harm.
        return Ok(Op::Flush);
    }
    check_extent(header, disk)?;
    Ok(match header.command {
        command::READ => Op::Read(extent),
        command::WRITE => Op::Write { extent, fua },
        command::TRIM => Op::Trim { extent, fua },
        command::CACHE => Op::Cache(extent),
        command::BLOCK_STATUS => Op::BlockStatus { extent, one: flag(command_flag::REQ_ONE) },
        _ => {
            let (no_hole, fast) = (flag(command_flag::NO_HOLE), flag(command_flag::FAST_ZERO));
            Op::WriteZeroes { extent, fua, no_hole, fast }
        }
    })
}

fn check_extent(header: &RequestHeader, disk: &Geometry) -> Result<(), Refusal> {
    let refuse = |errno, reason| Err(Refusal { errno, reason });
    let extent = header.extent;
    if extent.len == 0 {
        return refuse(Errno::Inval, "a length of zero");
    }
    let carries_payload = matches!(header.command, command::READ | command::WRITE);
    if carries_payload && extent.len > u64::from(disk.blocks.max()) {
        // The spec keeps EOVERFLOW for reads that must not be fragmented.
        let df = header.flags & command_flag::DF != 0;
        let errno = if df { Errno::Overflow } else { Errno::Inval };
        return refuse(errno, "longer than the maximum block size");
    }
    if extent.end().is_none_or(|end| end > disk.size) {
        // "ENOSPC if it receives a write request including sectors beyond the size of the device"
        let fills = matches!(header.command, command::WRITE | command::WRITE_ZEROES);
        let errno = if fills { Errno::NoSpc } else { Errno::Inval };
        return refuse(errno, "beyond the end of the export");
    }
    let mask = u64::from(disk.blocks.min() - 1);
    if (extent.offset | extent.len) & mask != 0 {
        return refuse(Errno::Inval, "not aligned to the minimum block size");
    }
    Ok(())
}
