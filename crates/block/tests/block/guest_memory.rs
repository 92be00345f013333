//! Memory that a guest gets and gives back while it runs.
use crate::common;

use std::collections::VecDeque;
use std::fs::File;
use std::time::Instant;

use crate::guests::{OK, SHAPE, SIZE, SOON, guest_disk, until};
use crate::members::Slow;
use common::{file, spawn, spawn_timed};
use parda_bench::driver::{Command, Driver};
use parda_block::BackendConfig;
use parda_control::{Bytes, Span};
use parda_vhost::MAX_REGIONS;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

const REGION: u64 = 64 << 10;

/// Far from what a driver has.
const FAR: u64 = 1 << 32;

fn region() -> File {
    let file = File::from(memfd_create(c"dimm", MemfdFlags::CLOEXEC).unwrap());
    ftruncate(&file, REGION).unwrap();
    file
}

fn memory() -> BackendConfig {
    BackendConfig::Memory { size: Bytes(SIZE) }
}

/// Does a request with its data at an address of the guest.
fn perform_at(driver: &mut Driver, command: Command, place: u64) -> u8 {
    driver.submit_at(0, 0, command, &[(place, 4096)]).unwrap();
    driver.kick(0).unwrap();
    driver.one(SOON).unwrap()
}

#[test]
fn a_guest_has_as_many_regions_as_qemu_s_own_back_ends_take_and_one_too_many_is_refused_alone() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let volume = spawn(vec![guest_disk("d", memory(), &socket)]);
    let mut driver = Driver::connect(&socket, SHAPE).unwrap();
    let slots = driver.most_regions().unwrap();
    assert_eq!((slots, slots), (MAX_REGIONS as u64, 509));
    let dimm = |n: u64| FAR + n * REGION;
    // The driver has one already.
    for n in 1..slots {
        driver.add_region(dimm(n), &region()).unwrap();
    }
    assert!(driver.add_region(dimm(slots), &region()).is_err(), "one too many");
    for n in [1, 254, 508] {
        driver.poke(dimm(n), &[n as u8; 4096]).unwrap();
        let (sector, len) = (n * 8, 4096);
        assert_eq!(perform_at(&mut driver, Command::Write { sector, len }, dimm(n)), OK);
    }
    // Data may cross regions.
    let (sector, len) = (254 * 8, 4096);
    let across = dimm(300) - 2048;
    assert_eq!(perform_at(&mut driver, Command::Read { sector, len }, across), OK);
    let mut bytes = [0; 4096];
    driver.peek(across, &mut bytes).unwrap();
    assert_eq!(bytes, [254; 4096]);
    for n in 1..slots {
        driver.remove_region(dimm(n)).unwrap();
    }
    assert!(driver.remove_region(dimm(1)).is_err());
    assert_eq!(driver.perform(Command::Flush, SOON).unwrap(), OK, "the connection goes on");
    assert_eq!(volume.stats().unwrap().dropped.protocol, 0);
    volume.shutdown(SOON).unwrap();
}

