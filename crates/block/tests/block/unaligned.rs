//! Requests that begin and end anywhere, on files that take whole blocks only.
use crate::common;

use std::path::Path;

use common::{Client, at, disk, file_as, read, spawn, write};
use parda_block::{Direct, Lock, OpenError, SpawnError, Volume};
use parda_disk::{Errno, Op};
use parda_nbd::Cookie;
use parda_testkit::LoopDevice;

const SIZE: usize = 256 << 10;

/// A request and what it must be answered with.
type Sent = (Cookie, Vec<u8>);

/// Some requests at a time over several connections, of which many share blocks and none shares a
/// byte: whatever their order, each byte has one right value afterwards.
fn exercise(socket: &Path, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(socket, "vm1")).collect();
    let mut model: Vec<Option<u8>> = vec![Some(0); SIZE];
    for _ in 0..60 {
        let mut sent: [Vec<Sent>; 3] = Default::default();
        // Neighbours, from a random place on.
        let mut place = random.usize(..SIZE - (64 << 10));
        for _ in 0..random.usize(2..24) {
            let longest = if random.u8(..8) == 0 { 20_000 } else { 3000 };
            let len = random.usize(1..longest).min(SIZE.saturating_sub(place));
            if len == 0 {
                break;
            }
            let extent = at(place as u64, len as u32);
            let part = &mut model[place..place + len];
            let (fua, no_hole) = (random.u8(..64) == 0, random.bool());
            let mut payload = Vec::new();
            let op = match random.u8(..10) {
                // What was trimmed before may be anything.
                0..2 if part.iter().all(Option::is_some) => Op::Read(extent),
                0..7 => {
                    payload.resize_with(len, || random.u8(..));
                    part.iter_mut().zip(&payload).for_each(|(to, from)| *to = Some(*from));
                    Op::Write { extent, fua }
                }
                7..9 => {
                    part.fill(Some(0));
                    Op::WriteZeroes { extent, fua, no_hole, fast: false }
                }
                _ => {
                    part.fill(None);
                    Op::Trim { extent, fua }
                }
            };
            let answer = match op {
                Op::Read(_) => part.iter().map(|b| b.unwrap_or(0)).collect(),
                _ => Vec::new(),
            };
            let client = random.usize(..3);
            let cookie = clients[client].send(op, &payload).unwrap();
            sent[client].push((cookie, answer));
            // Beside each other as a rule, or a little apart.
            place += len + if random.bool() { 0 } else { random.usize(..600) };
        }
        for (client, sent) in clients.iter_mut().zip(&mut sent) {
            while !sent.is_empty() {
                let (cookie, outcome) = client.receive().unwrap();
                let at = sent.iter().position(|(c, _)| *c == cookie).unwrap();
                let answer = sent.swap_remove(at).1;
                assert!(outcome.is_ok(), "seed {seed}: {:?}", outcome.err());
                let bytes = outcome.unwrap();
                let wrong = bytes.iter().zip(&answer).position(|(is, right)| is != right);
                assert_eq!((wrong, bytes.len()), (None, answer.len()), "seed {seed}");
            }
        }
    }
    let bytes = clients[0].call(read(0, SIZE as u32), &[]).unwrap();
    let wrong = model.iter().zip(&bytes).position(|(m, b)| m.is_some_and(|m| m != *b));
    assert_eq!(wrong, None, "seed {seed}");
    bytes
}

#[test]
fn neighbours_in_one_block_never_lose_each_others_bytes() {
    let dir = tempfile::tempdir().unwrap();
    for (direct, seeds) in [(Direct::Auto, 3), (Direct::Off, 1)] {
        for seed in 0..seeds {
            let (path, socket) = (dir.path().join("disk"), dir.path().join("s"));
            std::fs::write(&path, vec![0; SIZE]).unwrap();
            let volume = spawn(vec![disk("vm1", file_as(&path, direct, Lock::On), &socket)]);
            let bytes = exercise(&socket, seed);
            let vm = &volume.stats().unwrap().vms[0];
            assert_eq!((vm.errors, vm.page_cache), (0, direct == Direct::Off));
            volume.shutdown(std::time::Duration::from_secs(10)).unwrap();
            assert!(std::fs::read(&path).unwrap() == bytes);
        }
    }
}

