//! The parser of datagrams: whatever bytes come from the network, it answers, also for bytes that a holder of
//! the key has signed; and a datagram of which one bit was changed is not believed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use parda_exchange::udp::{is_datagram, signed};

/// Where the record is in a datagram, and its checksum in the record.
const RECORD: usize = 24;
const CHECKSUM: usize = 508;

fuzz_target!(|bytes: &[u8]| {
    let _ = is_datagram(bytes);
    let _ = is_datagram(&signed(bytes));
    // Past the record's checksum as well, which the fuzzer cannot guess.
    let mut sealed = signed(bytes);
    let record = &mut sealed[RECORD..];
    record[..8].copy_from_slice(b"PARDASLT");
    record[8..12].copy_from_slice(&2u32.to_le_bytes());
    record[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    let checksum = crc32c::crc32c(&record[..CHECKSUM]);
    record[CHECKSUM..][..4].copy_from_slice(&checksum.to_le_bytes());
    let front = sealed.len() - 32;
    let mut sealed = signed(&sealed[..front]);
    if is_datagram(&sealed) {
        let at = bytes.iter().map(|byte| usize::from(*byte)).sum::<usize>() % (8 * sealed.len());
        sealed[at / 8] ^= 1 << (at % 8);
        assert!(!is_datagram(&sealed), "bit {at} was changed");
    }
});
