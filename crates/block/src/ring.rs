//! A safe face for io_uring: every operation is handed what the kernel will touch, and gives it
//! back with its completion. Nothing else can free a buffer or close a descriptor meanwhile.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use slab::Slab;

use crate::batch::Batch;
use crate::buffer::{Buffer, Lent};
use crate::writer::{Writer, Writers};

/// Buffer that an operation was handed.
pub(crate) enum OpData {
    Nothing,
    Buffer(Buffer),
    Batch(Sending),
}

/// A batch with the message that describes it to the kernel.
pub(crate) struct Sending {
    pub(crate) batch: Batch,
    message: Message,
}

/// A `msghdr` and its vectors, at a place that stays the same when this is moved. The place is
/// known by a raw pointer alone: to move a `Box` would claim that nobody else points to it, and
/// the kernel does.
struct Message(NonNull<Parts>);

struct Parts {
    header: libc::msghdr,
    vectors: Vec<libc::iovec>,
}

impl Message {
    fn new() -> Self {
        // SAFETY: all zeroes is a valid msghdr: no address, no vectors, no control data.
        let header = unsafe { std::mem::zeroed::<libc::msghdr>() };
        let parts = Box::into_raw(Box::new(Parts { header, vectors: Vec::new() }));
        // SAFETY: a box is never null.
        Self(unsafe { NonNull::new_unchecked(parts) })
    }

    /// Describes up to [`MAX_SENT`] bytes of a batch. The result is valid as long as the batch and
    /// this are not changed.
    fn describe(&mut self, batch: &Batch) -> *const libc::msghdr {
        // SAFETY: the parts are ours. The kernel is done with what it was told before: whoever
        // calls this got the message back with the completion.
        let Parts { header, vectors } = unsafe { self.0.as_mut() };
        vectors.clear();
        let mut room = MAX_SENT;
        for slice in batch.slices().take(MAX_VECTORS).filter(|slice| !slice.is_empty()) {
            let len = slice.len().min(room);
            vectors.push(vector(slice.as_ptr(), len));
            room -= len;
            if room == 0 {
                break;
            }
        }
        header.msg_iov = vectors.as_mut_ptr();
        header.msg_iovlen = vectors.len();
        // SAFETY: within the allocation.
        unsafe { &raw const (*self.0.as_ptr()).header }
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        // SAFETY: it came from a box, and is dropped once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

fn vector(start: *const u8, len: usize) -> libc::iovec {
    libc::iovec { iov_base: start.cast_mut().cast(), iov_len: len }
}

/// Vectors of these places, as many as one call takes. The rest is a short transfer, after which the caller goes on.
fn vectors(places: impl Iterator<Item = (*mut u8, usize)>) -> Vec<libc::iovec> {
    places.take(MAX_VECTORS).map(|(start, len)| vector(start, len)).collect()
}

/// Writes that part of a buffer to a file at an offset, and waits for it. Returns the number of bytes, or the negative
/// `errno`, as io_uring has it.
pub(crate) fn write_now(fd: &OwnedFd, data: &Lent, range: Range<usize>, at: u64) -> i32 {
    let vectors = vectors(data.places(range));
    let count = vectors.len() as libc::c_int;
    // SAFETY: the vectors are places of `data`, which is borrowed, and the kernel only reads them.
    let written = unsafe { libc::pwritev(fd.as_raw_fd(), vectors.as_ptr(), count, at as i64) };
    if written < 0 {
        return -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    }
    i32::try_from(written).unwrap_or(i32::MAX)
}

/// End of an operation.
pub(crate) struct End {
    pub(crate) kept: OpData,
    /// The number of bytes, or the `errno`.
    pub(crate) result: Result<usize, i32>,
    /// More bytes wait on the socket than this receive took. Of a watch: it goes on.
    pub(crate) more: bool,
    /// Time that the kernel, or a writer, had the operation.
    pub(crate) took: Duration,
}

/// The result of an operation, as it came.
struct Ended {
    key: u64,
    result: i32,
    flags: u32,
    took: Duration,
}

struct Op<T> {
    tag: T,
    kept: OpData,
    /// The pieces of the buffer that is kept, if there are several.
    _vectors: Vec<libc::iovec>,
    /// Keeps the descriptor's number from being given to another file before the kernel saw it.
    _fd: Arc<OwnedFd>,
    /// When the call began that submitted it.
    began: Option<Instant>,
}

/// Offset in a file, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At(pub(crate) u64);

/// Names an operation that is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpKey(u64);

/// The name of operations whose completion tells nobody anything.
const NOBODY: u64 = u64::MAX;

/// The name of the operation that waits for writers.
const BELL: u64 = u64::MAX - 1;

/// Purpose of an operation on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    /// A receive of whatever comes.
    Inbox,
    /// A receive of data straight into its buffer.
    Payload,
    /// A send of replies or requests.
    Sent,
}

/// How a receive waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recv {
    /// Ends with the first bytes, and tries at once, as they are most likely there.
    Now,
    /// Ends with the first bytes, and polls first, as they are most likely not there yet.
    Later,
    /// Ends when the range is full.
    All,
}

