//! Requests of guests that are longer than a disk takes at once: those of firmware, which has files read whole.
use crate::common;

use std::collections::VecDeque;
use std::fs::File;
use std::path::Path;
use std::time::Instant;

use crate::guests::{FAILED, OK, SHAPE, SOON, guest_disk, until};
use crate::members::Slow;
use common::{config, disk, file, file_as, spawn, spawn_timed};
use parda_bench::driver::{Command, Driver};
use parda_block::{BackendConfig, Direct, Handle, Lock, NbdOptions, Volume};
use parda_control::{Bytes, Span};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 48 * MIB;

/// Address of the guest's room for data of any length.
const ROOM: u64 = 1 << 32;

fn connect(socket: &Path) -> Driver {
    let mut driver = Driver::connect(socket, SHAPE).unwrap();
    let room = File::from(memfd_create(c"room", MemfdFlags::CLOEXEC).unwrap());
    ftruncate(&room, SIZE).unwrap();
    driver.add_region(ROOM, &room).unwrap();
    driver
}

/// Waits for the one answer to slot 0, and returns the most memory that was in use meanwhile.
fn only_answer(volume: &Handle, driver: &mut Driver) -> (u8, usize) {
    let (end, mut most) = (Instant::now() + SOON, 0);
    let status = loop {
        most = most.max(volume.stats().unwrap().memory.buffers);
        if let Some((slot, status)) = driver.answered(0).unwrap() {
            assert_eq!(slot, 0);
            break status;
        }
        assert!(Instant::now() < end, "no answer");
    };
    assert_eq!(driver.perform(Command::Flush, SOON).unwrap(), OK);
    assert!(driver.answered(0).unwrap().is_none(), "a second answer");
    (status, most)
}

fn noise(len: u64, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let block: Vec<u8> = (0..4099).map(|_| random.u8(..)).collect();
    block.into_iter().cycle().take(len as usize).collect()
}

#[test]
fn a_request_of_any_length_is_done_whole_and_answered_once_on_every_backend() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for name in ["direct", "cached"] {
        File::create(path(name)).unwrap().set_len(SIZE).unwrap();
    }
    let upstream = spawn(vec![disk("m", BackendConfig::Memory { size: Bytes(SIZE) }, &path("u"))]);
    let uri = format!("nbd+unix:///m?socket={}", path("u").display());
    for (name, backend) in [
        ("memory", BackendConfig::Memory { size: Bytes(SIZE) }),
        ("direct", file(&path("direct"))),
        ("cached", file_as(&path("cached"), Direct::Off, Lock::On)),
        (
            "remote",
            BackendConfig::Nbd { uri: uri.parse().unwrap(), options: NbdOptions::default() },
        ),
    ] {
        let socket = path(&format!("{name}.vhost"));
        let mut config = config(vec![guest_disk(name, backend, &socket)]);
        config.limits.memory_per_connection = 6 << 20;
        let volume = Volume::spawn(config).unwrap();
        let mut driver = connect(&socket);
        // On blocks, and off them; in one descriptor, and in several of odd lengths.
        for (seed, (sector, len, cuts)) in (0..).zip([
            (0, 40 * MIB, vec![]),
            (8, 33 * MIB, vec![4096, 32 * MIB]),
            (1, 34 * MIB + 512, vec![100, 3 * MIB + 7]),
        ]) {
            let bytes = noise(len, seed);
            let ends: Vec<u64> = [&cuts[..], &[len]].concat();
            let starts = [&[0], &cuts[..]].concat();
            let places: Vec<_> = (starts.iter().zip(&ends))
                .map(|(start, end)| (ROOM + start, (end - start) as u32))
                .collect();
            driver.poke(ROOM, &bytes).unwrap();
            let len = len as u32;
            driver.submit_at(0, 0, Command::Write { sector, len }, &places).unwrap();
            driver.kick(0).unwrap();
            let (status, most) = only_answer(&volume, &mut driver);
            assert_eq!(status, OK, "{name}");
            assert!(most <= 8 << 20, "{name}: {most} bytes of memory");
            driver.poke(ROOM, &vec![0; bytes.len()]).unwrap();
            driver.submit_at(0, 0, Command::Read { sector, len }, &places).unwrap();
            driver.kick(0).unwrap();
            let (status, most) = only_answer(&volume, &mut driver);
            assert_eq!(status, OK, "{name}");
            assert!(most <= 8 << 20, "{name}: {most} bytes of memory");
            let mut read = vec![0; bytes.len()];
            driver.peek(ROOM, &mut read).unwrap();
            assert!(read == bytes, "{name}: {sector}, {len}");
        }
        assert_eq!(volume.stats().unwrap().vms[0].errors, 0);
        drop(driver);
        assert_eq!(volume.shutdown(SOON).unwrap().unanswered, 0);
    }
    upstream.shutdown(SOON).unwrap();
}

