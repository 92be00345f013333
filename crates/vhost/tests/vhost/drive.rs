//! A queue in memory that holds whatever bytes there are: for tests, and for `fuzz/fuzz_targets/vhost_queue.rs`.

use std::sync::Arc;

use parda_vhost::blk::{GuestOp, GuestOutcome, Scratch};
use parda_vhost::{Memory, Vring};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend};

/// Bytes of the guest's memory.
const MEMORY: usize = 0x1_0000;

/// Where its queue is: descriptors, available ring, used ring.
const PLACES: [u64; 3] = [0, 0x400, 0x800];

const SIZE: u16 = 16;

thread_local! {
    /// One for all inputs of a thread: a mapping for each takes longer than its walk.
    static GUEST: Arc<Memory> = Arc::new(Memory::anonymous(MEMORY).expect("there is memory"));
}

/// Takes and answers all requests that are found in memory which begins with these bytes. Whatever they are, requests have
/// their data in memory, and there is an end. Returns how many there were.
pub(crate) fn queue(input: &[u8]) -> usize {
    GUEST.with(|memory| walk(memory, input))
}

fn walk(memory: &Arc<Memory>, input: &[u8]) -> usize {
    let (flags, bytes) = input.split_first().unwrap_or((&0, &[]));
    let bytes = &bytes[..bytes.len().min(MEMORY)];
    let guest = memory.map_ref();
    guest.write_slice(bytes, GuestAddress(0)).expect("they fit");
    let rest = [0; MEMORY];
    guest.write_slice(&rest[bytes.len()..], GuestAddress(bytes.len() as u64)).expect("they fit");
    let mut vring = Vring::at(SIZE, PLACES, flags & 1 != 0).expect("the places are aligned");
    vring.begin(memory).expect("the queue is in memory");
    let start = guest.get_host_address(GuestAddress(0)).expect("it is there") as usize;
    let (mut scratch, mut found) = (Scratch::default(), 0);
    for _ in 0..2 * usize::from(SIZE) {
        let Ok(Some(request)) = vring.take(memory, &mut scratch) else { break };
        found += 1;
        for (place, len) in request.data.places() {
            let place = place.as_ptr() as usize;
            assert!(place >= start && place + len as usize <= start + MEMORY);
        }
        let (head, status, asked) = (request.head, request.status(), request.asked);
        if let GuestOp::Op(op) = asked {
            assert!(op.extent().len <= u64::from(u32::MAX) * 512);
        }
        if asked == GuestOp::Serial {
            request.data.write(&[b'x'; 20]);
        }
        status.tell(GuestOutcome::Failed);
        if vring.answer(memory, head, 1).is_err() || vring.wants_call(memory).is_err() {
            break;
        }
        let _ = vring.ask_for_kick(memory);
    }
    assert_eq!(vring.in_flight(), 0);
    found
}
