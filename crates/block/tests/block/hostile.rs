//! Clients that take all they can and give nothing back: the good one gets on, and all is returned.
use crate::common;

use std::io::Write;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use common::{Client, disk, read, write};
use parda_address::Address;
use parda_block::{AgentMemory, BackendConfig, Handle, Limits, Volume};
use parda_control::Bytes;
use parda_nbd::client::put_request;
use parda_nbd::{Cookie, wire};

const LARGEST: u32 = 32 << 20;

fn serve(socket: &Path, progress_timeout: Duration) -> Handle {
    let backend = BackendConfig::Memory { size: Bytes(64 << 20) };
    let mut disk = disk("vm1", backend, socket);
    disk.also_at.push(Address::Tcp { host: "127.0.0.1".into(), port: 0 });
    let mut config = common::config(vec![disk]);
    config.limits =
        Limits { memory: 96 << 20, connections: 256, progress_timeout, ..Limits::default() };
    config.memory = AgentMemory::new(96 << 20, 1);
    Volume::spawn(config).unwrap()
}

/// A session on the disk, opened by a client that reads nothing.
fn rude(socket: &Path) -> UnixStream {
    opened(UnixStream::connect(socket).unwrap())
}

fn opened<S: Write>(mut stream: S) -> S {
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
    let volume = serve(&socket, Duration::from_secs(2));
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
    // Those without progress are dropped, and a client that is idle is not. What the kernel still has of theirs comes back after them.
    let begun = Instant::now();
    let stats = loop {
        let stats = volume.stats().unwrap();
        let memory = (stats.memory.granted, stats.memory.waiting);
        if stats.connections == 1 && memory == (0, 0) && stats.outstanding + stats.held == 0 {
            break stats;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{stats:?}");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(stats.dropped.stalled, 96);
    let data = vec![9; LARGEST as usize];
    assert_eq!(good.call(write(0, LARGEST), &data), Ok(vec![]));
    assert!(good.call(read(0, LARGEST), &[]).unwrap() == data);
    drop(hostile);
}

/// Times of the largest write, and of a read of the same range.
fn largest_ios(client: &mut Client) -> [Duration; 2] {
    let begun = Instant::now();
    let data = vec![9; LARGEST as usize];
    assert_eq!(client.call(write(0, LARGEST), &data), Ok(vec![]));
    let written = begun.elapsed();
    assert!(client.call(read(0, LARGEST), &[]).unwrap() == data);
    [written, begun.elapsed() - written]
}

/// How much longer than alone a client takes for the largest write, and then for a read, beside 16 that have sent the first part of
/// such a write and send no more. They are another peer over TCP, and else the same. On a busy machine a transfer takes long by itself,
/// and not the same each time: twice its time alone is taken off.
fn delay_by_stalled_writers(patience: Duration, tcp: bool) -> [Duration; 2] {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let volume = serve(&socket, patience);
    let alone = largest_ios(&mut Client::connect(&socket, "vm1"));
    let port = volume.addresses().iter().find_map(|address| match address {
        Address::Tcp { port, .. } => Some(*port),
        Address::Unix(_) | Address::Vhost(_) => None,
    });
    let mut bytes = Vec::new();
    put_request(&mut bytes, Cookie(1), write(0, LARGEST));
    bytes.extend(vec![7; 2 << 20]);
    let mut stalled: Vec<Box<dyn Write>> = Vec::new();
    for _ in 0..16 {
        // Sends what is taken at once.
        if tcp {
            let mut stream = opened(TcpStream::connect(("127.0.0.1", port.unwrap())).unwrap());
            stream.set_nonblocking(true).unwrap();
            let _ = stream.write(&bytes);
            stalled.push(Box::new(stream));
        } else {
            let mut stream = rude(&socket);
            stream.set_nonblocking(true).unwrap();
            let _ = stream.write(&bytes);
            stalled.push(Box::new(stream));
        }
    }
    let begun = Instant::now();
    while volume.stats().unwrap().memory.waiting < 12 {
        assert!(begun.elapsed() < Duration::from_secs(60), "few writers wait");
        std::thread::sleep(Duration::from_millis(1));
        for stream in &mut stalled {
            let _ = stream.write(&[7; 64 << 10]);
        }
    }
    let mut good = Client::connect(&socket, "vm1");
    let took = largest_ios(&mut good);
    eprintln!(
        "beside stalled writers (another peer: {tcp}): {took:?} of {patience:?}, alone {alone:?}"
    );
    assert_eq!(volume.stats().unwrap().dropped.protocol, 0);
    [0, 1].map(|i| took[i].saturating_sub(2 * alone[i]))
}

#[test]
fn stalled_writers_delay_another_peer_by_a_tenth_of_the_time() {
    // Each of them has a sixteenth of it for 1 MiB, and so has the client in good standing: on a busy machine it needs that.
    let patience = Duration::from_secs(20);
    let is_short = |delays: [Duration; 2]| delays.into_iter().all(|delay| delay < patience / 3);
    assert!((0..3).any(|_| is_short(delay_by_stalled_writers(patience, true))), "thrice too long");
}

#[test]
fn stalled_writers_delay_their_own_peer_by_no_more_than_the_time() {
    let patience = Duration::from_secs(16);
    let is_short = |[written, _]: [Duration; 2]| written < patience * 3 / 2;
    assert!((0..3).any(|_| is_short(delay_by_stalled_writers(patience, false))), "thrice too long");
}