/// Overlapping writes of one connection each: a byte is what one of them wrote, and bytes that none
/// wrote are as they were.
#[test]
fn overlapping_writes_leave_a_byte_of_one_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let (path, socket) = (dir.path().join("disk"), dir.path().join("s"));
    std::fs::write(&path, vec![0xee; SIZE]).unwrap();
    let _volume = spawn(vec![disk("vm1", file_as(&path, Direct::Auto, Lock::On), &socket)]);
    let mut clients: Vec<Client> = (0..4).map(|_| Client::connect(&socket, "vm1")).collect();
    let mut random = fastrand::Rng::with_seed(11);
    let mut may: Vec<Vec<u8>> = vec![vec![0xee]; SIZE];
    for round in 0..60u8 {
        let mut written: Vec<Vec<u8>> = vec![Vec::new(); SIZE];
        for (i, client) in clients.iter_mut().enumerate() {
            let value = round.wrapping_mul(4).wrapping_add(i as u8);
            let (from, len) = (random.usize(..20_000), random.usize(1..9000));
            // Whole blocks are not held up by others of their kind, and must be by those with edges.
            let (from, len) = if i == 0 { (from & !4095, 8192) } else { (from, len) };
            written[from..from + len].iter_mut().for_each(|v| v.push(value));
            client.send(write(from as u64, len as u32), &vec![value; len]);
        }
        for client in &mut clients {
            assert_eq!(client.receive().unwrap().1, Ok(vec![]));
        }
        for (may, written) in may.iter_mut().zip(written) {
            if !written.is_empty() {
                *may = written;
            }
        }
        let bytes = clients[0].call(read(0, 40_000), &[]).unwrap();
        for (place, (byte, may)) in bytes.iter().zip(&may).enumerate() {
            assert!(may.contains(byte), "round {round}, byte {place}: {byte}, not of {may:?}");
        }
    }
}

#[test]
fn the_largest_read_may_begin_anywhere() {
    let dir = tempfile::tempdir().unwrap();
    let (path, socket) = (dir.path().join("disk"), dir.path().join("s"));
    std::fs::File::create(&path).unwrap().set_len(40 << 20).unwrap();
    let _volume = spawn(vec![disk("vm1", file_as(&path, Direct::Auto, Lock::On), &socket)]);
    let mut client = Client::connect(&socket, "vm1");
    let payload: Vec<u8> = (0..32u32 << 20).map(|i| (i % 251) as u8).collect();
    assert_eq!(client.call(write(4097, 32 << 20), &payload), Ok(vec![]));
    assert!(client.call(read(4097, 32 << 20), &[]).unwrap() == payload);
    assert_eq!(client.call(read(0, 4097), &[]).unwrap(), vec![0; 4097]);
}

#[test]
fn block_devices_take_any_request_whatever_their_blocks() {
    let dir = tempfile::tempdir().unwrap();
    for sector in [512_u32, 4096] {
        let (path, socket) = (dir.path().join("disk"), dir.path().join("s"));
        std::fs::write(&path, vec![0; SIZE]).unwrap();
        let Some(device) = LoopDevice::new(&path, &["--sector-size", &sector.to_string()]) else {
            return;
        };
        let backend = file_as(device.path(), Direct::On, Lock::On);
        let volume = spawn(vec![disk("vm1", backend, &socket)]);
        exercise(&socket, u64::from(sector));
        assert_eq!(volume.stats().unwrap().vms[0].errors, 0);
        volume.shutdown(std::time::Duration::from_secs(10)).unwrap();
    }
}

