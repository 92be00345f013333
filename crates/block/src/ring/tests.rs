use std::fs::File;
use std::io::Write as _;
use std::thread::sleep;

use super::*;
use crate::buffer::Pool;

const BLOCK: usize = 4096;

/// A ring that reads a file in so many operations, submitted together.
fn reading(count: usize) -> (Ring<usize>, Arc<OwnedFd>) {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&vec![7; count * BLOCK]).unwrap();
    let fd: Arc<OwnedFd> = Arc::new(File::into(file));
    let (mut ring, mut pool) = (Ring::new().unwrap(), Pool::new(count * BLOCK));
    for i in 0..count {
        let buffer = pool.take(BLOCK);
        ring.read(&fd, buffer, 0..BLOCK, At((i * BLOCK) as u64), i);
    }
    (ring, fd)
}

/// Waits until so many operations have ended, and returns them.
fn ended(ring: &mut Ring<usize>, count: usize) -> Vec<(usize, End)> {
    let mut all = Vec::new();
    while all.len() < count {
        ring.wait(Some(Duration::from_secs(10))).unwrap();
        all.extend(std::iter::from_fn(|| ring.next()));
    }
    all
}

/// Far longer than a read takes.
const LONG: Duration = Duration::from_millis(400);

#[test]
fn time_before_it_is_submitted_is_not_the_devices() {
    let (mut ring, _fd) = reading(3);
    sleep(LONG);
    let began = Instant::now();
    let all = ended(&mut ring, 3);
    let since = began.elapsed();
    for (_, done) in all {
        assert_eq!(done.result, Ok(BLOCK));
        assert!(done.took <= since, "{:?} of {since:?}", done.took);
    }
}

#[test]
fn time_after_it_was_reaped_is_not_the_devices() {
    let (mut ring, _fd) = reading(3);
    let began = Instant::now();
    while ring.done.len() < 3 {
        ring.look(LONG, || false).unwrap();
        assert!(began.elapsed() < Duration::from_secs(60), "{} were done", ring.done.len());
    }
    let reaped = began.elapsed();
    sleep(LONG);
    for (_, done) in ended(&mut ring, 3) {
        assert!(done.took <= reaped, "{:?} of {reaped:?}", done.took);
    }
}

#[test]
fn what_is_submitted_in_parts_is_all_done() {
    let count = 5 * SUBMITTED_AT_ONCE + 3;
    let (mut ring, _fd) = reading(count);
    let mut done: Vec<usize> = ended(&mut ring, count).iter().map(|(tag, _)| *tag).collect();
    done.sort_unstable();
    assert_eq!(done, (0..count).collect::<Vec<_>>());
    assert_eq!((ring.in_flight(), ring.queued.len()), (0, 0));
}

#[test]
fn more_than_the_submission_queue_holds_is_all_done() {
    let count = 2 * ENTRIES as usize + 5;
    let (mut ring, _fd) = reading(count);
    assert_eq!(ended(&mut ring, count).len(), count);
    assert_eq!(ring.in_flight(), 0);
}
