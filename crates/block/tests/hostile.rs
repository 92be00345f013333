//! Clients that take all they can and give nothing back: the good one gets on, and all is returned.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use common::{Client, disk, read, write};
use parda_block::{AgentMemory, BackendConfig, Handle, Limits, Volume};
use parda_control::Bytes;
use parda_nbd::client::put_request;
use parda_nbd::{Cookie, wire};

const LARGEST: u32 = 32 << 20;

fn serve(socket: &Path, progress_timeout: Duration) -> Handle {
    let backend = BackendConfig::Memory { size: Bytes(64 << 20) };
    let mut config = common::config(vec![disk("vm1", backend, socket)]);
    config.limits =
        Limits { memory: 96 << 20, connections: 256, progress_timeout, ..Limits::default() };
    config.memory = AgentMemory::new(96 << 20, 1);
    Volume::spawn(config).unwrap()
}

/// A session on the disk, opened by a client that reads nothing.
fn rude(socket: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    let mut out = 3u32.to_be_bytes().to_vec();
    wire::put_option(&mut out, wire::option::EXPORT_NAME, b"vm1");
    stream.write_all(&out).unwrap();
    stream
}

#[test]
fn headers_alone_take_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let volume = serve(&socket, Duration::from_secs(60));
    let mut good = Client::connect(&socket, "vm1");
    let before = volume.stats().unwrap().memory.buffers;
    let hostile: Vec<_> = (0..64)
        .map(|_| {
            let mut stream = rude(&socket);
            let mut header = Vec::new();
            put_request(&mut header, Cookie(1), write(0, LARGEST));
            stream.write_all(&header).unwrap();
            stream
        })
        .collect();
    while volume.stats().unwrap().connections < 65 {
        good.call(read(0, 4096), &[]).unwrap();
    }
    let memory = volume.stats().unwrap().memory;
    assert!(memory.buffers - before <= 64 * (16 << 10), "{memory:?}");
    drop(hostile);
}

#[test]
fn the_good_client_gets_on_and_all_memory_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let volume = serve(&socket, Duration::from_secs(1));
    let mut good = Client::connect(&socket, "vm1");
    let mut hostile = Vec::new();
    for i in 0..96 {
        let mut stream = rude(&socket);
        let mut bytes = Vec::new();
        if i % 2 == 0 {
            (0..4).for_each(|n| put_request(&mut bytes, Cookie(n), read(0, LARGEST)));
        } else {
            put_request(&mut bytes, Cookie(1), write(0, LARGEST));
            bytes.extend(vec![7; 100 << 10]);
        }
        stream.write_all(&bytes).unwrap();
        hostile.push(stream);
    }
    // Small requests never wait, whatever the others hold.
    for i in 0..500u32 {
        let (offset, data) = (u64::from(i % 100) * 4096, vec![i as u8; 4096]);
        assert_eq!(good.call(write((32 << 20) + offset, 4096), &data), Ok(vec![]));
        assert_eq!(good.call(read((32 << 20) + offset, 4096), &[]), Ok(data));
    }
    let memory = volume.stats().unwrap().memory;
    assert!(memory.granted <= memory.limit && memory.limit <= 96 << 20, "{memory:?}");
    assert!(memory.buffers <= (96 << 20) + 97 * (8 << 10), "{memory:?}");
    // Those without progress are dropped, and a client that is idle is not.
    while volume.stats().unwrap().connections > 1 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let stats = volume.stats().unwrap();
    assert_eq!((stats.memory.granted, stats.memory.waiting), (0, 0));
    assert_eq!(stats.outstanding + stats.held, 0);
    assert_eq!(stats.dropped.stalled, 96);
    let data = vec![9; LARGEST as usize];
    assert_eq!(good.call(write(0, LARGEST), &data), Ok(vec![]));
    assert!(good.call(read(0, LARGEST), &[]).unwrap() == data);
    drop(hostile);
}
