//! The parsers of slots and headers: whatever bytes a volume holds, they answer, and what they take can
//! be written down again and reads the same. What they would let a host write over is a record to the
//! last byte, or zeros.
#![no_main]

use libfuzzer_sys::fuzz_target;
use parda_exchange::region::Block;
use parda_exchange::slot::{self, Content, RECORD_BYTES};
use parda_exchange::{Header, SlotFault, SlotIndex};

const MAGIC_OF_SLOTS: &[u8; 8] = b"PARDASLT";
const MAGIC_OF_HEADERS: &[u8; 8] = b"PARDAXCH";

/// Where the checksum is, in a record and in a header.
const CHECKSUM: usize = 508;

fuzz_target!(|bytes: &[u8]| {
    let block = block(bytes);
    check(&block);
    // Past the checksums, which the fuzzer cannot guess.
    for magic in [MAGIC_OF_SLOTS, MAGIC_OF_HEADERS] {
        let mut sealed = block.clone();
        sealed.0[..8].copy_from_slice(magic);
        sealed.0[8..12].copy_from_slice(&2u32.to_le_bytes());
        let checksum = crc32c::crc32c(&sealed.0[..CHECKSUM]);
        sealed.0[CHECKSUM..RECORD_BYTES].copy_from_slice(&checksum.to_le_bytes());
        check(&sealed);
    }
});

/// Input beyond a record stands at the end of the block, so that short inputs reach its last byte too.
fn block(bytes: &[u8]) -> Block {
    let bytes = &bytes[..bytes.len().min(Block::BYTES)];
    let (record, rest) = bytes.split_at(bytes.len().min(RECORD_BYTES));
    let mut block = Block::ZERO;
    block.0[..record.len()].copy_from_slice(record);
    block.0[Block::BYTES - rest.len()..].copy_from_slice(rest);
    block
}

fn check(block: &Block) {
    let slot = SlotIndex(0);
    if let Ok(header) = Header::decode(block) {
        assert_eq!(header.encode(), *block, "every bit of a header counts");
    }
    let content = slot::decode(block, slot);
    if let Content::Record(record) = &content {
        let again = slot::encode(record).expect("what was read can be written");
        assert_eq!(slot::decode(&again, slot), content);
    }
    if content != Content::Fault(SlotFault::NotARecord) && content != Content::Empty {
        assert!(block.0.starts_with(MAGIC_OF_SLOTS));
        assert_eq!(block.0[RECORD_BYTES..], Block::ZERO.0[RECORD_BYTES..]);
    }
    assert_eq!(content == Content::Empty, *block == Block::ZERO);
}