#[test]
fn a_long_request_of_which_a_part_fails_fails_once() {
    let dir = tempfile::tempdir().unwrap();
    let (path, socket) = (dir.path().join("disk"), dir.path().join("s"));
    File::create(&path).unwrap().set_len(SIZE).unwrap();
    let volume = spawn(vec![guest_disk("d", file(&path), &socket)]);
    let mut driver = connect(&socket);
    File::options().write(true).open(&path).unwrap().set_len(36 * MIB).unwrap();
    for (sector, len, expected) in [
        (0, 44 * MIB, FAILED),
        (0, 36 * MIB, OK),
        // Beyond the end that the guest knows.
        (1, 48 * MIB, FAILED),
    ] {
        let len = len as u32;
        driver.submit_at(0, 0, Command::Read { sector, len }, &[(ROOM, len)]).unwrap();
        driver.kick(0).unwrap();
        assert_eq!(only_answer(&volume, &mut driver).0, expected);
    }
    assert_eq!(volume.stats().unwrap().outstanding, 0);
    volume.shutdown(SOON).unwrap();
}

#[test]
fn a_long_request_is_finished_before_its_queue_stops_and_its_memory_goes() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let memory = BackendConfig::Memory { size: Bytes(SIZE) };
    let slow = || Slow(Span::from_millis(50), VecDeque::new());
    let volume = spawn_timed(vec![guest_disk("d", memory, &socket)], 1.0, slow());
    let mut driver = connect(&socket);
    let len = (40 * MIB) as u32;
    let submit = |driver: &mut Driver| {
        driver.submit_at(0, 0, Command::Write { sector: 0, len }, &[(ROOM, len)]).unwrap();
        driver.kick(0).unwrap();
    };
    submit(&mut driver);
    until("it is not taken", || volume.stats().unwrap().outstanding > 0);
    let before = volume.stats().unwrap().vms[0].writes.bytes;
    assert_eq!(driver.stop(0).unwrap(), 1);
    assert_eq!(driver.answered(0).unwrap(), Some((0, OK)));
    assert!(before < u64::from(len), "it was over before its queue was stopped");
    driver.restart(0).unwrap();
    submit(&mut driver);
    until("it is not taken", || volume.stats().unwrap().outstanding > 0);
    driver.remove_region(ROOM).unwrap();
    assert_eq!(driver.answered(0).unwrap(), Some((0, OK)));
    assert_eq!(volume.stats().unwrap().dropped.protocol, 0);
    volume.shutdown(SOON).unwrap();
}

#[test]
fn a_long_request_whose_front_end_goes_is_answered_once_to_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let memory = BackendConfig::Memory { size: Bytes(SIZE) };
    let slow = Slow(Span::from_millis(20), VecDeque::new());
    let volume = spawn_timed(vec![guest_disk("d", memory, &socket)], 1.0, slow);
    let shape = parda_bench::driver::Shape { slots: 1, data: 40 << 20, ..SHAPE };
    let mut driver = Driver::connect(&socket, shape).unwrap();
    let bytes = noise(40 * MIB, 5);
    driver.poke(driver.data(0, 0), &bytes).unwrap();
    let len = bytes.len() as u32;
    driver.submit(0, 0, Command::Write { sector: 0, len }).unwrap();
    driver.kick(0).unwrap();
    until("it is not taken", || volume.stats().unwrap().outstanding > 0);
    driver.reconnect(&socket).unwrap();
    assert_eq!(only_answer(&volume, &mut driver).0, OK);
    driver.poke(driver.data(0, 0), &vec![0; bytes.len()]).unwrap();
    assert_eq!(driver.perform(Command::Read { sector: 0, len }, SOON).unwrap(), OK);
    let mut read = vec![0; bytes.len()];
    driver.peek(driver.data(0, 0), &mut read).unwrap();
    assert!(read == bytes);
    volume.shutdown(SOON).unwrap();
}
