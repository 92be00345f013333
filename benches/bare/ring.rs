//! The ring: requests in, reads and writes of the file, replies out.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use crate::levers::{Levers, Provided, Spliced};

const INBOX: usize = 256 << 10;
const REQUEST: usize = 28;
const ALIGN: usize = 4096;

/// What an operation was for, in the two upper bits of its user data.
const RECEIVED: u64 = 0;
const SENT: u64 = 1 << 62;
const MOVED: u64 = 2 << 62;

/// Memory for all slots, never given back.
struct Memory {
    start: *mut u8,
    block: usize,
}

impl Memory {
    fn slot(&self, index: usize) -> *mut u8 {
        // SAFETY: there are as many blocks as slots, in one allocation.
        unsafe { self.start.add(index * self.block) }
    }
}

#[derive(Clone, Copy, Default)]
struct Slot {
    conn: usize,
    len: u32,
    write: bool,
    head: [u8; 16],
}

/// A write whose data is still to come.
struct Coming {
    slot: usize,
    offset: u64,
    filled: usize,
}

struct Conn {
    socket: OwnedFd,
    inbox: Vec<u8>,
    start: usize,
    end: usize,
    receiving: bool,
    open: bool,
    coming: Option<Coming>,
    /// Slots whose replies wait, and those whose replies are being sent.
    ready: Vec<usize>,
    sending: Vec<usize>,
    vectors: Vec<libc::iovec>,
    message: Box<libc::msghdr>,
    /// Bytes of the first vectors that are through.
    busy: usize,
}

/// One io_uring over one file.
pub(crate) struct Ring {
    uring: IoUring,
    file: File,
    memory: Memory,
    slots: Vec<Slot>,
    free: Vec<usize>,
    conns: Vec<Conn>,
    levers: Levers,
    provided: Option<Provided>,
    spliced: Option<Spliced>,
    /// Slots of zero-copy sends that the kernel still has, by the send's user data.
    unnotified: HashMap<u64, Vec<usize>>,
    sends: u64,
}

