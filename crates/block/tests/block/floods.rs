//! A flood of handshakes has its rate, and nobody else waits for it. Nor is anybody dropped who waits.
use crate::common;

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Client, disk, read};
use parda_address::Address;
use parda_block::{BackendConfig, Limits, Volume};
use parda_control::Bytes;
use parda_nbd::wire;

/// What begins at once: as many as there may be connections, and in their handshake.
const AT_ONCE: usize = 64 + 16;
const RATE: usize = 50;

/// A client that is let in has this much from the server: the greeting, then size and flags.
const WELCOME: usize = wire::GREETING_LEN + 10;

const PATIENCE: Duration = Duration::from_secs(60);

/// Comes and says a whole handshake at once; whether it was let in.
fn come<S: Read + Write>(mut stream: S) -> bool {
    let mut hello = 3u32.to_be_bytes().to_vec();
    wire::put_option(&mut hello, wire::option::EXPORT_NAME, b"vm1");
    // Who is turned away has his socket closed.
    stream.write_all(&hello).is_ok() && stream.read_exact(&mut [0; WELCOME]).is_ok()
}

#[test]
fn a_flood_has_its_rate_and_another_peer_and_who_is_served_do_not_wait_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let mut vm1 = disk("vm1", BackendConfig::Memory { size: Bytes(1 << 20) }, &socket);
    vm1.also_at.push(Address::Tcp { host: "127.0.0.1".into(), port: 0 });
    let mut config = common::config(vec![vm1]);
    config.limits = Limits { connections: 64, handshakes_per_second: RATE, ..Limits::default() };
    let volume = Volume::spawn(config).unwrap();
    let port = volume.addresses().iter().find_map(|address| match address {
        Address::Tcp { port, .. } => Some(*port),
        Address::Unix(_) | Address::Vhost(_) => None,
    });
    let port = port.unwrap();
    let mut served = Client::connect(&socket, "vm1");

    let (over, let_in) = (AtomicBool::new(false), AtomicUsize::new(0));
    let began = Instant::now();
    thread::scope(|scope| {
        // More than may wait, all of one peer.
        for _ in 0..48 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) && began.elapsed() < PATIENCE {
                    let Ok(stream) = UnixStream::connect(&socket) else { continue };
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    let_in.fetch_add(usize::from(come(stream)), Ordering::Relaxed);
                }
            });
        }
        while let_in.load(Ordering::Relaxed) < AT_ONCE && began.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(1));
        }
        for _ in 0..10 {
            // The address is another peer than the process.
            let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let came = Instant::now();
            assert!(come(stream), "a client of another peer is locked out");
            assert!(came.elapsed() < PATIENCE / 4, "it waited for {:?}", came.elapsed());
            assert_eq!(served.call(read(0, 4096), &[]), Ok(vec![0; 4096]));
        }
        over.store(true, Ordering::Relaxed);
    });
    let (let_in, seconds) = (let_in.into_inner(), began.elapsed().as_secs_f64());
    let most = AT_ONCE as f64 + RATE as f64 * seconds;
    assert!(let_in as f64 <= most + 1.0, "{let_in} in {seconds} s, at most {most}");
    assert!(let_in > AT_ONCE, "the flood was none");
    let turned_away = volume.stats().unwrap().dropped.turned_away;
    assert!(turned_away > 0, "nobody had to be turned away");
}

/// What a client is to wait for is not taken for slowness of its own.
#[test]
fn a_handshake_lasts_longer_by_what_it_waits_for_its_turn_to_be_answered() {
    const CLIENTS: usize = 8;
    const OPTIONS: usize = 4000;
    const TIMEOUT: Duration = Duration::from_secs(2);
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let disks = vec![disk("vm1", BackendConfig::Memory { size: Bytes(1 << 20) }, &socket)];
    let mut config = common::config(disks);
    // They have 16,384 answers at once, and the others in 3 s.
    config.limits = Limits { handshake_timeout: TIMEOUT, ..Limits::default() };
    let volume = Volume::spawn(config).unwrap();
    let mut hello = 3u32.to_be_bytes().to_vec();
    for _ in 0..OPTIONS {
        wire::put_option(&mut hello, 99, b"");
    }
    wire::put_option(&mut hello, wire::option::EXPORT_NAME, b"vm1");
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut stream = UnixStream::connect(&socket).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                stream.write_all(&hello).unwrap();
                // It reads in large pieces, so that it is never slow itself.
                let mut stream = BufReader::with_capacity(1 << 20, stream);
                stream.read_exact(&mut [0; wire::GREETING_LEN]).unwrap();
                for _ in 0..OPTIONS {
                    let mut header = [0; wire::OPTION_REPLY_HEADER_LEN];
                    stream.read_exact(&mut header).unwrap();
                    let [.., a, b, c, d] = header;
                    let len = u32::from_be_bytes([a, b, c, d]) as usize;
                    stream.read_exact(&mut vec![0; len]).unwrap();
                }
                stream.read_exact(&mut [0; wire::EXPORT_NAME_REPLY_LEN]).unwrap();
            });
        }
    });
    assert!(began.elapsed() > TIMEOUT, "nobody had to wait");
    assert_eq!(volume.stats().unwrap().dropped.handshake, 0);
}