/// One io_uring and what is under way in it. To be created and used by one thread.
pub(crate) struct Ring<T> {
    uring: IoUring,
    ops: Slab<Op<T>>,
    /// Entries that go to the submission queue with the next wait, as far as it has room.
    backlog: VecDeque<squeue::Entry>,
    /// The names of the entries in the submission queue, in their order.
    queued: VecDeque<u64>,
    done: VecDeque<Ended>,
    /// Descriptors that the kernel may not have taken note of yet.
    signalled: Vec<Arc<OwnedFd>>,
    /// Created with the first writer.
    writers: Option<Writers>,
    /// Writes that writers have and have not ended.
    writing: usize,
}

const ENTRIES: u32 = 1024;

/// Largest number of operations that one call submits. Submitting takes the kernel 1 to 3 µs for each, and
/// their time at the device begins with the call.
const SUBMITTED_AT_ONCE: usize = 32;

/// Flag of `io_uring_enter`, from linux/io_uring.h: wait for completions.
const IORING_ENTER_GETEVENTS: u32 = 1;

/// Linux takes no more vectors than this in one call (UIO_MAXIOV).
const MAX_VECTORS: usize = 1024;

/// Most bytes that one send hands to the kernel. Copying more at once would hold up
/// the other clients.
const MAX_SENT: usize = 256 << 10;

/// Zeroes to write to a file that has no better way to make a range zero.
#[repr(align(4096))]
struct Zeroes([u8; 64 << 10]);

static ZEROES: Zeroes = Zeroes([0; 64 << 10]);

/// Most zeroes that are written at once, in bytes.
pub(crate) const ZEROES_AT_ONCE: u64 = 1 << 20;

impl<T: Copy> Ring<T> {
    /// A ring with the cheapest completion mode that this kernel has.
    pub(crate) fn new() -> io::Result<Self> {
        // Deferring task work to our own waits (Linux 6.1) and not being interrupted by it (5.19)
        // save a third of the CPU per IO. Both are optional.
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_cqsize(4 * ENTRIES)
            .build(ENTRIES)
            .or_else(|_| IoUring::builder().setup_coop_taskrun().build(ENTRIES))
            .or_else(|_| IoUring::new(ENTRIES))?;
        Ok(Self {
            uring,
            ops: Slab::new(),
            backlog: VecDeque::new(),
            queued: VecDeque::new(),
            done: VecDeque::new(),
            signalled: Vec::new(),
            writers: None,
            writing: 0,
        })
    }

    fn push(&mut self, fd: &Arc<OwnedFd>, entry: squeue::Entry, tag: T, kept: OpData) {
        self.push_op(fd, entry, tag, kept, Vec::new());
    }

    fn insert(
        &mut self,
        fd: &Arc<OwnedFd>,
        tag: T,
        kept: OpData,
        vectors: Vec<libc::iovec>,
    ) -> u64 {
        let op = Op { tag, kept, _vectors: vectors, _fd: Arc::clone(fd), began: None };
        self.ops.insert(op) as u64
    }