impl Ring {
    pub(crate) fn new(
        file: File,
        conns: usize,
        depth: usize,
        block: usize,
        levers: Levers,
    ) -> io::Result<Self> {
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .setup_defer_taskrun()
            .build(4096)?;
        // A client may ask again before we hear that its reply was sent.
        // With zero-copy sends the kernel keeps the memory for much longer, even of clients that are gone.
        let times = if levers.send_zc { 32 } else { 2 };
        let (count, block) = (times * conns * depth, block.next_multiple_of(ALIGN));
        let len = count * block;
        let (prot, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping of nothing; it is checked below and never unmapped.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        if levers.fixed_files {
            uring.submitter().register_files_sparse(1 + conns as u32)?;
            uring.submitter().register_files_update(0, &[file.as_raw_fd()])?;
        }
        if levers.fixed_buffers {
            // SAFETY: the mapping is never unmapped.
            unsafe {
                let all = libc::iovec { iov_base: start, iov_len: len };
                uring.submitter().register_buffers(&[all])?;
            }
        }
        let provided = levers.multishot.then(|| Provided::new(&uring)).transpose()?;
        let spliced = levers.splice.then(Spliced::new).transpose()?;
        Ok(Self {
            levers,
            provided,
            spliced,
            unnotified: HashMap::new(),
            sends: 0,
            uring,
            file,
            memory: Memory { start: start.cast(), block },
            slots: vec![Slot::default(); count],
            free: (0..count).rev().collect(),
            conns: Vec::new(),
        })
    }

    fn push(&mut self, mut entry: squeue::Entry, user_data: u64) -> io::Result<()> {
        if self.levers.fixed_files {
            // Descriptors are places in the table then.
            entry = entry.flags(squeue::Flags::FIXED_FILE);
        }
        // SAFETY: what entries point to is owned by `self.memory`, or by a `Conn` that is dropped
        // only when nothing of it is under way.
        while unsafe { self.uring.submission().push(&entry.clone().user_data(user_data)) }.is_err()
        {
            self.uring.submit()?;
        }
        Ok(())
    }

    /// Serves these connections until all of them are closed.
    pub(crate) fn run(&mut self, sockets: Vec<OwnedFd>) -> io::Result<()> {
        self.conns = sockets.into_iter().map(Conn::new).collect();
        if self.levers.fixed_files {
            let fds: Vec<RawFd> = self.conns.iter().map(|c| c.socket.as_raw_fd()).collect();
            self.uring.submitter().register_files_update(1, &fds)?;
        }
        for index in 0..self.conns.len() {
            self.receive(index)?;
        }
        let mut done = Vec::new();
        while self.conns.iter().any(|c| c.open || c.receiving || c.busy > 0) {
            self.uring.submit_and_wait(1)?;
            done.extend(self.uring.completion().map(|e| (e.user_data(), e.result(), e.flags())));
            for (user_data, result, flags) in done.drain(..) {
                let index = (user_data & !(3 << 62)) as usize;
                match user_data & (3 << 62) {
                    RECEIVED => match &mut self.provided {
                        Some(provided) => self.conns[index].provided(provided, result, flags),
                        None => self.conns[index].received(result),
                    },
                    SENT if cqueue::notif(flags) => {
                        let freed = self.unnotified.remove(&user_data);
                        self.free.extend(freed.unwrap_or_default());
                    }
                    SENT => {
                        let later = cqueue::more(flags).then_some(user_data);
                        self.sent(index & 0xffff, result, later)?;
                    }
                    _ => {
                        let slot = &self.slots[index];
                        assert_eq!(result, slot.len as i32, "the file fails");
                        self.conns[slot.conn].ready.push(index);
                    }
                }
            }
            for index in 0..self.conns.len() {
                self.parse(index)?;
                self.send(index)?;
                self.receive(index)?;
            }
        }
        Ok(())
    }

    fn parse(&mut self, index: usize) -> io::Result<()> {
        loop {
            let conn = &mut self.conns[index];
            if conn.receiving && !self.levers.multishot {
                return Ok(());
            }
            if let Some(coming) = &mut conn.coming {
                let len = self.slots[coming.slot].len as usize;
                let n = (conn.end - conn.start).min(len - coming.filled);
                // SAFETY: the slot has room for `len` bytes, and nobody else uses it now.
                unsafe {
                    let to = self.memory.slot(coming.slot).add(coming.filled);
                    std::ptr::copy_nonoverlapping(conn.inbox.as_ptr().add(conn.start), to, n);
                }
                conn.start += n;
                coming.filled += n;
                if coming.filled < len {
                    return Ok(());
                }
                let (slot, offset) = (coming.slot, coming.offset);
                conn.coming = None;
                let data = self.memory.slot(slot);
                let (fd, len) = (self.fd(), len as u32);
                let entry = if self.levers.fixed_buffers {
                    opcode::WriteFixed::new(fd, data, len, 0).offset(offset).build()
                } else {
                    opcode::Write::new(fd, data, len).offset(offset).build()
                };
                self.push(entry, MOVED | slot as u64)?;
                continue;
            }
            let Some(header) = conn.inbox[conn.start..conn.end].first_chunk::<REQUEST>() else {
                return Ok(());
            };
            let bytes = |at: usize| std::array::from_fn::<u8, 8, _>(|i| header[at + i]);
            let (cookie, offset) = (u64::from_be_bytes(bytes(8)), u64::from_be_bytes(bytes(16)));
            let (command, len) = (header[7], u64::from_be_bytes(bytes(20)) as u32);
            if command > 1 {
                conn.open = false;
                return Ok(());
            }
            conn.start += REQUEST;
            let mut head = [0; 16];
            head[..4].copy_from_slice(&0x6744_6698_u32.to_be_bytes());
            head[8..].copy_from_slice(&cookie.to_be_bytes());
            if let (Some(spliced), 0) = (&self.spliced, command) {
                spliced.reply(&self.file, offset, len as usize, &conn.socket, &head)?;
                continue;
            }
            conn.busy += 1;
            let slot = self.free.pop().expect("the client keeps to the depth that was given");
            let write = command == 1;
            self.slots[slot] = Slot { conn: index, len, write, head };
            if write {
                conn.coming = Some(Coming { slot, offset, filled: 0 });
            } else {
                let data = self.memory.slot(slot);
                let fd = self.fd();
                let entry = if self.levers.fixed_buffers {
                    opcode::ReadFixed::new(fd, data, len, 0).offset(offset).build()
                } else {
                    opcode::Read::new(fd, data, len).offset(offset).build()
                };
                self.push(entry, MOVED | slot as u64)?;
            }
        }
    }

    fn fd(&self) -> types::Fd {
        types::Fd(if self.levers.fixed_files { 0 } else { self.file.as_raw_fd() })
    }

    fn socket(&self, index: usize) -> types::Fd {
        let raw = self.conns[index].socket.as_raw_fd();
        types::Fd(if self.levers.fixed_files { 1 + index as RawFd } else { raw })
    }

    fn receive(&mut self, index: usize) -> io::Result<()> {
        let fd = self.socket(index);
        let conn = &mut self.conns[index];
        if conn.receiving || !conn.open {
            return Ok(());
        }
        conn.receiving = true;
        let entry = if self.levers.multishot {
            opcode::RecvMulti::new(fd, Provided::GROUP).build()
        } else if let Some(Coming { slot, filled, .. }) = conn.coming {
            // SAFETY: within the slot.
            let to = unsafe { self.memory.slot(slot).add(filled) };
            let rest = self.slots[slot].len - filled as u32;
            opcode::Recv::new(fd, to, rest).flags(libc::MSG_WAITALL).build()
        } else {
            conn.inbox.copy_within(conn.start..conn.end, 0);
            (conn.start, conn.end) = (0, conn.end - conn.start);
            let free = &mut conn.inbox[conn.end..];
            // 1: IORING_RECVSEND_POLL_FIRST
            opcode::Recv::new(fd, free.as_mut_ptr(), free.len() as u32).ioprio(1).build()
        };
        self.push(entry, RECEIVED | index as u64)
    }

    fn send(&mut self, index: usize) -> io::Result<()> {
        let conn = &mut self.conns[index];
        if conn.ready.is_empty() || !conn.sending.is_empty() {
            return Ok(());
        }
        std::mem::swap(&mut conn.ready, &mut conn.sending);
        conn.vectors.clear();
        for index in &conn.sending {
            let slot = &self.slots[*index];
            let mut vector = |base: *const u8, len: usize| {
                conn.vectors.push(libc::iovec { iov_base: base.cast_mut().cast(), iov_len: len });
            };
            vector(slot.head.as_ptr(), slot.head.len());
            if !slot.write {
                vector(self.memory.slot(*index), slot.len as usize);
            }
        }
        self.send_vectors(index)
    }

    fn send_vectors(&mut self, index: usize) -> io::Result<()> {
        let fd = self.socket(index);
        let conn = &mut self.conns[index];
        conn.message.msg_iov = conn.vectors.as_mut_ptr();
        conn.message.msg_iovlen = conn.vectors.len().min(1024);
        let flags = (libc::MSG_NOSIGNAL | libc::MSG_WAITALL) as u32;
        self.sends += 1;
        let user_data = SENT | (self.sends & 0xffff_ffff) << 16 | index as u64;
        let entry = if self.levers.send_zc {
            opcode::SendMsgZc::new(fd, &*conn.message).flags(flags).build()
        } else {
            opcode::SendMsg::new(fd, &*conn.message).flags(flags).build()
        };
        self.push(entry, user_data)
    }

    /// `later`: under what user data the kernel says that it is done with the slots, if it has them still.
    fn sent(&mut self, index: usize, result: i32, later: Option<u64>) -> io::Result<()> {
        let conn = &mut self.conns[index];
        let mut n = usize::try_from(result).unwrap_or(0);
        conn.open &= n > 0;
        if conn.open {
            let mut through = 0;
            while let Some(first) = conn.vectors.get_mut(through)
                && n > 0
            {
                if n < first.iov_len {
                    // SAFETY: within the same vector.
                    first.iov_base = unsafe { first.iov_base.cast::<u8>().add(n) }.cast();
                    first.iov_len -= n;
                    break;
                }
                n -= first.iov_len;
                through += 1;
            }
            conn.vectors.drain(..through);
            if !conn.vectors.is_empty() {
                return self.send_vectors(index);
            }
        }
        conn.busy -= conn.sending.len();
        match later {
            // TCP lets go of bytes in their order, so that the last part of a send speaks for all.
            Some(user_data) => {
                self.unnotified.insert(user_data, std::mem::take(&mut conn.sending));
            }
            None => self.free.append(&mut conn.sending),
        }
        Ok(())
    }
}

impl Conn {
    fn new(socket: OwnedFd) -> Self {
        // SAFETY: all zeroes is a valid msghdr: no address, no vectors, no control data.
        let message = Box::new(unsafe { std::mem::zeroed() });
        Self {
            socket,
            inbox: vec![0; INBOX],
            start: 0,
            end: 0,
            receiving: false,
            open: true,
            coming: None,
            ready: Vec::new(),
            sending: Vec::new(),
            vectors: Vec::new(),
            message,
            busy: 0,
        }
    }

    /// Takes what a receive with provided buffers brought.
    fn provided(&mut self, provided: &mut Provided, result: i32, flags: u32) {
        self.receiving = cqueue::more(flags);
        let Some(buffer) = cqueue::buffer_select(flags) else {
            self.open &= result == -libc::ENOBUFS;
            return;
        };
        self.inbox.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let bytes = provided.bytes(buffer, result as usize);
        if self.inbox.len() < self.end + bytes.len() {
            self.inbox.resize(2 * (self.end + bytes.len()), 0);
        }
        self.inbox[self.end..][..bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
        provided.give_back(buffer);
    }

    fn received(&mut self, result: i32) {
        self.receiving = false;
        let n = usize::try_from(result).unwrap_or(0);
        self.open &= n > 0;
        match &mut self.coming {
            // What was received went straight to the slot.
            Some(coming) if self.start == self.end => coming.filled += n,
            _ => self.end += n,
        }
    }
}
