//! What is written is what is read, on every backend and over several connections.
use crate::common;

use std::fs;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use common::{Client, at, disk, file, file_as, read, spawn, write};
use parda_address::{Address, Uri};
use parda_block::{
    BackendConfig, Direct, DiskConfig, DiskRegion, Lock, NbdOptions, SpawnError, Volume,
};
use parda_control::Bytes;
use parda_disk::{Errno, Op};
use parda_nbd::TransmissionFlags as Flags;

const SIZE: usize = 4 << 20;
const BLOCK: usize = 4096;

/// Random requests of all kinds over several connections, a few at a time on each, against an
/// array of bytes. Requests in flight together never overlap, as their order would be open.
fn exercise(socket: &Path, export: &str, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(socket, export)).collect();
    let mut model = vec![0u8; SIZE];
    for _ in 0..60 {
        let mut taken = vec![false; SIZE / BLOCK];
        let mut expected = Vec::new();
        for _ in 0..12 {
            // Small and large: the latter are received straight into their buffers.
            let blocks =
                if random.u8(..8) == 0 { random.usize(1..200) } else { random.usize(1..4) };
            let first = random.usize(..SIZE / BLOCK - blocks);
            if taken[first..first + blocks].iter().any(|t| *t) {
                continue;
            }
            taken[first..first + blocks].fill(true);
            let range = first * BLOCK..(first + blocks) * BLOCK;
            let extent = at(range.start as u64, range.len() as u32);
            let fua = random.u8(..4) == 0;
            let op = match random.u8(..10) {
                0..4 => Op::Read(extent),
                4..8 => Op::Write { extent, fua },
                8 => Op::WriteZeroes { extent, fua, no_hole: random.bool(), fast: false },
                _ => Op::Flush,
            };
            let mut payload = Vec::new();
            match op {
                Op::Write { .. } => {
                    payload.resize_with(range.len(), || random.u8(..));
                    model[range.clone()].copy_from_slice(&payload);
                }
                Op::WriteZeroes { .. } => model[range.clone()].fill(0),
                _ => {}
            }
            let data = if matches!(op, Op::Read(_)) { model[range].to_vec() } else { vec![] };
            let client = random.usize(..clients.len());
            let cookie = clients[client].send(op, &payload).unwrap();
            expected.push((client, cookie, data));
        }
        while !expected.is_empty() {
            let client = expected[0].0;
            let (cookie, outcome) = clients[client].receive().unwrap();
            let i = expected.iter().position(|e| e.0 == client && e.1 == cookie).unwrap();
            assert!(outcome.unwrap() == expected.remove(i).2, "wrong data");
        }
    }
    assert_eq!(clients[0].call(Op::Flush, &[]), Ok(vec![]));
    model
}

#[test]
fn a_file() {
    let dir = tempfile::tempdir().unwrap();
    let (path, socket) = (dir.path().join("disk"), dir.path().join("s"));
    for direct in [Direct::Auto, Direct::Off] {
        fs::write(&path, vec![0; SIZE]).unwrap();
        let backend = file_as(&path, direct, Lock::On);
        let volume = spawn(vec![disk("vm1", backend, &socket)]);
        let model = exercise(&socket, "vm1", 1);
        let drained = volume.shutdown(Duration::from_secs(5)).unwrap();
        assert_eq!(drained.unanswered, 0);
        assert!(fs::read(&path).unwrap() == model);
        assert!(!socket.exists());
    }
}

#[test]
fn memory() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let backend = BackendConfig::Memory { size: Bytes(SIZE as u64) };
    let _volume = spawn(vec![disk("vm1", backend, &socket)]);
    exercise(&socket, "vm1", 2);
}

#[test]
fn another_nbd_server() {
    let dir = tempfile::tempdir().unwrap();
    let (path, far, near) =
        (dir.path().join("disk"), dir.path().join("far"), dir.path().join("near"));
    fs::write(&path, vec![0; SIZE]).unwrap();
    let _far = spawn(vec![disk("array", file(&path), &far)]);
    let uri = Uri::from_str(&format!("nbd+unix:///array?socket={}", far.display())).unwrap();
    let backend = BackendConfig::Nbd { uri, options: NbdOptions::default() };
    let _near = spawn(vec![disk("vm1", backend, &near)]);
    let model = exercise(&near, "vm1", 3);
    assert!(fs::read(&path).unwrap() == model);
}