    fn push_op(
        &mut self,
        fd: &Arc<OwnedFd>,
        entry: squeue::Entry,
        tag: T,
        kept: OpData,
        vectors: Vec<libc::iovec>,
    ) -> OpKey {
        let key = self.insert(fd, tag, kept, vectors);
        self.push_named(entry, key);
        OpKey(key)
    }

    fn push_named(&mut self, entry: squeue::Entry, name: u64) {
        self.backlog.push_back(entry.user_data(name));
    }

    /// Cancels an operation that is under way; it completes with ECANCELED, or with what it did.
    pub(crate) fn cancel(&mut self, key: OpKey) {
        self.push_named(opcode::AsyncCancel::new(key.0).build(), NOBODY);
    }

    /// Cancels all that is under way on `fd`. Before Linux 5.19 nothing happens.
    pub(crate) fn cancel_all(&mut self, fd: &Arc<OwnedFd>) {
        let what = types::CancelBuilder::fd(types::Fd(fd.as_raw_fd())).all();
        self.push_named(opcode::AsyncCancel2::new(what).build(), NOBODY);
    }

    fn fill(&mut self) {
        let mut queue = self.uring.submission();
        while let Some(entry) = self.backlog.front() {
            // SAFETY: all that the entry points to is owned by its `Op` in `ops`, where it stays
            // until the completion is taken, and is leaked if the ring is dropped before that.
            if unsafe { queue.push(entry) }.is_err() {
                break;
            }
            self.queued.push_back(entry.get_user_data());
            self.backlog.pop_front();
        }
    }

    /// Waits until `fd` has something to read.
    pub(crate) fn poll(&mut self, fd: &Arc<OwnedFd>, tag: T) -> OpKey {
        let entry = opcode::PollAdd::new(types::Fd(fd.as_raw_fd()), libc::POLLIN as u32).build();
        self.push_op(fd, entry, tag, OpData::Nothing, Vec::new())
    }

    /// Waits for `fd` to have something to read, again and again, until it is cancelled: the end without
    /// [`End::more`] is the last. What is there need not be read.
    pub(crate) fn watch(&mut self, fd: &Arc<OwnedFd>, tag: T) -> OpKey {
        let entry =
            opcode::PollAdd::new(types::Fd(fd.as_raw_fd()), libc::POLLIN as u32).multi(true);
        self.push_op(fd, entry.build(), tag, OpData::Nothing, Vec::new())
    }

    /// Adds one to an eventfd. Nobody is told of the end.
    pub(crate) fn signal(&mut self, fd: &Arc<OwnedFd>) {
        static ONE: [u8; 8] = 1u64.to_ne_bytes();
        let entry = opcode::Write::new(types::Fd(fd.as_raw_fd()), ONE.as_ptr(), ONE.len() as u32);
        self.signalled.push(Arc::clone(fd));
        let entry = entry.build().flags(squeue::Flags::SKIP_SUCCESS);
        // Before all else: a client goes on while the kernel copies the data of others.
        self.backlog.push_front(entry.user_data(NOBODY));
    }

    /// Receives into that part of the buffer, up to the end of a piece; zero bytes mean that the
    /// peer has closed.
    pub(crate) fn recv(
        &mut self,
        fd: &Arc<OwnedFd>,
        buffer: Buffer,
        range: Range<usize>,
        how: Recv,
        tag: T,
    ) {
        let (start, len) = buffer.places(range).next().unwrap_or((std::ptr::null_mut(), 0));
        let mut entry = opcode::Recv::new(types::Fd(fd.as_raw_fd()), start, len as u32);
        if how == Recv::All {
            entry = entry.flags(libc::MSG_WAITALL);
        }
        if how == Recv::Later {
            entry = entry.ioprio(RECVSEND_POLL_FIRST);
        }
        self.push(fd, entry.build(), tag, OpData::Buffer(buffer));
    }

    /// Sends what it can of the batch, up to [`MAX_SENT`] bytes.
    pub(crate) fn send(&mut self, fd: &Arc<OwnedFd>, batch: Batch, tag: T) {
        self.send_rest(fd, Sending { batch, message: Message::new() }, tag);
    }