#[test]
fn regions_come_and_go_while_others_are_under_load() {
    let dir = tempfile::tempdir().unwrap();
    let (path, socket) = (dir.path().join("disk"), dir.path().join("s"));
    std::fs::write(&path, vec![0; SIZE as usize]).unwrap();
    let volume = spawn(vec![guest_disk("d", file(&path), &socket)]);
    let mut driver = Driver::connect(&socket, SHAPE).unwrap();
    let mut random = fastrand::Rng::with_seed(11);
    for round in 0..200u64 {
        let dimm = FAR + random.u64(..64) * REGION;
        driver.add_region(dimm, &region()).unwrap();
        let mut others = 8;
        for slot in 0..8u16 {
            let byte = (round as u8).wrapping_add(slot as u8 + 1);
            driver.poke(dimm + u64::from(slot) * 4096, &[byte; 4096]).unwrap();
            let command = Command::Write { sector: u64::from(slot) * 8, len: 4096 };
            driver.submit_at(0, slot, command, &[(dimm + u64::from(slot) * 4096, 4096)]).unwrap();
            let command = Command::Read { sector: 1024 + u64::from(slot) * 8, len: 4096 };
            driver.submit(0, slot + 8, command).unwrap();
        }
        driver.kick(0).unwrap();
        // What was not taken yet when its memory goes would be outside of memory. The other half may be at any point.
        let mut left = 8;
        while left > 0 {
            match driver.answered(0).unwrap() {
                Some((slot, status)) => {
                    assert_eq!(status, OK);
                    left -= u16::from(slot < 8);
                    others -= u16::from(slot >= 8);
                }
                None => assert!(driver.wait(0, SOON).unwrap(), "no answer"),
            }
        }
        driver.remove_region(dimm).unwrap();
        while others > 0 {
            match driver.answered(0).unwrap() {
                Some((_, status)) => {
                    assert_eq!(status, OK);
                    others -= 1;
                }
                None => assert!(driver.wait(0, SOON).unwrap(), "no answer"),
            }
        }
        for slot in 0..8u16 {
            let read = Command::Read { sector: u64::from(slot) * 8, len: 4096 };
            assert_eq!(driver.perform(read, SOON).unwrap(), OK);
            let mut bytes = [0; 4096];
            driver.peek(driver.data(0, 0), &mut bytes).unwrap();
            assert_eq!(bytes, [(round as u8).wrapping_add(slot as u8 + 1); 4096]);
        }
    }
    assert_eq!(volume.stats().unwrap().dropped.protocol, 0);
    volume.shutdown(SOON).unwrap();
}

#[test]
fn a_region_is_removed_when_the_requests_that_use_it_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let slow = Slow(Span::from_millis(300), VecDeque::new());
    let volume = spawn_timed(vec![guest_disk("d", memory(), &socket)], 64.0, slow);
    let mut driver = Driver::connect(&socket, SHAPE).unwrap();
    driver.add_region(FAR, &region()).unwrap();
    for slot in 0..8u16 {
        let command = Command::Read { sector: u64::from(slot) * 8, len: 4096 };
        driver.submit_at(0, slot, command, &[(FAR + u64::from(slot) * 4096, 4096)]).unwrap();
    }
    driver.kick(0).unwrap();
    until("they are not taken", || volume.stats().unwrap().outstanding == 8);
    driver.remove_region(FAR).unwrap();
    for _ in 0..8 {
        assert_eq!(driver.answered(0).unwrap().expect("it was answered before").1, OK);
    }
    volume.shutdown(SOON).unwrap();
}

#[test]
fn a_region_is_removed_though_a_limit_holds_the_requests_that_use_it() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let mut config = guest_disk("d", memory(), &socket);
    config.settings = toml::from_str("limit = { iops = 0.1 }").unwrap();
    let volume = spawn(vec![config]);
    let mut driver = Driver::connect(&socket, SHAPE).unwrap();
    driver.add_region(FAR, &region()).unwrap();
    for slot in 0..8u16 {
        let command = Command::Write { sector: u64::from(slot), len: 512 };
        driver.submit_at(0, slot, command, &[(FAR, 512)]).unwrap();
    }
    driver.kick(0).unwrap();
    until("they are not taken", || volume.stats().unwrap().held == 7);
    let began = Instant::now();
    driver.remove_region(FAR).unwrap();
    assert!(began.elapsed() < SOON, "their limit would take 70 s");
    for _ in 0..8 {
        assert_eq!(driver.answered(0).unwrap().unwrap().1, OK);
    }
    volume.shutdown(SOON).unwrap();
}

#[test]
fn all_of_a_guest_s_memory_may_go_and_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let volume = spawn(vec![guest_disk("d", memory(), &socket)]);
    let mut driver = Driver::connect(&socket, SHAPE).unwrap();
    driver.poke(driver.data(0, 0), &[3; 4096]).unwrap();
    assert_eq!(driver.perform(Command::Write { sector: 0, len: 4096 }, SOON).unwrap(), OK);
    driver.stop(0).unwrap();
    driver.replug().unwrap();
    driver.restart(0).unwrap();
    assert_eq!(driver.perform(Command::Read { sector: 0, len: 4096 }, SOON).unwrap(), OK);
    assert_eq!(volume.stats().unwrap().dropped.protocol, 0);
    volume.shutdown(SOON).unwrap();
}