#[test]
fn regions_of_one_file_are_disks_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let (path, socket) = (dir.path().join("lun"), dir.path().join("s"));
    fs::write(&path, vec![0xee; 3 * SIZE]).unwrap();
    let part = |export: &str, i: usize| DiskConfig {
        region: Some(DiskRegion { offset: Bytes((i * SIZE) as u64), len: Bytes(SIZE as u64) }),
        ..disk(export, file(&path), &socket)
    };
    let volume = spawn(vec![part("a", 0), part("b", 2)]);
    let mut b = Client::connect(&socket, "b");
    assert_eq!(b.agreed.size, SIZE as u64);
    assert_eq!(b.call(write(0, BLOCK as u32), &[7; BLOCK]), Ok(vec![]));
    assert_eq!(b.call(read(SIZE as u64, BLOCK as u32), &[]), Err(Errno::Inval));
    let mut a = Client::connect(&socket, "a");
    assert_eq!(a.call(read(0, BLOCK as u32), &[]), Ok(vec![0xee; BLOCK]));
    let zeroes =
        Op::WriteZeroes { extent: at(0, SIZE as u32), fua: true, no_hole: false, fast: false };
    assert_eq!(a.call(zeroes, &[]), Ok(vec![]));
    let stats = volume.stats().unwrap();
    assert_eq!((stats.vms[0].reads.ios, stats.vms[1].writes.bytes), (1, BLOCK as u64));
    assert_eq!(stats.total().others.ios, 1);
    assert_eq!(stats.total().device.len(), 2);
    drop((a, b));
    volume.shutdown(Duration::from_secs(5)).unwrap();
    let lun = fs::read(&path).unwrap();
    assert!(lun[..SIZE].iter().all(|b| *b == 0));
    assert!(lun[SIZE..2 * SIZE].iter().all(|b| *b == 0xee));
    assert!(lun[2 * SIZE..][..BLOCK] == [7; BLOCK]);
}

#[test]
fn tcp_as_well_as_unix() {
    let dir = tempfile::tempdir().unwrap();
    let (far, near) = (dir.path().join("far"), dir.path().join("near"));
    let memory = BackendConfig::Memory { size: Bytes(SIZE as u64) };
    let mut array = disk("array", memory, &far);
    array.listen = Address::Tcp { host: "127.0.0.1".into(), port: 0 };
    let volume = spawn(vec![array]);
    // The port that the system chose, reached by an NBD URI.
    let uri =
        Uri { address: volume.addresses()[0].clone(), export: common::name("array"), tls: None };
    let backend = BackendConfig::Nbd { uri, options: NbdOptions::default() };
    let _near = spawn(vec![disk("vm1", backend, &near)]);
    exercise(&near, "vm1", 4);
}

#[test]
fn read_only_means_read_only() {
    let dir = tempfile::tempdir().unwrap();
    let (path, socket) = (dir.path().join("disk"), dir.path().join("s"));
    fs::write(&path, vec![1; SIZE]).unwrap();
    let read_only = DiskConfig { read_only: true, ..disk("vm1", file(&path), &socket) };
    let _volume = spawn(vec![read_only]);
    let mut client = Client::connect(&socket, "vm1");
    assert!(client.agreed.flags.contains(Flags::READ_ONLY));
    assert_eq!(client.call(write(0, BLOCK as u32), &[2; BLOCK]), Err(Errno::Perm));
    assert_eq!(client.call(read(0, BLOCK as u32), &[]), Ok(vec![1; BLOCK]));
}

#[test]
fn an_odd_size_is_served_through_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    let (path, socket) = (dir.path().join("disk"), dir.path().join("s"));
    fs::write(&path, vec![5; 10_001]).unwrap();
    let strict = file_as(&path, Direct::On, Lock::On);
    let error = Volume::spawn(common::config(vec![disk("vm1", strict, &socket)])).unwrap_err();
    assert!(matches!(error, SpawnError::Backend { .. }), "{error}");
    let _volume = spawn(vec![disk("vm1", file(&path), &socket)]);
    let mut client = Client::connect(&socket, "vm1");
    assert_eq!((client.agreed.size, client.agreed.blocks.min()), (10_001, 1));
    assert_eq!(client.call(read(9_998, 3), &[]), Ok(vec![5; 3]));
}

#[test]
fn what_cannot_be_served_is_said_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let message = |disks| Volume::spawn(common::config(disks)).unwrap_err().to_string();
    let missing = dir.path().join("missing");
    assert!(message(vec![disk("vm1", file(&missing), &socket)]).contains("missing"));
    assert!(message(vec![disk("vm1", file(Path::new("/dev/null")), &socket)]).contains("neither"));
    let memory = || BackendConfig::Memory { size: Bytes(8192) };
    let twice = vec![disk("vm1", memory(), &socket), disk("vm1", memory(), &socket)];
    assert!(message(twice).contains("two disks are named \"vm1\""));
    let region = Some(DiskRegion { offset: Bytes(4096), len: Bytes(8192) });
    let outside = DiskConfig { region, ..disk("vm1", memory(), &socket) };
    assert!(message(vec![outside]).contains("does not fit"));
    assert!(!socket.exists());
}
