//! Keys and values: one key for each run of a host, and a record as its value.

use parda_etcd::segment;

use crate::identity::{Identity, VolumeId};
use crate::message::Message;
use crate::region::{Block, SlotIndex};
use crate::slot::{self, Content, InvalidReport, RECORD_BYTES, SlotFault, SlotRecord};

/// The slot number in the record of a key, which no slot has. So a record that was copied from a file or a datagram
/// is not valid in a key.
const NO_SLOT: SlotIndex = SlotIndex(u32::MAX - 1);

/// Prefix of the keys of a volume.
pub(super) fn prefix(prefix: &str, volume: &str) -> Vec<u8> {
    format!("{prefix}exchange/{}/", segment(volume)).into_bytes()
}

/// The key of one run of a host.
pub(super) fn key(keys: &[u8], host: &Identity) -> Vec<u8> {
    let own = format!("{}/{}", segment(&host.host.to_string()), host.incarnation);
    [keys, own.as_bytes()].concat()
}

pub(super) fn encode(volume: VolumeId, message: Message) -> Result<Vec<u8>, InvalidReport> {
    let block = slot::encode(&SlotRecord { volume, slot: NO_SLOT, message })?;
    Ok(block.0[..RECORD_BYTES].to_vec())
}

/// Reads a value. `None` if it has not the length of a record.
pub(super) fn decode(value: &[u8]) -> Option<Result<SlotRecord, SlotFault>> {
    if value.len() != RECORD_BYTES {
        return None;
    }
    let mut block = Block::ZERO;
    block.0[..RECORD_BYTES].copy_from_slice(value);
    Some(match slot::decode(&block, NO_SLOT) {
        Content::Record(record) => Ok(*record),
        Content::Fault(fault) => Err(fault),
        Content::Empty => Err(SlotFault::NotARecord),
    })
}
