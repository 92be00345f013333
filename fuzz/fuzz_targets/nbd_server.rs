//! The NBD server against whatever a client may send.
#![no_main]

#[path = "../../crates/nbd/tests/nbd/drive/mod.rs"]
mod drive;

libfuzzer_sys::fuzz_target!(|input: &[u8]| drive::server(input));
