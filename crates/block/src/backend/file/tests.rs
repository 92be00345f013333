use std::path::Path;

use super::*;
use crate::backend::Lock;
use crate::client::{Client, ReplyHandle};
use parda_testkit::LoopDevice;

fn options(path: &Path) -> Wanted<'_> {
    Wanted {
        disk: "vm1",
        path,
        direct: Direct::Off,
        lock: Lock::On,
        raw: false,
        read_only: false,
        region: None,
        host: 1,
        answered: &|| (),
    }
}

fn file() -> File {
    let file = tempfile::NamedTempFile::new().unwrap();
    open(&options(file.path())).unwrap().0
}

fn request(op: Op, step: Step) -> Request {
    let (client, reply) = (Client::Nbd(0), ReplyHandle(0));
    Request { step, ..Request::new(client, 0, reply, op, None) }
}

const EXTENT: Extent = Extent { offset: 0, len: 4096 };

#[test]
fn short_transfers_go_on_and_the_end_of_file_is_an_error() {
    let mut file = file();
    let mut after =
        |done, result| file.following(&request(Op::Read(EXTENT), Step::Transfer(done)), result);
    assert_eq!(after(0, Ok(4096)), Ok(None));
    assert_eq!(after(0, Ok(512)), Ok(Some(Step::Transfer(512))));
    assert_eq!(after(512, Err(libc::EINTR)), Ok(Some(Step::Transfer(512))));
    let failure = after(512, Ok(0)).unwrap_err();
    assert_eq!((failure.errno, failure.at), (Errno::Io, Some(512)));
    assert_eq!(after(0, Err(libc::ENOSPC)).unwrap_err().errno, Errno::NoSpc);
}

#[test]
fn a_sync_follows_a_durable_write_where_the_file_system_may_forget_it() {
    let op = Op::Write { extent: EXTENT, fua: true };
    let mut file = file();
    for (dsync, next) in [(true, None), (false, Some(Step::Sync))] {
        file.dsync = dsync;
        assert_eq!(file.following(&request(op, Step::Transfer(0)), Ok(4096)), Ok(next));
        let short = file.following(&request(op, Step::Transfer(0)), Ok(512));
        assert_eq!(short, Ok(Some(Step::Transfer(512))));
    }
}

#[test]
fn zeroing_falls_back_step_by_step_and_remembers() {
    let mut file = file();
    let op = Op::WriteZeroes { extent: EXTENT, fua: true, no_hole: false, fast: false };
    let unsupported = Err(libc::EOPNOTSUPP);
    assert_eq!(file.first(op), Ok(Some(Step::Allocate(PUNCH))));
    let next = file.following(&request(op, Step::Allocate(PUNCH)), unsupported);
    assert_eq!(next, Ok(Some(Step::Allocate(ZERO))));
    let next = file.following(&request(op, Step::Allocate(ZERO)), unsupported);
    assert_eq!(next, Ok(Some(Step::Zeroes(0))));
    assert_eq!(file.first(op), Ok(Some(Step::Zeroes(0))));
    let next = file.following(&request(op, Step::Zeroes(0)), Ok(4096));
    assert_eq!(next, Ok(Some(Step::Sync)), "FUA is owed after the last zero");
    assert_eq!(file.first(Op::Trim { extent: EXTENT, fua: false }), Ok(None));
}

#[test]
fn zeroes_that_must_be_fast_are_never_written() {
    let mut file = file();
    let zeroes = |no_hole| Op::WriteZeroes { extent: EXTENT, fua: false, no_hole, fast: true };
    let errno = |result: Result<Option<Step>, Failure>| result.unwrap_err().errno;
    assert_eq!(file.first(zeroes(true)), Ok(Some(Step::Allocate(ZERO))));
    // The kernel writes zeroes to a block device whose hardware cannot.
    file.zeroes_fast = false;
    assert_eq!(errno(file.first(zeroes(true))), Errno::NotSup);
    assert_eq!(file.first(zeroes(false)), Ok(Some(Step::Allocate(PUNCH))));
    let unsupported = Err(libc::EOPNOTSUPP);
    let next = file.following(&request(zeroes(false), Step::Allocate(PUNCH)), unsupported);
    assert_eq!(errno(next), Errno::NotSup);
}

#[test]
fn zeroes_that_must_stay_allocated_are_not_punched() {
    let op = Op::WriteZeroes { extent: EXTENT, fua: false, no_hole: true, fast: false };
    assert_eq!(file().first(op), Ok(Some(Step::Allocate(ZERO))));
}

#[test]
fn a_device_that_refuses_writes_is_served_read_only_or_not_at_all() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let Some(device) = LoopDevice::new(file.path(), &["--read-only"]) else { return };
    let writable = options(device.path());
    let error = open(&writable).err().unwrap().to_string();
    assert!(error.contains("can only be read"), "{error}");
    open(&Wanted { read_only: true, ..writable }).unwrap();
}
