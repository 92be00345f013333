//! One datagram, byte by byte. `docs/exchange-format.md` shows the same layout as a table, which a test
//! holds to this file.

use crate::identity::VolumeId;
use crate::message::Message;
use crate::region::{Block, SlotIndex};
use crate::slot::{self, Content, InvalidReport, RECORD_BYTES, SlotFault, SlotRecord};

use super::counters::Refused;
use super::key::Keys;

/// The version that this code writes and the only one that it reads.
pub const VERSION: u32 = 1;

/// Most echoes in one datagram.
pub const MOST_ECHOES: usize = 64;

/// Bytes of a datagram without echoes.
pub const LEAST_BYTES: usize = at::ECHOES + TAG_BYTES;

/// Bytes of a datagram with all echoes that fit. With the headers of IPv6 and UDP it is below 1280, which
/// every IPv6 link carries without fragments.
pub const MOST_BYTES: usize = LEAST_BYTES + MOST_ECHOES * ECHO_BYTES;
const _: () = assert!(MOST_BYTES + 48 <= 1280);

const MAGIC: &[u8; 8] = b"PARDAUDP";
const ECHO_BYTES: usize = 8;
const TAG_BYTES: usize = 32;

/// Slot number of the record in a datagram, which no slot of a file has. So a record copied from a file is refused in a datagram,
/// and the reverse.
const NO_SLOT: SlotIndex = SlotIndex(u32::MAX);

/// Offsets of the fields. All integers are little-endian.
mod at {
    use std::ops::Range;

    use crate::slot::RECORD_BYTES;

    pub(super) const MAGIC: Range<usize> = 0..8;
    pub(super) const VERSION: Range<usize> = 8..12;
    pub(super) const LENGTH: Range<usize> = 12..14;
    pub(super) const COUNT: Range<usize> = 14..16;
    pub(super) const KEY: Range<usize> = 16..24;
    pub(super) const RECORD: Range<usize> = 24..24 + RECORD_BYTES;
    pub(super) const ECHOES: usize = RECORD.end;
}

/// The first 8 bytes of a datagram's signature. They cannot be predicted before the datagram is sent, so a host that echoes them
/// has heard it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Mark(pub(super) u64);

/// A datagram whose signature is right.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Datagram {
    pub(super) volume: VolumeId,
    pub(super) message: Message,
    /// Marks of datagrams that its sender has heard.
    pub(super) echoes: Vec<Mark>,
    pub(super) mark: Mark,
}

/// Encodes a message as a datagram, signed with the first key. Echoes beyond [`MOST_ECHOES`] are left out.
pub(super) fn seal(
    keys: &Keys,
    volume: VolumeId,
    message: &Message,
    echoes: &[Mark],
) -> Result<(Vec<u8>, Mark), InvalidReport> {
    let echoes = &echoes[..echoes.len().min(MOST_ECHOES)];
    let record = slot::encode(&SlotRecord { volume, slot: NO_SLOT, message: message.clone() })?;
    let mut bytes = vec![0; at::ECHOES + echoes.len() * ECHO_BYTES];
    frame(&mut bytes, keys, echoes.len());
    bytes[at::RECORD].copy_from_slice(&record.0[..RECORD_BYTES]);
    for (to, echo) in bytes[at::ECHOES..].chunks_mut(ECHO_BYTES).zip(echoes) {
        to.copy_from_slice(&echo.0.to_le_bytes());
    }
    let tag = keys.first().sign(&bytes);
    bytes.extend_from_slice(tag.as_bytes());
    Ok((bytes, mark(&tag)))
}

/// Decodes a datagram. Before the signature is verified, only magic, version, lengths and the key's name are read.
pub(super) fn open(keys: &Keys, bytes: &[u8]) -> Result<Datagram, Refused> {
    if !bytes.starts_with(MAGIC) {
        return Err(Refused::Foreign);
    }
    if bytes.len() < at::VERSION.end {
        return Err(Refused::Truncated);
    }
    if u32::from_le_bytes(get(bytes, at::VERSION.start)) != VERSION {
        return Err(Refused::OtherVersion);
    }
    if bytes.len() < LEAST_BYTES {
        return Err(Refused::Truncated);
    }
    let length = usize::from(u16::from_le_bytes(get(bytes, at::LENGTH.start)));
    let count = usize::from(u16::from_le_bytes(get(bytes, at::COUNT.start)));
    match length.cmp(&bytes.len()) {
        std::cmp::Ordering::Less => return Err(Refused::Oversized),
        std::cmp::Ordering::Greater => return Err(Refused::Truncated),
        std::cmp::Ordering::Equal => {}
    }
    if count > MOST_ECHOES || length != LEAST_BYTES + count * ECHO_BYTES {
        return Err(Refused::Malformed);
    }
    let key = keys.named(u64::from_le_bytes(get(bytes, at::KEY.start)));
    let (signed, tag) = bytes.split_at(length - TAG_BYTES);
    let expected = key.ok_or(Refused::UnknownKey)?.sign(signed);
    // `Hash` compares in constant time.
    if expected != blake3::Hash::from_bytes(get(tag, 0)) {
        return Err(Refused::Forged);
    }
    let mut block = Block::ZERO;
    block.0[..RECORD_BYTES].copy_from_slice(&signed[at::RECORD]);
    let record = match slot::decode(&block, NO_SLOT) {
        Content::Record(record) => *record,
        Content::Fault(SlotFault::Version(_)) => return Err(Refused::OtherVersion),
        Content::Empty | Content::Fault(_) => return Err(Refused::Malformed),
    };
    let echoes = signed[at::ECHOES..].chunks_exact(ECHO_BYTES);
    let echoes = echoes.map(|echo| Mark(u64::from_le_bytes(get(echo, 0)))).collect();
    Ok(Datagram { volume: record.volume, message: record.message, echoes, mark: mark(&expected) })
}

/// A datagram with valid magic, version, lengths, key name and signature. Its other bytes are `bytes`, cut or filled to a possible
/// length.
pub(super) fn signed(keys: &Keys, bytes: &[u8]) -> Vec<u8> {
    let echoes = bytes.len().saturating_sub(at::ECHOES) / ECHO_BYTES;
    let echoes = echoes.min(MOST_ECHOES);
    let mut front = bytes.to_vec();
    front.resize(at::ECHOES + echoes * ECHO_BYTES, 0);
    frame(&mut front, keys, echoes);
    let tag = keys.first().sign(&front);
    front.extend_from_slice(tag.as_bytes());
    front
}

/// Writes the fields before the record.
fn frame(front: &mut [u8], keys: &Keys, echoes: usize) {
    let length = front.len() + TAG_BYTES;
    front[at::MAGIC].copy_from_slice(MAGIC);
    front[at::VERSION].copy_from_slice(&VERSION.to_le_bytes());
    front[at::LENGTH].copy_from_slice(&(length as u16).to_le_bytes());
    front[at::COUNT].copy_from_slice(&(echoes as u16).to_le_bytes());
    front[at::KEY].copy_from_slice(&keys.first().name().to_le_bytes());
}

fn mark(tag: &blake3::Hash) -> Mark {
    Mark(u64::from_le_bytes(get(tag.as_bytes(), 0)))
}

fn get<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|i| from[at + i])
}

#[cfg(test)]
mod tests;
