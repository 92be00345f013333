//! Guests by vhost-user: their data, what they may ask for, and what they must not be able to do.
use crate::common;

use std::collections::VecDeque;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::members::Slow;
use common::{disk, file, file_as, spawn, spawn_timed};
use parda_address::Address;
use parda_bench::driver::{Command, Driver, Shape};
use parda_block::{BackendConfig, Direct, DiskConfig, Handle, Lock, NbdOptions};
use parda_control::{Bytes, Measurement, Span};

pub(crate) const SIZE: u64 = 4 << 20;

/// For what is done at once, on a machine that may be busy.
pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) const OK: u8 = 0;
pub(crate) const FAILED: u8 = 1;
const UNSUPPORTED: u8 = 2;

pub(crate) const SHAPE: Shape =
    Shape { queues: 1, slots: 16, data: 256 << 10, indirect: true, event_idx: true };

pub(crate) fn guest_disk(export: &str, backend: BackendConfig, socket: &Path) -> DiskConfig {
    DiskConfig { listen: Address::Vhost(socket.into()), ..disk(export, backend, socket) }
}

/// Random requests of all kinds in all slots, those in flight together never overlap, against an array of bytes.
fn exercise(driver: &mut Driver, shape: Shape, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut model = vec![0u8; SIZE as usize];
    for _ in 0..60 {
        let mut taken = vec![false; SIZE as usize / 512];
        let mut reads = Vec::new();
        let mut sent = vec![0; usize::from(shape.queues)];
        for slot in 0..shape.slots {
            let queue = random.u16(..shape.queues);
            let most = shape.data as usize / 512;
            let count =
                if random.u8(..8) == 0 { random.usize(1..=most) } else { random.usize(1..17) };
            // Mostly on blocks of 4096 bytes, where nothing has to be copied.
            let unit = if random.u8(..4) == 0 { 1 } else { 8 };
            let count = count.next_multiple_of(unit);
            let first = random.usize(..(SIZE as usize / 512 - count) / unit) * unit;
            if count > most || taken[first..first + count].iter().any(|t| *t) {
                continue;
            }
            taken[first..first + count].fill(true);
            let range = first * 512..(first + count) * 512;
            let (sector, len) = (first as u64, range.len() as u32);
            let command = match random.u8(..10) {
                0..4 => {
                    reads.push((queue, slot, range.clone()));
                    Command::Read { sector, len }
                }
                4..7 => {
                    model[range.clone()].fill_with(|| random.u8(..));
                    driver.poke(driver.data(queue, slot), &model[range]).unwrap();
                    Command::Write { sector, len }
                }
                7 => {
                    model[range].fill(0);
                    Command::WriteZeroes { sector, count: count as u32, unmap: random.bool() }
                }
                _ => Command::Flush,
            };
            driver.submit(queue, slot, command).unwrap();
            sent[usize::from(queue)] += 1;
        }
        (0..shape.queues).for_each(|queue| driver.kick(queue).unwrap());
        for (queue, left) in (0..).zip(&mut sent) {
            while *left > 0 {
                match driver.answered(queue).unwrap() {
                    Some((_, status)) => {
                        assert_eq!(status, OK);
                        *left -= 1;
                    }
                    None => assert!(driver.wait(queue, SOON).unwrap(), "no answer"),
                }
            }
        }
        for (queue, slot, range) in reads {
            let mut bytes = vec![0; range.len()];
            driver.peek(driver.data(queue, slot), &mut bytes).unwrap();
            assert!(bytes == model[range.clone()], "{range:?}");
        }
    }
    model
}

