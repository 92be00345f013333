//! The log of unanswered requests, when its process ends at any moment.

use std::fs::File;
use std::sync::Arc;

use parda_vhost::blk::{GuestOutcome, Scratch};
use parda_vhost::{Memory, Vring};
use vm_memory::{Bytes, GuestAddress};

const SIZE: u16 = 8;
const PLACES: [u64; 3] = [0, 0x400, 0x800];

/// A guest with requests in all of its descriptors, of two each, in the order of `heads`.
fn guest(heads: &[u16]) -> Arc<Memory> {
    let memory = Arc::new(Memory::anonymous(0x4000).unwrap());
    let write =
        |at: u64, bytes: &[u8]| memory.map_ref().write_slice(bytes, GuestAddress(at)).unwrap();
    for head in 0..SIZE / 2 {
        let (header, status) = (0x1000 + u64::from(head) * 32, 0x1010 + u64::from(head) * 32);
        write(header, &4u32.to_le_bytes());
        let place = u64::from(head) * 16;
        let descriptor = |address: u64, len: u32, flags: u16, next: u16| {
            [
                &address.to_le_bytes()[..],
                &len.to_le_bytes(),
                &flags.to_le_bytes(),
                &next.to_le_bytes(),
            ]
            .concat()
        };
        write(place, &descriptor(header, 16, 1, head + SIZE / 2));
        write(place + u64::from(SIZE) * 8, &descriptor(status, 1, 2, 0));
    }
    for (n, head) in (0..).zip(heads) {
        write(0x404 + n * 2, &head.to_le_bytes());
    }
    write(0x402, &(heads.len() as u16).to_le_bytes());
    memory
}

/// The queue as a process has it that begins with this log.
fn begin(memory: &Memory, log: &File) -> Vring {
    let vring = Vring::at(SIZE, PLACES, false).unwrap();
    let mut vring = vring.logged(log.try_clone().unwrap()).unwrap();
    vring.begin(memory).unwrap();
    vring
}

fn take(vring: &mut Vring, memory: &Arc<Memory>) -> Option<u16> {
    vring.take(memory, &mut Scratch::default()).unwrap().map(|request| {
        request.status().tell(GuestOutcome::Ok);
        request.head
    })
}

#[test]
fn what_was_not_answered_is_taken_again_in_its_order_and_what_was_is_not() {
    let memory = guest(&[2, 0, 3, 1]);
    let log = Vring::new_log(1, SIZE).unwrap();
    let mut vring = begin(&memory, &log);
    assert_eq!([0; 3].map(|_| take(&mut vring, &memory)), [Some(2), Some(0), Some(3)]);
    vring.answer(&memory, 0, 1).unwrap();
    // Killed, and again before it has done anything.
    for _ in 0..2 {
        drop(begin(&memory, &log));
    }
    let mut vring = begin(&memory, &log);
    assert_eq!([0; 4].map(|_| take(&mut vring, &memory)), [Some(2), Some(3), Some(1), None]);
    for head in [1, 2, 3] {
        vring.answer(&memory, head, 1).unwrap();
    }
    let mut vring = begin(&memory, &log);
    assert_eq!(take(&mut vring, &memory), None);
}

/// The process before may have answered without a call, and ended.
#[test]
fn a_guest_is_called_when_its_queue_begins_whatever_it_was_told_before() {
    let memory = guest(&[1, 0]);
    let log = Vring::new_log(1, SIZE).unwrap();
    let begin = || {
        let vring = Vring::at(SIZE, PLACES, true).unwrap();
        let mut vring = vring.logged(log.try_clone().unwrap()).unwrap();
        vring.begin(&memory).unwrap();
        vring
    };
    let mut vring = begin();
    take(&mut vring, &memory).unwrap();
    vring.answer(&memory, 1, 1).unwrap();
    let mut vring = begin();
    assert!(vring.wants_call(&memory).unwrap());
    assert!(!vring.wants_call(&memory).unwrap(), "nothing was answered since");
}

#[test]
fn an_answer_that_the_guest_has_is_not_given_twice() {
    let memory = guest(&[1, 0]);
    let log = Vring::new_log(1, SIZE).unwrap();
    let mut vring = begin(&memory, &log);
    assert_eq!([0; 2].map(|_| take(&mut vring, &memory)), [Some(1), Some(0)]);
    let kept = {
        use std::os::unix::fs::FileExt;
        let mut kept = vec![0; 1024];
        let n = log.read_at(&mut kept, 0).unwrap();
        kept.truncate(n);
        kept
    };
    vring.answer(&memory, 1, 1).unwrap();
    // Killed when the answer was in the used ring and the log said who is answered last, but not yet that it is: only the
    // number of that has changed.
    use std::os::unix::fs::FileExt;
    log.write_at(&kept, 0).unwrap();
    log.write_at(&1u16.to_le_bytes(), 12).unwrap();
    let mut vring = begin(&memory, &log);
    assert_eq!([0; 2].map(|_| take(&mut vring, &memory)), [Some(0), None]);
}