#[test]
fn a_block_device_in_the_page_cache_takes_whole_blocks_only() {
    let dir = tempfile::tempdir().unwrap();
    let (path, socket) = (dir.path().join("disk"), dir.path().join("s"));
    std::fs::write(&path, vec![0; SIZE]).unwrap();
    let Some(device) = LoopDevice::new(&path, &["--sector-size", "512"]) else { return };
    let backend = file_as(device.path(), Direct::Off, Lock::On);
    let volume = spawn(vec![disk("vm1", backend, &socket)]);
    let mut client = Client::connect(&socket, "vm1");
    assert_eq!(client.call(write(512, 512), &[7; 512]), Err(Errno::Inval));
    let zeroes = |offset, len| {
        let extent = parda_disk::Extent { offset, len };
        Op::WriteZeroes { extent, fua: false, no_hole: false, fast: false }
    };
    assert_eq!(client.call(zeroes(512, 4096), &[]), Err(Errno::Inval));
    assert_eq!(client.call(write(4096, 4096), &[7; 4096]), Ok(vec![]));
    assert_eq!(client.call(zeroes(0, 4096), &[]), Ok(vec![]));
    assert_eq!(client.call(read(4096, 4096), &[]), Ok(vec![7; 4096]));
    volume.shutdown(std::time::Duration::from_secs(10)).unwrap();
}

#[test]
fn no_part_of_a_block_is_written_where_other_agents_may_write_too() {
    let dir = tempfile::tempdir().unwrap();
    let (path, socket) = (dir.path().join("disk"), dir.path().join("s"));
    std::fs::write(&path, vec![0; SIZE]).unwrap();
    let Some(device) = LoopDevice::new(&path, &["--sector-size", "4096"]) else { return };
    let backend = file_as(device.path(), Direct::On, Lock::Shared);
    let volume = spawn(vec![disk("vm1", backend, &socket)]);
    let mut client = Client::connect(&socket, "vm1");
    assert_eq!(client.agreed.blocks.min(), 4096);
    assert_eq!(client.call(write(512, 512), &[7; 512]), Err(Errno::Inval));
    assert_eq!(client.call(write(4096, 4096), &[7; 4096]), Ok(vec![]));
    volume.shutdown(std::time::Duration::from_secs(10)).unwrap();
}

/// Serves a disk once its device is free: between fork and exec a process that another test starts has all that we have open.
fn spawn_when_free(disk: impl Fn() -> parda_block::DiskConfig) -> parda_block::Handle {
    let started = std::time::Instant::now();
    loop {
        match Volume::spawn(common::config(vec![disk()])) {
            Ok(volume) => return volume,
            Err(SpawnError::Backend { source: OpenError::InUse { .. }, .. })
                if started.elapsed().as_secs() < 10 =>
            {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_block_device_that_the_kernel_uses_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (path, socket) = (dir.path().join("disk"), dir.path().join("s"));
    std::fs::write(&path, vec![0; SIZE]).unwrap();
    let Some(device) = LoopDevice::new(&path, &["--sector-size", "512"]) else { return };
    let backend = || file_as(device.path(), Direct::Auto, Lock::On);
    // As a mount does.
    // Closed in what other tests start: it would hold the device for them.
    use rustix::fs::OFlags;
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    let claimed = rustix::fs::open(device.path(), flags, rustix::fs::Mode::empty()).unwrap();
    let refused = Volume::spawn(common::config(vec![disk("vm1", backend(), &socket)]));
    let Err(SpawnError::Backend { source, .. }) = refused else { panic!("{refused:?}") };
    assert!(matches!(&source, OpenError::InUse { who, .. } if who.contains("mounted")), "{source}");
    let reads = parda_block::DiskConfig { read_only: true, ..disk("vm1", backend(), &socket) };
    spawn(vec![reads]).shutdown(std::time::Duration::ZERO).unwrap();
    drop(claimed);
    let volume = spawn_when_free(|| disk("vm1", backend(), &socket));
    let busy = rustix::fs::open(device.path(), flags, rustix::fs::Mode::empty()).unwrap_err();
    assert_eq!(busy, rustix::io::Errno::BUSY, "nobody mounts what is served");
    volume.shutdown(std::time::Duration::from_secs(10)).unwrap();
}