    /// Goes on with a batch that came back from [`Ring::send`] unfinished.
    pub(crate) fn send_rest(&mut self, fd: &Arc<OwnedFd>, mut sending: Sending, tag: T) {
        let message = sending.message.describe(&sending.batch);
        let entry = opcode::SendMsg::new(types::Fd(fd.as_raw_fd()), message)
            .flags((libc::MSG_NOSIGNAL | libc::MSG_WAITALL) as u32)
            .build();
        self.push(fd, entry, tag, OpData::Batch(sending));
    }

    /// Begins a transfer between a file and that part of the buffer: of `one` piece, or of `many`.
    fn transfer(
        &mut self,
        fd: &Arc<OwnedFd>,
        (buffer, range): (Buffer, Range<usize>),
        tag: T,
        one: impl FnOnce(*mut u8, u32) -> squeue::Entry,
        many: impl FnOnce(*const libc::iovec, u32) -> squeue::Entry,
    ) {
        let (start, len) = buffer.places(range.clone()).next().unwrap_or((std::ptr::null_mut(), 0));
        if len == range.len() {
            let entry = one(start, len as u32);
            return self.push(fd, entry, tag, OpData::Buffer(buffer));
        }
        let vectors = vectors(buffer.places(range));
        let entry = many(vectors.as_ptr(), vectors.len() as u32);
        self.push_op(fd, entry, tag, OpData::Buffer(buffer), vectors);
    }

    /// Reads from a file into that part of the buffer.
    pub(crate) fn read(
        &mut self,
        fd: &Arc<OwnedFd>,
        buffer: Buffer,
        range: Range<usize>,
        at: At,
        tag: T,
    ) {
        let raw = types::Fd(fd.as_raw_fd());
        let one = |start, len| opcode::Read::new(raw, start, len).offset(at.0).build();
        let many = |start, len| opcode::Readv::new(raw, start, len).offset(at.0).build();
        self.transfer(fd, (buffer, range), tag, one, many);
    }

    /// Writes that part of the buffer to a file; durably before it completes, if `durable`.
    pub(crate) fn write(
        &mut self,
        fd: &Arc<OwnedFd>,
        buffer: Buffer,
        range: Range<usize>,
        at: At,
        durable: bool,
        tag: T,
    ) {
        let raw = types::Fd(fd.as_raw_fd());
        let flags = if durable { libc::RWF_DSYNC } else { 0 };
        let one = |start: *mut u8, len| {
            opcode::Write::new(raw, start.cast_const(), len).offset(at.0).rw_flags(flags).build()
        };
        let many =
            |start, len| opcode::Writev::new(raw, start, len).offset(at.0).rw_flags(flags).build();
        self.transfer(fd, (buffer, range), tag, one, many);
    }

    /// A thread that writes to the page cache of this file; `None` if that is not possible.
    pub(crate) fn writer(&mut self, fd: &Arc<OwnedFd>) -> Option<Writer> {
        if self.writers.is_none() {
            self.writers = Writers::new().ok();
            self.wait_for_writers();
        }
        self.writers.as_ref()?.hire(fd)
    }

    fn wait_for_writers(&mut self) {
        if let Some(writers) = &self.writers {
            let fd = types::Fd(writers.completions.bell().as_raw_fd());
            let entry = opcode::PollAdd::new(fd, libc::POLLIN as u32).multi(true).build();
            self.backlog.push_back(entry.user_data(BELL));
        }
    }

    /// Has the writer of a file write that part of the buffer to the page cache.
    pub(crate) fn write_cached(
        &mut self,
        (fd, writer): (&Arc<OwnedFd>, &Writer),
        buffer: Buffer,
        range: Range<usize>,
        at: At,
        tag: T,
    ) {
        // Not the kernel's.
        let key = self.insert(fd, tag, OpData::Nothing, Vec::new());
        if let Some(writers) = &mut self.writers {
            writers.write(writer, buffer, range, at.0, key);
            self.writing += 1;
        }
    }

