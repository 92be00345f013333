//! The parsers of slots and headers: whatever bytes a volume holds, they answer, and what they take can
//! be written down again and reads the same. What they would let a host write over is a record to the
//! last byte, or zeros.
#![no_main]

use libfuzzer_sys::fuzz_target;
use parda_exchange::region::Block;
use parda_exchange::slot::{self, Content, RECORD_BYTES};
use parda_exchange::{Header, SlotFault, SlotIndex};

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    // Past the checksums, which the fuzzer cannot guess.
    for magic in [b"PARDASLT", b"PARDAXCH"] {
        let mut sealed = bytes.to_vec();
        sealed.resize(RECORD_BYTES.max(bytes.len()), 0);
        sealed[..8].copy_from_slice(magic);
        sealed[8..12].copy_from_slice(&2u32.to_le_bytes());
        let checksum = crc32c::crc32c(&sealed[..508]);
        sealed[508..512].copy_from_slice(&checksum.to_le_bytes());
        check(&sealed);
    }
});

fn check(bytes: &[u8]) {
    for (bytes, slot) in bytes.chunks(Block::BYTES).zip((0..).map(SlotIndex)) {
        let mut block = Block::ZERO;
        block.0[..bytes.len()].copy_from_slice(bytes);
        if let Ok(header) = Header::decode(&block) {
            assert_eq!(header.encode(), block, "every bit of a header counts");
        }
        let content = slot::decode(&block, slot);
        if let Content::Record(record) = &content {
            let again = slot::encode(record).expect("what was read can be written");
            assert_eq!(slot::decode(&again, slot), content);
        }
        if content != Content::Fault(SlotFault::NotARecord) && content != Content::Empty {
            assert!(block.0.starts_with(b"PARDASLT"));
            assert!(block.0[RECORD_BYTES..].iter().all(|byte| *byte == 0));
        }
        assert_eq!(content == Content::Empty, block == Block::ZERO);
    }
}
