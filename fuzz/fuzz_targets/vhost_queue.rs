//! The queue walk of vhost-user against whatever a guest may have in its memory.
#![no_main]

#[path = "../../crates/vhost/tests/vhost/drive.rs"]
mod drive;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    drive::queue(input);
});