    /// Writes up to [`ZEROES_AT_ONCE`] zeroes to a file.
    pub(crate) fn write_zeroes(&mut self, fd: &Arc<OwnedFd>, at: At, len: u64, tag: T) {
        let mut rest = len.min(ZEROES_AT_ONCE) as usize;
        let mut vectors = Vec::new();
        while rest > 0 {
            let n = rest.min(ZEROES.0.len());
            vectors.push(vector(ZEROES.0.as_ptr(), n));
            rest -= n;
        }
        let raw = types::Fd(fd.as_raw_fd());
        let entry = opcode::Writev::new(raw, vectors.as_ptr(), vectors.len() as u32);
        let entry = entry.offset(at.0).build();
        self.push_op(fd, entry, tag, OpData::Nothing, vectors);
    }

    /// Makes a file's data durable.
    pub(crate) fn fdatasync(&mut self, fd: &Arc<OwnedFd>, tag: T) {
        let entry = opcode::Fsync::new(types::Fd(fd.as_raw_fd()))
            .flags(types::FsyncFlags::DATASYNC)
            .build();
        self.push(fd, entry, tag, OpData::Nothing);
    }

    /// Changes what is allocated for `len` bytes of a file; `mode` as in fallocate(2).
    pub(crate) fn fallocate(&mut self, fd: &Arc<OwnedFd>, mode: i32, at: At, len: u64, tag: T) {
        let entry =
            opcode::Fallocate::new(types::Fd(fd.as_raw_fd()), len).offset(at.0).mode(mode).build();
        self.push(fd, entry, tag, OpData::Nothing);
    }

    /// Advises the kernel on `len` bytes of a file; `advice` as in posix_fadvise(2). The kernel takes
    /// 32 bits of a length, where zero would mean all of the file.
    pub(crate) fn fadvise(&mut self, fd: &Arc<OwnedFd>, advice: i32, at: At, len: u32, tag: T) {
        let entry = opcode::Fadvise::new(types::Fd(fd.as_raw_fd()), i64::from(len), advice)
            .offset(at.0)
            .build();
        self.push(fd, entry, tag, OpData::Nothing);
    }

    /// Number of operations that were submitted and have not completed.
    pub(crate) fn in_flight(&self) -> usize {
        self.ops.len()
    }

    /// Writes under way that are done by writers.
    pub(crate) fn writing(&self) -> usize {
        self.writing
    }

    /// Lets writers begin, fills the submission queue, and submits all but the last entries of it.
    fn hand_over(&mut self) -> io::Result<()> {
        if let Some(writers) = &mut self.writers {
            writers.hand_over();
        }
        self.fill();
        while self.queued.len() > SUBMITTED_AT_ONCE {
            self.stamp(SUBMITTED_AT_ONCE);
            self.enter(SUBMITTED_AT_ONCE)?;
            self.collect();
        }
        self.stamp(self.queued.len());
        Ok(())
    }

    /// Notes that the next operations in the submission queue begin now.
    fn stamp(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        let now = Some(Instant::now());
        for key in self.queued.drain(..count) {
            if let Some(op) = self.ops.get_mut(key as usize) {
                op.began = now;
            }
        }
    }

    /// Takes what is done by now, so that the time until it is looked at does not count as the
    /// device's.
    pub(crate) fn reap(&mut self) -> io::Result<()> {
        if self.uring.submission().taskrun() {
            self.enter(0)?;
        }
        if !self.uring.completion().is_empty() {
            self.collect();
        }
        Ok(())
    }

    /// Submits all that was asked for and looks for `time` whether something is done, without
    /// sleeping. Returns whether it is.
    ///
    /// Between two looks others may have the processor: the client that is waited for may be on
    /// the same one.
    ///
    /// `news`: something else that is looked for.
    pub(crate) fn look(&mut self, time: Duration, news: impl Fn() -> bool) -> io::Result<bool> {
        self.hand_over()?;
        let rest = self.uring.submission().len();
        if rest > 0 {
            self.enter(rest)?;
        }
        let begun = Instant::now();
        loop {
            if self.uring.submission().taskrun() {
                self.enter(0)?;
            }
            if !self.uring.completion().is_empty() || self.has_written() || !self.done.is_empty() {
                self.collect();
                return Ok(true);
            }
            if news() {
                return Ok(true);
            }
            if begun.elapsed() >= time {
                return Ok(false);
            }
            std::thread::yield_now();
        }
    }