#[test]
fn a_guest_reads_what_it_wrote_on_every_backend_by_every_kind_of_queue() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for name in ["direct", "cached"] {
        std::fs::write(path(name), vec![0; SIZE as usize]).unwrap();
    }
    let upstream = spawn(vec![disk("m", BackendConfig::Memory { size: Bytes(SIZE) }, &path("u"))]);
    let uri = format!("nbd+unix:///m?socket={}", path("u").display());
    let backends = [
        ("memory", BackendConfig::Memory { size: Bytes(SIZE) }),
        ("direct", file(&path("direct"))),
        ("cached", file_as(&path("cached"), Direct::Off, Lock::On)),
        (
            "remote",
            BackendConfig::Nbd { uri: uri.parse().unwrap(), options: NbdOptions::default() },
        ),
    ];
    for (seed, (name, backend)) in (0..).zip(backends) {
        let socket = path(&format!("{name}.vhost"));
        let volume = spawn(vec![guest_disk(name, backend, &socket)]);
        let (indirect, event_idx) =
            [(false, false), (true, false), (false, true), (true, true)][seed];
        let shape = Shape { queues: 3, indirect, event_idx, ..SHAPE };
        let mut driver = Driver::connect(&socket, shape).unwrap();
        assert_eq!(driver.size().unwrap(), SIZE);
        let model = exercise(&mut driver, shape, seed as u64);
        let stats = volume.stats().unwrap();
        assert_eq!((stats.vms[0].clients, stats.vms[0].errors), (1, 0));
        assert!(stats.vms[0].writes.ios > 0 && stats.memory.buffers < 1 << 20);
        drop(driver);
        assert_eq!(volume.shutdown(SOON).unwrap().unanswered, 0);
        if let Ok(bytes) = std::fs::read(path(name)) {
            assert!(bytes == model, "{name}");
        }
    }
    upstream.shutdown(SOON).unwrap();
}

#[test]
fn a_guest_is_told_what_its_disk_cannot_do() {
    let dir = tempfile::tempdir().unwrap();
    let (path, socket) = (dir.path().join("disk"), dir.path().join("s"));
    std::fs::write(&path, vec![7; SIZE as usize]).unwrap();
    let volume = spawn(vec![guest_disk("a-disk-with-a-name", file(&path), &socket)]);
    let mut driver = Driver::connect(&socket, SHAPE).unwrap();
    let mut perform = |command| driver.perform(command, SOON).unwrap();
    let end = SIZE / 512;
    assert_eq!(perform(Command::Read { sector: end - 8, len: 4096 }), OK);
    assert_eq!(perform(Command::Read { sector: end - 7, len: 4096 }), FAILED);
    assert_eq!(perform(Command::Write { sector: u64::MAX / 512, len: 4096 }), FAILED);
    assert_eq!(perform(Command::Write { sector: 0, len: 4095 }), FAILED);
    assert_eq!(perform(Command::Discard { sector: 0, count: 8 }), OK);
    assert_eq!(perform(Command::Discard { sector: end, count: 8 }), FAILED);
    assert_eq!(perform(Command::WriteZeroes { sector: 8, count: 8, unmap: false }), OK);
    assert_eq!(perform(Command::Flush), OK);
    assert_eq!(perform(Command::Serial), OK);
    let mut serial = [0; 20];
    driver.peek(driver.data(0, 0), &mut serial).unwrap();
    assert_eq!(&serial, b"a-disk-with-a-name\0\0");
    // A kind that there is not: its header is that of the slot, written anew.
    driver.submit(0, 0, Command::Read { sector: 0, len: 512 }).unwrap();
    let header = driver.data(0, 0) - 0x1000;
    driver.poke(header, &77u32.to_le_bytes()).unwrap();
    driver.kick(0).unwrap();
    assert_eq!(driver.one(SOON).unwrap(), UNSUPPORTED);
    drop(driver);
    volume.shutdown(SOON).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes[..8192].iter().all(|b| *b == 0) && bytes[8192..].iter().all(|b| *b == 7));

    let mut config = guest_disk("r", file(&path), &socket);
    config.read_only = true;
    let volume = spawn(vec![config]);
    let mut driver = Driver::connect(&socket, SHAPE).unwrap();
    assert_ne!(driver.features & (1 << 5), 0, "VIRTIO_BLK_F_RO");
    assert_eq!(driver.perform(Command::Write { sector: 0, len: 512 }, SOON).unwrap(), FAILED);
    assert_eq!(driver.perform(Command::Read { sector: 0, len: 512 }, SOON).unwrap(), OK);
    volume.shutdown(SOON).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

