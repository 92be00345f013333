//! Writes to the page cache, by whichever thread: the volume's own, a writer beside it, or the
//! kernel's for those that must be durable.
use crate::common;

use std::os::fd::AsRawFd;
use std::path::Path;

use common::{Client, at, disk, file_as, read, spawn, write};
use parda_block::{Direct, Handle, Lock};
use parda_disk::{Errno, Op};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

const BLOCK: u32 = 4096;
const BLOCKS: u64 = 64;

fn serve(path: &Path, socket: &Path) -> Handle {
    spawn(vec![disk("x", file_as(path, Direct::Off, Lock::Off), socket)])
}

/// Sends requests together and returns how they ended, in the order in which they were sent.
fn together(client: &mut Client, requests: &[(Op, Vec<u8>)]) -> Vec<common::Answer> {
    let sent: Vec<_> = requests.iter().map(|(op, data)| client.send(*op, data)).collect();
    let mut ended: Vec<_> = sent.iter().map(|_| client.receive().unwrap()).collect();
    ended.sort_by_key(|(cookie, _)| sent.iter().position(|s| *s == Some(*cookie)));
    ended.into_iter().map(|(_, outcome)| outcome).collect()
}

/// A block is written alone, then among many, then durably, over and over: what was acknowledged
/// last is what is read, through the volume and past it.
#[test]
fn what_was_acknowledged_last_is_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let (path, socket) = (dir.path().join("data"), dir.path().join("sock"));
    std::fs::write(&path, vec![0; (BLOCKS * u64::from(BLOCK)) as usize]).unwrap();
    let volume = serve(&path, &socket);
    let mut client = Client::connect(&socket, "x");
    let mut random = fastrand::Rng::with_seed(3);
    let mut model = vec![0_u8; BLOCKS as usize];
    for round in 0..300 {
        let version = round as u8;
        let count = [1, 1, 2, 17, BLOCKS][random.usize(..5)];
        let first = random.u64(..=BLOCKS - count);
        let fua = random.u8(..8) == 0;
        let requests: Vec<_> = (first..first + count)
            .map(|block| {
                model[block as usize] = version;
                let extent = at(block * u64::from(BLOCK), BLOCK);
                (Op::Write { extent, fua }, vec![version; BLOCK as usize])
            })
            .collect();
        assert!(together(&mut client, &requests).iter().all(Result::is_ok));
        let block = random.u64(..BLOCKS);
        let data = client.call(read(block * u64::from(BLOCK), BLOCK), &[]).unwrap();
        assert!(data.iter().all(|byte| *byte == model[block as usize]), "round {round}");
    }
    client.call(Op::Flush, &[]).unwrap();
    let data = std::fs::read(&path).unwrap();
    for (block, version) in data.chunks(BLOCK as usize).zip(model) {
        assert!(block.iter().all(|byte| *byte == version));
    }
    let vm = volume.stats().unwrap().vms.remove(0);
    assert_eq!((vm.errors, vm.page_cache), (0, true));
}

/// The file refuses to be written from some time on. Each write that it refused says so, whether it
/// was alone or among many, and what they took of the volume's memory is back.
#[test]
fn writes_that_fail_are_answered_as_failed() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("sock");
    let memory = memfd_create(c"disk", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&memory, BLOCKS * u64::from(BLOCK)).unwrap();
    let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
    let volume = serve(Path::new(&path), &socket);
    let mut client = Client::connect(&socket, "x");
    let all: Vec<_> = (0..BLOCKS)
        .map(|block| (write(block * u64::from(BLOCK), BLOCK), vec![7; BLOCK as usize]))
        .collect();
    for refused in [false, true] {
        if refused {
            fcntl_add_seals(&memory, SealFlags::WRITE).unwrap();
        }
        let expected = if refused { Err(Errno::Perm) } else { Ok(vec![]) };
        for count in [1, 2, BLOCKS as usize, 1] {
            let outcomes = together(&mut client, &all[..count]);
            assert!(outcomes.iter().all(|outcome| *outcome == expected), "{outcomes:?}");
        }
        let data = client.call(read(0, BLOCK), &[]).unwrap();
        assert!(data.iter().all(|byte| *byte == 7));
    }
    let stats = volume.stats().unwrap();
    assert_eq!(stats.vms[0].errors, BLOCKS + 4);
    assert_eq!(stats.outstanding, 0);
}