    /// Submits so many entries and takes what is done, without waiting.
    fn enter(&mut self, submit: usize) -> io::Result<()> {
        let submitter = self.uring.submitter();
        let flags = IORING_ENTER_GETEVENTS;
        // SAFETY: no argument is passed, and `fill` says why what is submitted is valid.
        let result = unsafe { submitter.enter::<libc::sigset_t>(submit as u32, 0, flags, None) };
        match result.map_err(|e| (e.raw_os_error(), e)) {
            Ok(_) | Err((Some(libc::EINTR | libc::EBUSY | libc::EAGAIN), _)) => Ok(()),
            Err((_, error)) => Err(error),
        }
    }

    /// Submits all that was asked for and waits until something is done, or `timeout` has passed.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if timeout == Some(Duration::ZERO) {
            // To sleep for no time takes the kernel a timer, and 50 µs or more.
            return self.look(Duration::ZERO, || false).map(drop);
        }
        self.hand_over()?;
        let mut sleeps = self.backlog.is_empty() && self.done.is_empty();
        if sleeps && let Some(writers) = &self.writers {
            writers.completions.fall_asleep();
            sleeps = !self.has_written();
        }
        let want = usize::from(sleeps);
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
        if let Some(writers) = &self.writers {
            writers.completions.wake_up();
        }
        self.collect();
        Ok(())
    }

    /// Whether writers have done something.
    fn has_written(&self) -> bool {
        self.writers.as_ref().is_some_and(|writers| writers.completions.any())
    }

    fn collect(&mut self) {
        if self.backlog.is_empty() && self.uring.submission().is_empty() {
            self.signalled.clear();
        }
        let (mut deaf, now) = (false, Instant::now());
        for entry in self.uring.completion() {
            match entry.user_data() {
                NOBODY => {}
                BELL => deaf = !cqueue::more(entry.flags()),
                key => {
                    let began = self.ops.get(key as usize).and_then(|op| op.began);
                    let took = now.saturating_duration_since(began.unwrap_or(now));
                    let (result, flags) = (entry.result(), entry.flags());
                    self.done.push_back(Ended { key, result, flags, took });
                }
            }
        }
        if deaf {
            self.wait_for_writers();
        }
        if !self.has_written() {
            return;
        }
        for written in self.writers.iter().flat_map(|writers| writers.completions.take()) {
            assert!(self.writing > 0, "each write ends once");
            self.writing -= 1;
            let Some(op) = self.ops.get_mut(written.key as usize) else { continue };
            op.kept = written.data.back().map_or(OpData::Nothing, OpData::Buffer);
            let (key, result, took) = (written.key, written.result, written.took);
            self.done.push_back(Ended { key, result, flags: 0, took });
        }
    }

    /// The next operation that is done, and its end.
    pub(crate) fn next(&mut self) -> Option<(T, End)> {
        let Ended { key, result, flags, took } = self.done.pop_front()?;
        if cqueue::more(flags) {
            let tag = self.ops.get(key as usize)?.tag;
            let result = usize::try_from(result).map_err(|_| -result);
            return Some((tag, End { kept: OpData::Nothing, result, more: true, took }));
        }
        let Op { tag, kept, .. } = self.ops.try_remove(key as usize)?;
        let result = usize::try_from(result).map_err(|_| -result);
        Some((tag, End { kept, result, more: cqueue::sock_nonempty(flags), took }))
    }
}

/// Flag of a receive, from linux/io_uring.h: poll before the first attempt.
const RECVSEND_POLL_FIRST: u16 = 1;

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // The kernel may still write to what an unfinished operation was handed. A leak is safe.
        std::mem::forget(std::mem::take(&mut self.ops));
    }
}

#[cfg(test)]
mod tests;