#[test]
fn disks_whose_long_names_begin_alike_have_serial_numbers_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let serials =
        ["production-database-01-vda", "production-database-01-vdb", "dééééééééééé"].map(|name| {
            let socket = dir.path().join(name);
            let backend = BackendConfig::Memory { size: Bytes(SIZE) };
            let volume = spawn(vec![guest_disk(name, backend, &socket)]);
            let mut driver = Driver::connect(&socket, SHAPE).unwrap();
            assert_eq!(driver.perform(Command::Serial, SOON).unwrap(), OK);
            let mut serial = [0; 20];
            driver.peek(driver.data(0, 0), &mut serial).unwrap();
            drop(driver);
            volume.shutdown(SOON).unwrap();
            String::from_utf8(serial.to_vec()).unwrap()
        });
    assert!(serials[..2].iter().all(|serial| serial.starts_with("production-")), "{serials:?}");
    assert_ne!(serials[0], serials[1]);
    assert!(serials[2].starts_with("déééé"), "{serials:?}");
}

/// Waits until something holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_guest_is_told_that_its_disk_has_grown_while_it_runs() {
    let dir = tempfile::tempdir().unwrap();
    let (path, socket) = (dir.path().join("disk"), dir.path().join("s"));
    std::fs::write(&path, vec![0; SIZE as usize]).unwrap();
    let volume = spawn(vec![guest_disk("d", file(&path), &socket)]);
    let mut driver = Driver::connect(&socket, SHAPE).unwrap();
    let write = Command::Write { sector: SIZE / 512, len: 4096 };
    assert_eq!(driver.perform(write, SOON).unwrap(), FAILED);
    std::fs::File::options().write(true).open(&path).unwrap().set_len(2 * SIZE).unwrap();
    let mut message = [0; 12];
    let channel = driver.channel.as_ref().unwrap().try_clone().unwrap();
    let channel = UnixStream::from(channel);
    channel.set_nonblocking(true).unwrap();
    // It is told once after its start as well.
    until("no message of the change", || {
        volume.measure(Measurement::default()).unwrap();
        let told = std::io::Read::read_exact(&mut &channel, &mut message).is_ok();
        told && driver.size().unwrap() == 2 * SIZE
    });
    assert_eq!(
        message,
        [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
        "VHOST_USER_BACKEND_CONFIG_CHANGE_MSG"
    );
    assert_eq!(driver.perform(write, SOON).unwrap(), OK);
    volume.shutdown(SOON).unwrap();
}

#[test]
fn a_guest_is_told_of_the_size_that_its_disk_has_in_the_next_agent() {
    let dir = tempfile::tempdir().unwrap();
    let (path, socket) = (dir.path().join("disk"), dir.path().join("s"));
    std::fs::write(&path, vec![0; SIZE as usize]).unwrap();
    let volume = spawn(vec![guest_disk("d", file(&path), &socket)]);
    let mut driver = Driver::connect(&socket, SHAPE).unwrap();
    volume.shutdown(SOON).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(2 * SIZE).unwrap();
    let volume = spawn(vec![guest_disk("d", file(&path), &socket)]);
    driver.reconnect(&socket).unwrap();
    let channel = UnixStream::from(driver.channel.as_ref().unwrap().try_clone().unwrap());
    channel.set_read_timeout(Some(SOON)).unwrap();
    let mut message = [0; 12];
    std::io::Read::read_exact(&mut &channel, &mut message).unwrap();
    assert_eq!(message[..4], [2, 0, 0, 0], "VHOST_USER_BACKEND_CONFIG_CHANGE_MSG");
    assert_eq!(driver.size().unwrap(), 2 * SIZE);
    volume.shutdown(SOON).unwrap();
}

