//! System calls that never wait. The ring does all that cannot be done at once.

use std::io::IoSlice;
use std::os::fd::OwnedFd;

use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use crate::batch::Batch;

/// Slices in one send.
const SLICES: usize = 128;

/// The most that is sent at once, in bytes: what one turn reads from the page cache, with its heads. A socket has room for about 200 KiB by
/// default. Longer data waits for the client in any case, and the ring waits better.
const MOST: usize = 192 << 10;

/// Sends a batch if it is short, or as much of it as the socket takes. Returns the number of bytes,
/// or the `errno`: EAGAIN if it is better left to the ring.
///
/// An operation of the ring would cost an entry, a completion, and an otherwise idle turn of the
/// loop.
pub(crate) fn send(fd: &OwnedFd, batch: &Batch) -> Result<usize, i32> {
    let mut slices = [IoSlice::new(&[]); SLICES];
    let (mut filled, mut len) = (0, 0);
    for slice in batch.slices() {
        len += slice.len();
        let Some(slot) = slices.get_mut(filled).filter(|_| len <= MOST) else {
            return Err(libc::EAGAIN);
        };
        *slot = IoSlice::new(slice);
        filled += 1;
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let mut nothing = SendAncillaryBuffer::default();
    sendmsg(fd, &slices[..filled], &mut nothing, flags).map_err(|e| e.raw_os_error())
}
