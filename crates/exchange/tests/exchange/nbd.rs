//! Slots in an NBD export of a real server: nbdkit.
use crate::common;

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use common::{exchange, publication};
use parda_address::Uri;
use parda_control::{Bytes, Instant};
use parda_exchange::region::{Block, NbdRegion};
use parda_exchange::{
    Exchange as _, InitError, Location, Made, Region, RegionFault, Site, SlotCount, SlotIndex, init,
};

/// Far more than any call takes, so that only what must hang runs into it.
const PATIENT: Duration = Duration::from_secs(60);

/// An nbdkit, killed when dropped.
struct Nbdkit {
    child: Child,
    socket: PathBuf,
}

impl Nbdkit {
    fn start(socket: &Path, arguments: &[&str]) -> Nbdkit {
        let child = Command::new("nbdkit")
            .args(["--foreground", "--unix"])
            .arg(socket)
            .args(arguments)
            .spawn()
            .expect("nbdkit must be installed for this test");
        let server = Nbdkit { child, socket: socket.to_owned() };
        while UnixStream::connect(socket).is_err() {
            thread::yield_now();
        }
        server
    }

    fn region(&self, offset: Bytes, slots: u32) -> NbdRegion {
        region(&self.socket, offset, slots, PATIENT)
    }

    /// Makes an exchange from so many KiB on.
    fn init(&self, offset: u64, slots: u32) -> Result<Made, InitError> {
        let site = Site::new(Location::Nbd(uri(&self.socket)), Some(Bytes::kib(offset))).unwrap();
        init(&site, SlotCount::new(slots).unwrap(), None, PATIENT)
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        // It may have ended by itself; either way it is gone afterwards.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn uri(socket: &Path) -> Uri {
    format!("nbd+unix:///?socket={}", socket.display()).parse().unwrap()
}

fn region(socket: &Path, offset: Bytes, slots: u32, limit: Duration) -> NbdRegion {
    NbdRegion::new(uri(socket), offset, SlotCount::new(slots).unwrap(), limit).unwrap()
}

#[test]
fn hosts_hear_each_other_over_an_export_and_outlive_its_server() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("nbd");
    let data = dir.path().join("data");
    std::fs::write(&data, vec![0; 1 << 20]).unwrap();
    let file = ["file", data.to_str().unwrap()];
    let server = Nbdkit::start(&socket, &file);
    assert!(matches!(server.init(512, 64), Ok(Made::New(_))));
    assert!(matches!(server.init(512, 64), Ok(Made::Already(_))));
    for (offset, slots, why) in [
        (512, 65, "is an exchange already"),
        (768, 8, "another exchange around it"),
        (896, 64, "configure fewer slots or a larger region"),
    ] {
        let error = server.init(offset, slots).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let mut a = exchange(server.region(Bytes::kib(512), 64), "a", 0);
    let mut b = exchange(server.region(Bytes::kib(512), 64), "b", 63);
    for now in 0..3 {
        for host in [&mut a, &mut b] {
            host.collect(Instant(now)).unwrap();
            host.publish(&publication(now as f64)).unwrap();
        }
    }
    let heard = a.collect(Instant(3)).unwrap().messages;
    assert_eq!(heard.iter().map(|m| m.from.host.as_str()).collect::<Vec<_>>(), ["b"]);

    drop(server);
    assert!(a.collect(Instant(4)).is_err());
    let error = a.publish(&publication(4.0)).unwrap_err();
    assert!(error.to_string().contains("cannot connect"), "{error}");
    let server = Nbdkit::start(&socket, &file);
    assert_eq!(a.collect(Instant(5)).unwrap().messages.len(), 1);
    a.publish(&publication(5.0)).unwrap();
    drop(server);
    // Other data behind the same socket is not written, whatever was there before.
    let _server = Nbdkit::start(&socket, &["memory", "1M"]);
    assert!(a.collect(Instant(6)).is_err());
    let error = a.collect(Instant(7)).unwrap_err();
    assert!(error.to_string().contains("its header is gone"), "{error}");
    assert!(a.publish(&publication(7.0)).is_err());
}

#[test]
fn what_an_export_refuses_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let fault = |name: &str, arguments: &[&str], slots| {
        let server = Nbdkit::start(&dir.path().join(name), arguments);
        let mut region = server.region(Bytes(0), slots);
        let mut read_and_write = || -> Result<(), RegionFault> {
            region.read()?;
            region.write(SlotIndex(0), &Block::ZERO)
        };
        let fault = read_and_write().unwrap_err();
        println!("{fault}");
        fault
    };
    assert!(matches!(fault("small", &["memory", "1M"], 256), RegionFault::TooSmall { .. }));
    assert!(matches!(fault("ro", &["-r", "memory", "1M"], 8), RegionFault::ReadOnly));
    let full = ["--filter=error", "memory", "1M", "error-pwrite=ENOSPC", "error-pwrite-rate=100%"];
    assert!(matches!(fault("full", &full, 8), RegionFault::NoSpace { .. }));
    let broken = ["--filter=error", "memory", "1M", "error-pwrite=EIO", "error-pwrite-rate=100%"];
    assert!(matches!(fault("broken", &broken, 8), RegionFault::Write(_)));
    let coarse = [
        "--filter=blocksize-policy",
        "memory",
        "1M",
        "blocksize-minimum=64K",
        "blocksize-preferred=64K",
    ];
    assert!(matches!(fault("coarse", &coarse, 8), RegionFault::BlockSize { min: 65_536, .. }));
}

#[test]
fn a_server_that_takes_only_small_requests_is_read_in_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let small = [
        "--filter=blocksize-policy",
        "memory",
        "1M",
        "blocksize-preferred=4096",
        "blocksize-maximum=8192",
        "blocksize-error-policy=error",
    ];
    let server = Nbdkit::start(&dir.path().join("nbd"), &small);
    let mut region = server.region(Bytes(0), 7);
    let block = Block([9; Block::BYTES]);
    region.read().unwrap();
    region.write(SlotIndex(6), &block).unwrap();
    assert_eq!(region.read().unwrap().slots()[6], block);
}

#[test]
fn a_server_that_never_answers_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("silent");
    let _listener = UnixListener::bind(&socket).unwrap();
    let limit = Duration::from_millis(1);
    let fault = region(&socket, Bytes(0), 8, limit).read().unwrap_err();
    assert!(matches!(fault, RegionFault::Timeout(after) if after == limit), "{fault}");
}

#[test]
fn a_peer_that_speaks_something_else_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("http");
    let listener = UnixListener::bind(&socket).unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    let fault = region(&socket, Bytes(0), 8, PATIENT).read().unwrap_err();
    assert!(matches!(fault, RegionFault::Handshake(_)), "{fault}");
    server.join().unwrap();
}