/// A disk that may have an IO in ten seconds, and its front end with 16 writes, of which one has gone.
fn held_by_a_limit(socket: &Path) -> (Handle, Driver) {
    let mut config = guest_disk("d", BackendConfig::Memory { size: Bytes(SIZE) }, socket);
    config.settings = toml::from_str("limit = { iops = 0.1 }").unwrap();
    let volume = spawn(vec![config]);
    let mut driver = Driver::connect(socket, SHAPE).unwrap();
    for slot in 0..16 {
        driver.submit(0, slot, Command::Write { sector: u64::from(slot), len: 512 }).unwrap();
    }
    driver.kick(0).unwrap();
    until("they are not taken", || volume.stats().unwrap().held == 15);
    (volume, driver)
}

#[test]
fn a_queue_is_stopped_though_a_limit_holds_its_requests() {
    let dir = tempfile::tempdir().unwrap();
    let (volume, mut driver) = held_by_a_limit(&dir.path().join("s"));
    let began = Instant::now();
    assert_eq!(driver.stop(0).unwrap(), 16);
    assert!(began.elapsed() < SOON, "their limit would take 150 s");
    for _ in 0..16 {
        assert_eq!(driver.answered(0).unwrap().unwrap().1, OK);
    }
    assert_eq!(volume.stats().unwrap().vms[0].writes.ios, 16);
    volume.shutdown(SOON).unwrap();
}

#[test]
fn requests_that_a_limit_holds_of_a_front_end_that_is_gone_do_not_keep_the_next_one_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let (volume, driver) = held_by_a_limit(&socket);
    drop(driver);
    let began = Instant::now();
    let mut next = Driver::connect(&socket, SHAPE).unwrap();
    assert_eq!(next.perform(Command::Flush, SOON).unwrap(), OK);
    assert!(began.elapsed() < SOON, "their limit would take 150 s");
    assert_eq!(volume.stats().unwrap().vms[0].writes.ios, 1);
    volume.shutdown(SOON).unwrap();
}

#[test]
fn a_disk_has_one_front_end_at_a_time_and_the_next_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let memory = BackendConfig::Memory { size: Bytes(SIZE) };
    let volume = spawn(vec![guest_disk("d", memory, &socket)]);
    let mut driver = Driver::connect(&socket, SHAPE).unwrap();
    driver.poke(driver.data(0, 0), &[5; 4096]).unwrap();
    assert_eq!(driver.perform(Command::Write { sector: 0, len: 4096 }, SOON).unwrap(), OK);
    // A second front end has nothing while the first one is there, and is turned away after a while.
    assert!(Driver::connect(&socket, SHAPE).is_err(), "a second front end");
    // A guest that is reset stops its queues and starts them again.
    assert_eq!(driver.stop(0).unwrap(), 1);
    driver.restart(0).unwrap();
    assert_eq!(driver.perform(Command::Read { sector: 0, len: 4096 }, SOON).unwrap(), OK);
    // One that comes as the first one goes waits for its end.
    let next = std::thread::scope(|scope| {
        let next = scope.spawn(|| Driver::connect(&socket, SHAPE));
        drop(driver);
        next.join().unwrap()
    });
    let mut next = next.unwrap();
    assert_eq!(next.perform(Command::Read { sector: 0, len: 4096 }, SOON).unwrap(), OK);
    let mut bytes = [0; 4096];
    next.peek(next.data(0, 0), &mut bytes).unwrap();
    assert_eq!(bytes, [5; 4096]);
    volume.shutdown(SOON).unwrap();
}

