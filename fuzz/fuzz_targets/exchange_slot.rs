//! The slot parser: whatever bytes a volume holds, it answers, and what it takes as a record can be
//! written down again and reads the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use parda_exchange::inspect;
use parda_exchange::slot::{self, Content, RECORD_BYTES};

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    // Past the checksum, which the fuzzer cannot guess.
    let mut sealed = bytes.to_vec();
    sealed.resize(RECORD_BYTES.max(bytes.len()), 0);
    sealed[..8].copy_from_slice(b"PARDASLT");
    sealed[8..16].copy_from_slice(&1u64.to_le_bytes());
    let checksum = crc32c::crc32c(&sealed[..508]);
    sealed[508..512].copy_from_slice(&checksum.to_le_bytes());
    check(&sealed);
});

fn check(bytes: &[u8]) {
    for state in inspect(bytes) {
        if let Content::Record(record) = state.content {
            let block = slot::encode(&record).expect("what was read can be written");
            assert_eq!(slot::decode(&block, state.slot), Content::Record(record));
        }
    }
}
