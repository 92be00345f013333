//! A safe face for io_uring: every operation is handed what the kernel will touch, and gives it
//! back with its completion. Nothing else can free a buffer or close a descriptor meanwhile.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use slab::Slab;

use crate::batch::Batch;
use crate::buffer::Buffer;

/// What an operation was handed, or brings.
pub(crate) enum Kept {
    Nothing,
    Buffer(Buffer),
    Batch(Box<Sending>),
    Accepted(OwnedFd),
}

/// A batch with the vectors that describe it to the kernel.
pub(crate) struct Sending {
    pub(crate) batch: Batch,
    vectors: Vec<libc::iovec>,
    message: libc::msghdr,
}

/// An operation that is done.
pub(crate) struct Done<T> {
    pub(crate) tag: T,
    pub(crate) kept: Kept,
    /// The number of bytes, or the `errno`.
    pub(crate) result: Result<usize, i32>,
    /// More bytes wait on the socket than this receive took.
    pub(crate) more: bool,
}

struct Op<T> {
    tag: T,
    kept: Kept,
    accepts: bool,
    /// Keeps the descriptor's number from being given to another file before the kernel saw it.
    _fd: Rc<OwnedFd>,
}

/// Where in a file, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At(pub(crate) u64);

/// Names an operation that is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpKey(u64);

/// The name of operations whose completion tells nobody anything.
const NOBODY: u64 = u64::MAX;

/// What an operation on a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    /// A receive of whatever comes.
    Inbox,
    /// A receive of data straight into its buffer.
    Payload,
    /// A send.
    Sent,
}

/// How a receive waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recv {
    /// For the first bytes, which are most likely there.
    Now,
    /// For the first bytes, which are most likely not there yet.
    Later,
    /// Until the range is full.
    All,
}

/// One io_uring and what is under way in it. To be created and used by one thread.
pub(crate) struct Ring<T> {
    uring: IoUring,
    ops: Slab<Op<T>>,
    /// Entries that found the submission queue full.
    backlog: VecDeque<squeue::Entry>,
    done: VecDeque<(u64, i32, u32)>,
}

const ENTRIES: u32 = 1024;

/// Linux takes no more vectors than this in one call (UIO_MAXIOV).
const MAX_VECTORS: usize = 1024;

impl<T> Ring<T> {
    /// A ring with the cheapest completion mode that this kernel has.
    pub(crate) fn new() -> io::Result<Self> {
        // Deferring task work to our own waits (Linux 6.1) and not being interrupted by it (5.19)
        // are worth a third of the CPU per IO; without them everything works all the same.
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .setup_defer_taskrun()
            .setup_cqsize(4 * ENTRIES)
            .build(ENTRIES)
            .or_else(|_| IoUring::builder().setup_coop_taskrun().build(ENTRIES))
            .or_else(|_| IoUring::new(ENTRIES))?;
        Ok(Self { uring, ops: Slab::new(), backlog: VecDeque::new(), done: VecDeque::new() })
    }

    fn push(
        &mut self,
        fd: &Rc<OwnedFd>,
        entry: squeue::Entry,
        tag: T,
        kept: Kept,
        accepts: bool,
    ) -> OpKey {
        let key = self.ops.insert(Op { tag, kept, accepts, _fd: Rc::clone(fd) });
        self.backlog.push_back(entry.user_data(key as u64));
        self.fill();
        OpKey(key as u64)
    }

    /// Cancels an operation that is under way; it completes with ECANCELED, or with what it did.
    pub(crate) fn cancel(&mut self, key: OpKey) {
        self.backlog.push_back(opcode::AsyncCancel::new(key.0).build().user_data(NOBODY));
        self.fill();
    }

    fn fill(&mut self) {
        let mut queue = self.uring.submission();
        while let Some(entry) = self.backlog.front() {
            // SAFETY: all that the entry points to is owned by its `Op` in `ops`, where it stays
            // until the completion is taken, and is leaked if the ring is dropped before that.
            if unsafe { queue.push(entry) }.is_err() {
                break;
            }
            self.backlog.pop_front();
        }
    }

    /// Accepts one connection; brings [`Kept::Accepted`].
    pub(crate) fn accept(&mut self, fd: &Rc<OwnedFd>, tag: T) -> OpKey {
        let (null, raw) = (std::ptr::null_mut(), types::Fd(fd.as_raw_fd()));
        let entry =
            opcode::Accept::new(raw, null, std::ptr::null_mut()).flags(libc::SOCK_CLOEXEC).build();
        self.push(fd, entry, tag, Kept::Nothing, true)
    }

    /// Waits until `fd` has something to read.
    pub(crate) fn poll(&mut self, fd: &Rc<OwnedFd>, tag: T) {
        let entry = opcode::PollAdd::new(types::Fd(fd.as_raw_fd()), libc::POLLIN as u32).build();
        self.push(fd, entry, tag, Kept::Nothing, false);
    }

    /// Receives into that part of the buffer; zero bytes mean that the peer has closed.
    pub(crate) fn recv(
        &mut self,
        fd: &Rc<OwnedFd>,
        mut buffer: Buffer,
        range: Range<usize>,
        how: Recv,
        tag: T,
    ) {
        let part = &mut buffer[range];
        let mut entry =
            opcode::Recv::new(types::Fd(fd.as_raw_fd()), part.as_mut_ptr(), part.len() as u32);
        if how == Recv::All {
            entry = entry.flags(libc::MSG_WAITALL);
        }
        if how == Recv::Later {
            entry = entry.ioprio(RECVSEND_POLL_FIRST);
        }
        self.push(fd, entry.build(), tag, Kept::Buffer(buffer), false);
    }