#[test]
fn requests_at_the_array_when_the_front_end_goes_are_answered_to_the_next_one_once() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let memory = BackendConfig::Memory { size: Bytes(SIZE) };
    let slow = Slow(Span::from_millis(300), VecDeque::new());
    let volume = spawn_timed(vec![guest_disk("d", memory, &socket)], 64.0, slow);
    let mut driver = Driver::connect(&socket, SHAPE).unwrap();
    for slot in 0..8u16 {
        driver.poke(driver.data(0, slot), &[slot as u8 + 1; 4096]).unwrap();
        driver.submit(0, slot, Command::Write { sector: u64::from(slot) * 8, len: 4096 }).unwrap();
    }
    driver.kick(0).unwrap();
    until("they are not taken", || volume.stats().unwrap().outstanding == 8);
    driver.reconnect(&socket).unwrap();
    let mut answered = Vec::new();
    while answered.len() < 8 {
        assert!(driver.wait(0, SOON).unwrap(), "no answer to {answered:?} of 8");
        answered.extend(driver.answered(0).unwrap());
    }
    answered.sort_unstable();
    assert_eq!(answered, (0..8).map(|slot| (slot, OK)).collect::<Vec<_>>());
    for slot in 0..8 {
        let read = Command::Read { sector: slot * 8, len: 4096 };
        assert_eq!(driver.perform(read, SOON).unwrap(), OK);
        let mut bytes = [0; 4096];
        driver.peek(driver.data(0, 0), &mut bytes).unwrap();
        assert_eq!(bytes, [slot as u8 + 1; 4096]);
    }
    volume.shutdown(SOON).unwrap();
}

/// A volume with a disk for a guest that breaks the rules, and one for a guest that does not.
fn two(dir: &Path) -> (Handle, [std::path::PathBuf; 2]) {
    let sockets = ["bad", "good"].map(|name| dir.join(name));
    let memory = || BackendConfig::Memory { size: Bytes(SIZE) };
    let disks =
        vec![guest_disk("bad", memory(), &sockets[0]), guest_disk("good", memory(), &sockets[1])];
    (spawn(disks), sockets)
}

#[test]
fn a_guest_that_breaks_the_rules_stops_its_own_disk_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let (volume, [bad, good]) = two(dir.path());
    let mut neighbour = Driver::connect(&good, SHAPE).unwrap();
    let plain = Shape { indirect: false, ..SHAPE };
    type Break = fn(&mut Driver);
    let attacks: [(&str, Break); 7] = [
        ("a descriptor outside of memory", |d| {
            d.submit_chain(0, 0, &[(1 << 50, 16, false), (1 << 50, 4096, true)]).unwrap();
        }),
        ("a chain without a status", |d| {
            d.submit_chain(0, 0, &[(d.data(0, 0), 16, false)]).unwrap();
        }),
        ("a chain without a header", |d| {
            d.submit_chain(0, 0, &[(d.data(0, 0), 1, true)]).unwrap();
        }),
        ("a readable descriptor behind a writable one", |d| {
            let data = d.data(0, 0);
            d.submit_chain(0, 0, &[(data, 16, false), (data, 1, true), (data, 16, false)]).unwrap();
        }),
        ("a chain that is a circle", |d| {
            let data = d.data(0, 0);
            d.submit_chain(0, 0, &[(data, 16, false), (data, 16, false)]).unwrap();
            let [table, ..] = d.places(0);
            // The second descriptor goes on with the first.
            d.poke(table + 16 + 12, &[1, 0, 0, 0]).unwrap();
        }),
        ("a head outside of the table", |d| {
            d.submit(0, 0, Command::Flush).unwrap();
            let [_, available, _] = d.places(0);
            d.poke(available + 4, &999u16.to_le_bytes()).unwrap();
        }),
        ("more requests than descriptors", |d| {
            let [_, available, _] = d.places(0);
            d.poke(available + 2, &5000u16.to_le_bytes()).unwrap();
        }),
    ];
    for (n, (name, attack)) in (1..).zip(attacks) {
        let mut driver = None;
        until("the former front end is still there", || {
            driver = Driver::connect(&bad, plain).ok();
            driver.is_some()
        });
        let mut driver = driver.unwrap();
        attack(&mut driver);
        // The jump of the index stands already.
        if name != "more requests than descriptors" {
            driver.kick(0).unwrap();
        } else {
            driver.submit(0, 0, Command::Flush).unwrap();
            driver.wake(0).unwrap();
        }
        until(name, || volume.stats().unwrap().dropped.protocol == n);
        assert!(driver.answered(0).unwrap().is_none(), "{name}");
        // When it is reset, it is served again.
        driver.reset(0).unwrap();
        assert_eq!(driver.perform(Command::Flush, SOON).unwrap(), OK, "{name}");
        assert_eq!(neighbour.perform(Command::Flush, SOON).unwrap(), OK, "{name}");
    }
    volume.shutdown(SOON).unwrap();
}

