//! The eBPF object in the source tree is the one that its source gives.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a panic is how a test fails")]

use std::path::{Path, PathBuf};
use std::process::Command;

fn bpf(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf").join(file)
}

/// What `cksum` says of a file.
fn cksum(bytes: &[u8]) -> String {
    let step = |sum: u32, byte: u8| {
        (0..8).fold(sum ^ u32::from(byte) << 24, |sum, _| {
            sum << 1 ^ if sum >> 31 == 1 { 0x04c1_1db7 } else { 0 }
        })
    };
    let length = bytes.len().to_le_bytes();
    let length = &length[..length.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1)];
    let sum = bytes.iter().chain(length).fold(0, |sum, byte| step(sum, *byte));
    format!("{} {}", !sum, bytes.len())
}

#[test]
fn the_object_says_that_it_is_from_the_source_as_it_is_now() {
    let source = std::fs::read(bpf("block.bpf.c")).unwrap();
    let object = std::fs::read(bpf("block.bpf.o")).unwrap();
    let says = format!("{}\0", cksum(&source));
    let found = object.windows(says.len()).any(|bytes| bytes == says.as_bytes());
    assert!(found, "block.bpf.o is of another block.bpf.c: run `make bpf` and commit both");
}

#[test]
fn the_source_gives_the_object_to_the_byte_where_the_same_compiler_is() {
    let Ok(clang) = Command::new("clang").arg("--version").output() else {
        return println!("SKIPPED: no clang");
    };
    let version = String::from_utf8_lossy(&clang.stdout).into_owned();
    let version = version.split("clang version ").nth(1).unwrap().split_whitespace().next();
    let committed = std::fs::read(bpf("block.bpf.o")).unwrap();
    let built_by = format!("{} \0", version.unwrap());
    if !committed.windows(built_by.len()).any(|bytes| bytes == built_by.as_bytes()) {
        return println!("SKIPPED: the object is of another clang than {version:?}");
    }
    let dir = tempfile::tempdir().unwrap();
    let object = dir.path().join("again.o");
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/bpf.sh");
    assert!(Command::new(tools).arg(&object).status().unwrap().success());
    assert!(std::fs::read(object).unwrap() == committed, "run `make bpf` and commit what it gives");
}
