//! Front ends that are not QEMU: what they may leave out, and what they may ask for in vain.
use crate::common;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::guests::{FAILED, OK, SHAPE, SIZE, SOON, guest_disk};
use common::spawn;
use parda_bench::driver::{Command, Driver};
use parda_block::{BackendConfig, Handle};
use parda_control::Bytes;

const SET_FEATURES: u32 = 2;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
const SET_VRING_ERR: u32 = 14;
const SET_VRING_ENABLE: u32 = 18;
const SET_CONFIG: u32 = 25;

/// `VHOST_USER_VRING_NOFD_MASK`, for queue 0.
const NO_FD: u64 = 1 << 8;

/// A message, and what is answered to it: 0 for success. `None` without a request for an answer.
fn send(socket: &mut UnixStream, message: u32, body: &[u8], asks: bool) -> Option<u64> {
    let flags: u32 = if asks { 1 | 1 << 3 } else { 1 };
    let header = [message, flags, body.len() as u32].map(u32::to_ne_bytes).concat();
    socket.write_all(&[&header, body].concat()).unwrap();
    asks.then(|| {
        let mut answer = [0; 20];
        socket.read_exact(&mut answer).unwrap();
        let [.., a, b, c, d, e, f, g, h] = answer;
        u64::from_ne_bytes([a, b, c, d, e, f, g, h])
    })
}

/// A disk, its front end, and the socket of that for messages of other kinds.
fn connected(path: &Path) -> (Handle, Driver, UnixStream) {
    let memory = BackendConfig::Memory { size: Bytes(SIZE) };
    let volume = spawn(vec![guest_disk("d", memory, path)]);
    let socket = UnixStream::connect(path).unwrap();
    let driver = Driver::over(socket.try_clone().unwrap(), SHAPE).unwrap();
    (volume, driver, socket)
}

#[test]
fn a_queue_without_a_descriptor_for_kicks_is_looked_at_without_one() {
    let dir = tempfile::tempdir().unwrap();
    let (volume, mut driver, mut socket) = connected(&dir.path().join("s"));
    assert_eq!(driver.perform(Command::Flush, SOON).unwrap(), OK);
    for asks in [true, false] {
        driver.stop(0).unwrap();
        for message in [SET_VRING_ERR, SET_VRING_KICK] {
            let answer = send(&mut socket, message, &NO_FD.to_ne_bytes(), asks);
            assert_eq!(answer, asks.then_some(0), "message {message}");
        }
        send(&mut socket, SET_VRING_ENABLE, &[0, 0, 0, 0, 1, 0, 0, 0], true);
        for _ in 0..20 {
            // Long enough for the volume's thread to sleep.
            std::thread::sleep(std::time::Duration::from_millis(3));
            assert_eq!(driver.perform(Command::Flush, SOON).unwrap(), OK);
        }
    }
    // Nor need the guest be called.
    let answer = send(&mut socket, SET_VRING_CALL, &NO_FD.to_ne_bytes(), true);
    assert_eq!(answer, Some(0));
    driver.submit(0, 0, Command::Read { sector: SIZE / 512, len: 512 }).unwrap();
    driver.kick(0).unwrap();
    let mut status = None;
    crate::guests::until("it is not answered", || {
        status = driver.answered(0).unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().1, FAILED);
    // A queue that is stopped is not looked at.
    driver.stop(0).unwrap();
    driver.restart(0).unwrap();
    assert_eq!(driver.perform(Command::Flush, SOON).unwrap(), OK);
    assert_eq!(volume.stats().unwrap().dropped.protocol, 0);
    volume.shutdown(SOON).unwrap();
}

#[test]
fn what_is_refused_is_answered_and_the_connection_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (volume, mut driver, mut socket) = connected(&dir.path().join("s"));
    // Offset, size, flags, and the byte of the write cache.
    let config = [32u32, 1, 0].map(u32::to_ne_bytes).concat();
    let config = [&config[..], &[1]].concat();
    let queue = [999u32, 128].map(u32::to_ne_bytes).concat();
    for (message, body) in [
        (SET_CONFIG, &config[..]),
        (SET_VRING_NUM, &queue),
        (SET_FEATURES, &u64::MAX.to_ne_bytes()),
        // They speak of a descriptor, and have none.
        (SET_VRING_KICK, &0u64.to_ne_bytes()),
        (SET_VRING_CALL, &0u64.to_ne_bytes()),
        (SET_VRING_ERR, &0u64.to_ne_bytes()),
    ] {
        assert_eq!(send(&mut socket, message, body, true), Some(1), "message {message}");
        assert_eq!(driver.perform(Command::Flush, SOON).unwrap(), OK, "message {message}");
    }
    // A write of the configuration space changes nothing: who does not ask need not know.
    send(&mut socket, SET_CONFIG, &config, false);
    assert_eq!(driver.size().unwrap(), SIZE);
    assert_eq!(driver.perform(Command::Flush, SOON).unwrap(), OK);
    assert_eq!(volume.stats().unwrap().dropped.protocol, 0);
    // What changes a queue, and is not answered, would leave both with another idea of it.
    send(&mut socket, SET_VRING_NUM, &queue, false);
    assert!(driver.size().is_err());
    crate::guests::until("it is not counted", || volume.stats().unwrap().dropped.protocol == 1);
    volume.shutdown(SOON).unwrap();
}