#[test]
fn a_guest_whose_memory_is_truncated_stops_its_own_disk_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let (volume, [bad, good]) = two(dir.path());
    let mut neighbour = Driver::connect(&good, SHAPE).unwrap();
    let mut driver = Driver::connect(&bad, SHAPE).unwrap();
    assert_eq!(driver.perform(Command::Flush, SOON).unwrap(), OK);
    driver.file.set_len(0).unwrap();
    driver.wake(0).unwrap();
    until("the loss is not noticed", || volume.stats().unwrap().dropped.protocol == 1);
    assert_eq!(neighbour.perform(Command::Flush, SOON).unwrap(), OK);
    volume.shutdown(SOON).unwrap();
}

#[test]
fn an_io_of_memory_that_is_gone_fails_and_the_guest_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    for (name, direct) in [("cached", Direct::Off), ("direct", Direct::Auto)] {
        let (path, socket) = (dir.path().join(name), dir.path().join("s"));
        std::fs::write(&path, vec![7; SIZE as usize]).unwrap();
        let volume = spawn(vec![guest_disk(name, file_as(&path, direct, Lock::On), &socket)]);
        let mut driver = Driver::connect(&socket, SHAPE).unwrap();
        // Queues and headers stay. The kernel moves the data, and finds no page.
        let data = driver.data(0, 0) - driver.places(0)[0];
        driver.file.set_len(data).unwrap();
        let (sector, len) = (0, 8192);
        assert_eq!(driver.perform(Command::Read { sector, len }, SOON).unwrap(), FAILED, "{name}");
        assert_eq!(driver.perform(Command::Write { sector, len }, SOON).unwrap(), FAILED, "{name}");
        assert_eq!(driver.perform(Command::Flush, SOON).unwrap(), OK, "{name}");
        let stats = volume.stats().unwrap();
        assert_eq!(stats.dropped.protocol, 0);
        // No fault of the array, which has an alert.
        assert_eq!((stats.vms[0].errors, stats.vms[0].guest_faults), (0, 2));
        assert_eq!(stats.vms[0].client_faults, 0);
        volume.shutdown(SOON).unwrap();
        assert!(std::fs::read(&path).unwrap().iter().all(|byte| *byte == 7));
    }
}

#[test]
fn half_a_message_makes_nobody_wait() {
    let dir = tempfile::tempdir().unwrap();
    let (volume, [bad, good]) = two(dir.path());
    let mut half = UnixStream::connect(&bad).unwrap();
    half.write_all(&[1, 0, 0]).unwrap();
    let mut neighbour = Driver::connect(&good, SHAPE).unwrap();
    assert_eq!(neighbour.perform(Command::Flush, SOON).unwrap(), OK);
    // What is no message at all ends the connection.
    half.write_all(&[0xff; 64]).unwrap();
    until("the connection stays", || {
        volume.stats().unwrap().vms.iter().map(|vm| vm.clients).sum::<usize>() == 1
    });
    assert_eq!(neighbour.perform(Command::Flush, SOON).unwrap(), OK);
    volume.shutdown(SOON).unwrap();
}