    /// Sends what it can of the batch.
    pub(crate) fn send(&mut self, fd: &Rc<OwnedFd>, batch: Batch, tag: T) {
        // SAFETY: all zeroes is a valid msghdr: no address, no vectors, no control data.
        let message = unsafe { std::mem::zeroed::<libc::msghdr>() };
        let sending = Box::new(Sending { batch, vectors: Vec::new(), message });
        self.send_rest(fd, sending, tag);
    }

    /// Goes on with a batch that came back from [`Ring::send`] unfinished.
    pub(crate) fn send_rest(&mut self, fd: &Rc<OwnedFd>, mut sending: Box<Sending>, tag: T) {
        let Sending { batch, vectors, message } = &mut *sending;
        vectors.clear();
        vectors.extend(batch.slices().take(MAX_VECTORS).map(|slice| libc::iovec {
            iov_base: slice.as_ptr().cast_mut().cast(),
            iov_len: slice.len(),
        }));
        message.msg_iov = vectors.as_mut_ptr();
        message.msg_iovlen = vectors.len();
        let entry = opcode::SendMsg::new(types::Fd(fd.as_raw_fd()), message)
            .flags((libc::MSG_NOSIGNAL | libc::MSG_WAITALL) as u32)
            .build();
        self.push(fd, entry, tag, Kept::Batch(sending), false);
    }

    /// Reads from a file into that part of the buffer.
    pub(crate) fn read(
        &mut self,
        fd: &Rc<OwnedFd>,
        mut buffer: Buffer,
        range: Range<usize>,
        at: At,
        tag: T,
    ) {
        let part = &mut buffer[range];
        let raw = types::Fd(fd.as_raw_fd());
        let entry = opcode::Read::new(raw, part.as_mut_ptr(), part.len() as u32).offset(at.0);
        self.push(fd, entry.build(), tag, Kept::Buffer(buffer), false);
    }

    /// Writes that part of the buffer to a file; durably before it completes, if `durable`.
    pub(crate) fn write(
        &mut self,
        fd: &Rc<OwnedFd>,
        buffer: Buffer,
        range: Range<usize>,
        at: At,
        durable: bool,
        tag: T,
    ) {
        let part = &buffer[range];
        let entry = opcode::Write::new(types::Fd(fd.as_raw_fd()), part.as_ptr(), part.len() as u32)
            .offset(at.0)
            .rw_flags(if durable { libc::RWF_DSYNC } else { 0 })
            .build();
        self.push(fd, entry, tag, Kept::Buffer(buffer), false);
    }

    /// Makes a file's data durable.
    pub(crate) fn fdatasync(&mut self, fd: &Rc<OwnedFd>, tag: T) {
        let entry = opcode::Fsync::new(types::Fd(fd.as_raw_fd()))
            .flags(types::FsyncFlags::DATASYNC)
            .build();
        self.push(fd, entry, tag, Kept::Nothing, false);
    }

    /// Changes what is allocated for `len` bytes of a file; `mode` as in fallocate(2).
    pub(crate) fn fallocate(&mut self, fd: &Rc<OwnedFd>, mode: i32, at: At, len: u32, tag: T) {
        let entry = opcode::Fallocate::new(types::Fd(fd.as_raw_fd()), u64::from(len))
            .offset(at.0)
            .mode(mode)
            .build();
        self.push(fd, entry, tag, Kept::Nothing, false);
    }

    /// Advises the kernel on `len` bytes of a file; `advice` as in posix_fadvise(2).
    pub(crate) fn fadvise(&mut self, fd: &Rc<OwnedFd>, advice: i32, at: At, len: u32, tag: T) {
        let entry = opcode::Fadvise::new(types::Fd(fd.as_raw_fd()), i64::from(len), advice)
            .offset(at.0)
            .build();
        self.push(fd, entry, tag, Kept::Nothing, false);
    }

    /// Operations under way.
    pub(crate) fn in_flight(&self) -> usize {
        self.ops.len()
    }

    /// Submits all that was asked for and waits until something is done, or `timeout` has passed.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.fill();
        let want = usize::from(self.backlog.is_empty() && self.done.is_empty());
        let result = match timeout {
            Some(timeout) => {
                let timeout = types::Timespec::from(timeout);
                let args = types::SubmitArgs::new().timespec(&timeout);
                self.uring.submitter().submit_with_args(want, &args)
            }
            None => self.uring.submit_and_wait(want),
        };
        match result.map_err(|e| (e.raw_os_error(), e)) {
            // EBUSY and EAGAIN: completions must be taken first, which happens right here.
            Ok(_) | Err((Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN), _)) => {}
            Err((_, error)) => return Err(error),
        }
        let entry = |e: cqueue::Entry| (e.user_data(), e.result(), e.flags());
        let told = self.uring.completion().map(entry).filter(|(key, ..)| *key != NOBODY);
        self.done.extend(told);
        Ok(())
    }

    /// The next operation that is done.
    pub(crate) fn next(&mut self) -> Option<Done<T>> {
        let (key, result, flags) = self.done.pop_front()?;
        let Op { tag, mut kept, accepts, .. } = self.ops.try_remove(key as usize)?;
        if accepts && result >= 0 {
            // SAFETY: a successful accept returns a descriptor that is nobody's yet.
            kept = Kept::Accepted(unsafe { OwnedFd::from_raw_fd(result) });
        }
        let result = usize::try_from(result).map_err(|_| -result);
        Some(Done { tag, kept, result, more: cqueue::sock_nonempty(flags) })
    }
}

/// `IORING_RECVSEND_POLL_FIRST` of linux/io_uring.h.
const RECVSEND_POLL_FIRST: u16 = 1;

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // The kernel may still write to what an unfinished operation was handed. A leak is safe.
        std::mem::forget(std::mem::take(&mut self.ops));
    }
}
