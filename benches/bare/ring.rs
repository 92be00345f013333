//! The ring: requests in, reads and writes of the file, replies out.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use io_uring::{IoUring, opcode, squeue, types};

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
}

impl Ring {
    pub(crate) fn new(file: File, conns: usize, depth: usize, block: usize) -> io::Result<Self> {
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .setup_defer_taskrun()
            .build(4096)?;
        // A client may ask again before we hear that its reply was sent.
        let (count, block) = (2 * conns * depth, block.next_multiple_of(ALIGN));
        let len = count * block;
        let (prot, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping of nothing; it is checked below and never unmapped.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            uring,
            file,
            memory: Memory { start: start.cast(), block },
            slots: vec![Slot::default(); count],
            free: (0..count).rev().collect(),
            conns: Vec::new(),
        })
    }

    fn push(&mut self, entry: squeue::Entry, user_data: u64) -> io::Result<()> {
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
        for index in 0..self.conns.len() {
            self.receive(index)?;
        }
        let mut done = Vec::new();
        while self.conns.iter().any(|c| c.open || c.receiving || c.busy > 0) {
            self.uring.submit_and_wait(1)?;
            done.extend(self.uring.completion().map(|e| (e.user_data(), e.result())));
            for (user_data, result) in done.drain(..) {
                let index = (user_data & !(3 << 62)) as usize;
                match user_data & (3 << 62) {
                    RECEIVED => self.conns[index].received(result),
                    SENT => self.sent(index, result)?,
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
            if conn.receiving {
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
                let entry = opcode::Write::new(self.fd(), data, len as u32).offset(offset).build();
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
            conn.busy += 1;
            let slot = self.free.pop().expect("the client keeps to the depth that was given");
            let write = command == 1;
            let mut head = [0; 16];
            head[..4].copy_from_slice(&0x6744_6698_u32.to_be_bytes());
            head[8..].copy_from_slice(&cookie.to_be_bytes());
            self.slots[slot] = Slot { conn: index, len, write, head };
            if write {
                conn.coming = Some(Coming { slot, offset, filled: 0 });
            } else {
                let data = self.memory.slot(slot);
                let entry = opcode::Read::new(self.fd(), data, len).offset(offset).build();
                self.push(entry, MOVED | slot as u64)?;
            }
        }
    }

    fn fd(&self) -> types::Fd {
        types::Fd(self.file.as_raw_fd())
    }

    fn receive(&mut self, index: usize) -> io::Result<()> {
        let conn = &mut self.conns[index];
        if conn.receiving || !conn.open {
            return Ok(());
        }
        conn.receiving = true;
        let fd = types::Fd(conn.fd());
        let entry = if let Some(Coming { slot, filled, .. }) = conn.coming {
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
        let conn = &mut self.conns[index];
        conn.message.msg_iov = conn.vectors.as_mut_ptr();
        conn.message.msg_iovlen = conn.vectors.len().min(1024);
        let flags = (libc::MSG_NOSIGNAL | libc::MSG_WAITALL) as u32;
        let entry = opcode::SendMsg::new(types::Fd(conn.fd()), &*conn.message).flags(flags).build();
        self.push(entry, SENT | index as u64)
    }

    fn sent(&mut self, index: usize, result: i32) -> io::Result<()> {
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
        self.free.append(&mut conn.sending);
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

    fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
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
