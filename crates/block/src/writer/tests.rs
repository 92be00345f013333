use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use super::*;
use crate::buffer::Pool;

fn filled(pool: &mut Pool, byte: u8, len: usize) -> Buffer {
    let mut buffer = pool.take(len);
    buffer.slices_mut(0..len).for_each(|slice| slice.fill(byte));
    buffer
}

/// All that is done within a minute, until there are `count`.
fn await_written(writers: &Writers, count: usize) -> Vec<CompletedWrite> {
    let (mut all, begun) = (Vec::new(), Instant::now());
    while all.len() < count && begun.elapsed() < Duration::from_secs(60) {
        all.append(&mut writers.completions.take());
        thread::yield_now();
    }
    all
}

#[test]
fn writes_are_done_in_the_order_in_which_they_were_handed_over() {
    let mut pool = Pool::new(64 << 20);
    let mut writers = Writers::new().unwrap();
    let file = tempfile::tempfile().unwrap();
    let writer = writers.hire(&Arc::new(file.try_clone().unwrap().into())).unwrap();
    // All to the same place, longer than a piece, in several turns.
    let len = crate::buffer::PIECE + 5000;
    for key in 0..60_u64 {
        writers.write(&writer, filled(&mut pool, key as u8, len), 0..len, 3, key);
        if key % 7 == 0 {
            writers.hand_over();
        }
    }
    writers.hand_over();
    let written = await_written(&writers, 60);
    assert!(written.iter().map(|w| w.key).eq(0..60), "the ends come in order too");
    for CompletedWrite { data, result, .. } in written {
        assert_eq!(result, len as i32);
        pool.put(data.back().unwrap());
    }
    assert_eq!(pool.used(), 0, "every buffer has come back");
    let mut read = vec![0; len];
    file.read_exact_at(&mut read, 3).unwrap();
    assert!(read.iter().all(|byte| *byte == 59), "the last one lies on top");
}

#[test]
fn a_write_that_fails_says_why_and_gives_its_buffer_back() {
    let mut pool = Pool::new(64 << 20);
    let mut writers = Writers::new().unwrap();
    let path = tempfile::NamedTempFile::new().unwrap();
    let read_only = Arc::new(File::open(path.path()).unwrap().into());
    let writer = writers.hire(&read_only).unwrap();
    writers.write(&writer, pool.take(4096), 0..4096, 0, 9);
    writers.hand_over();
    let [CompletedWrite { key: 9, data, result, .. }] =
        <[CompletedWrite; 1]>::try_from(await_written(&writers, 1))
            .unwrap_or_else(|_| panic!("one write, one end"))
    else {
        panic!("another key")
    };
    assert_eq!(result, -libc::EBADF);
    pool.put(data.back().unwrap());
    assert_eq!(pool.used(), 0);
}

#[test]
fn the_bell_rings_only_for_a_sleeper() {
    let mut pool = Pool::new(64 << 20);
    let mut writers = Writers::new().unwrap();
    let writer = writers.hire(&Arc::new(tempfile::tempfile().unwrap().into())).unwrap();
    let rung =
        |writers: &Writers| rustix::io::read(writers.completions.bell(), &mut [0; 8]) == Ok(8);
    for asleep in [false, true] {
        if asleep {
            writers.completions.fall_asleep();
            assert!(!writers.completions.any());
        }
        writers.write(&writer, pool.take(4096), 0..4096, 0, 1);
        writers.hand_over();
        let begun = Instant::now();
        while !writers.completions.any() && begun.elapsed() < Duration::from_secs(60) {
            thread::yield_now();
        }
        // The writer waits again: it has rung by now, if it does at all.
        while !lock(&writer.lane.queue).idle {
            thread::yield_now();
        }
        assert_eq!(rung(&writers), asleep);
        assert_eq!(writers.completions.take().len(), 1);
    }
}

#[test]
fn a_writer_that_was_let_go_begins_nothing_more_and_nobody_waits_for_it() {
    let mut pool = Pool::new(64 << 20);
    let mut writers = Writers::new().unwrap();
    let file = tempfile::tempfile().unwrap();
    let lane = Arc::new(Lane::default());
    let writer = Writer {
        lane: Arc::clone(&lane),
        file: Arc::new(OwnedFd::from(file.try_clone().unwrap())),
    };
    // The thread is stuck in the kernel: in a pipe that is full, and that nobody empties.
    let (from, to) = rustix::pipe::pipe().unwrap();
    let completions = Arc::clone(&writers.completions);
    let thread = thread::spawn(move || {
        rustix::io::write(&to, &vec![0; 1 << 20]).unwrap();
        lane.run(&completions);
    });
    writers.write(&writer, filled(&mut pool, 7, 4096), 0..4096, 0, 1);
    writers.hand_over();
    drop(writer);
    assert!(!thread.is_finished());
    let mut taken = 0;
    while taken < 1 << 20 {
        taken += rustix::io::read(&from, &mut vec![0; 1 << 20]).unwrap();
    }
    thread.join().unwrap();
    assert!(writers.completions.take().is_empty());
    assert_eq!(file.metadata().unwrap().len(), 0, "nothing was written");
}

#[test]
fn a_file_keeps_its_lock_while_a_write_is_under_way() {
    let mut pool = Pool::new(64 << 20);
    let writers = Writers::new().unwrap();
    let path = tempfile::NamedTempFile::new().unwrap();
    let open = || File::options().read(true).write(true).open(path.path()).unwrap();
    let (ours, theirs) = (open(), open());
    rustix::fs::flock(&ours, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    let writer = writers.hire(&Arc::new(ours.into())).unwrap();
    let job = Job {
        key: 0,
        file: Arc::clone(&writer.file),
        data: Lent::new(pool.take(4096)),
        range: 0..4096,
        at: 0,
    };
    drop(writer);
    let lock = || rustix::fs::flock(&theirs, rustix::fs::FlockOperation::NonBlockingLockExclusive);
    assert!(lock().is_err(), "the write has still to be done");
    let written = job.perform();
    assert!(lock().is_err(), "its end was not taken");
    drop(written);
    lock().unwrap();
}

#[test]
fn there_are_only_so_many_writers() {
    let writers = Writers::new().unwrap();
    let file = Arc::new(tempfile::tempfile().unwrap().into());
    let some: Vec<Writer> = std::iter::from_fn(|| writers.hire(&file)).take(100).collect();
    assert_eq!(some.len(), MOST_WRITERS);
    drop(some);
    let begun = Instant::now();
    let mut one = writers.hire(&file);
    while one.is_none() && begun.elapsed() < Duration::from_secs(60) {
        thread::yield_now();
        one = writers.hire(&file);
    }
    assert!(one.is_some(), "threads that have ended make room");
}
