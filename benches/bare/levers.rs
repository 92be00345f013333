//! What io_uring and Linux offer beyond plain receives, reads and sends: each can be tried here before
//! it is built into the data path, where it would need more.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::{IoUring, types::BufRingEntry};

/// The levers that are pulled.
#[derive(Clone, Copy, Default)]
pub(crate) struct Levers {
    /// File and sockets are in the ring's table of files.
    pub(crate) fixed_files: bool,
    /// Reads and writes of the file use registered memory.
    pub(crate) fixed_buffers: bool,
    /// One receive for the life of a connection, into buffers that the kernel chooses.
    pub(crate) multishot: bool,
    /// Replies leave without a copy, where the socket can do that (TCP).
    pub(crate) send_zc: bool,
    /// Reads go from the page cache to the socket through a pipe.
    pub(crate) splice: bool,
}

impl Levers {
    /// Takes an argument; `false` if it names no lever.
    pub(crate) fn take(&mut self, argument: &str) -> bool {
        let lever = match argument {
            "--fixed-files" => &mut self.fixed_files,
            "--fixed-buffers" => &mut self.fixed_buffers,
            "--multishot" => &mut self.multishot,
            "--send-zc" => &mut self.send_zc,
            "--splice" => &mut self.splice,
            _ => return false,
        };
        *lever = true;
        true
    }
}

/// Buffers that the kernel chooses from for what it receives.
pub(crate) struct Provided {
    entries: *mut BufRingEntry,
    memory: Vec<u8>,
    tail: u16,
}

impl Provided {
    /// The name of the group of buffers.
    pub(crate) const GROUP: u16 = 0;

    const COUNT: u16 = 64;
    const SIZE: usize = 64 << 10;

    pub(crate) fn new(uring: &IoUring) -> io::Result<Self> {
        let len = usize::from(Self::COUNT) * size_of::<BufRingEntry>();
        let (prot, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping of nothing; it is checked below and never unmapped.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = vec![0; usize::from(Self::COUNT) * Self::SIZE];
        // SAFETY: the mapping has room for the entries, and both it and the buffers stay.
        unsafe {
            uring.submitter().register_buf_ring_with_flags(
                start as u64,
                Self::COUNT,
                Self::GROUP,
                0,
            )?
        };
        let mut provided = Self { entries: start.cast(), memory, tail: 0 };
        (0..Self::COUNT).for_each(|buffer| provided.give_back(buffer));
        Ok(provided)
    }

    /// The first bytes of a buffer that the kernel chose.
    pub(crate) fn bytes(&self, buffer: u16, len: usize) -> &[u8] {
        &self.memory[usize::from(buffer) * Self::SIZE..][..len]
    }

    pub(crate) fn give_back(&mut self, buffer: u16) {
        let place = usize::from(self.tail % Self::COUNT);
        let start = self.memory[usize::from(buffer) * Self::SIZE..].as_mut_ptr();
        // SAFETY: the kernel does not look at an entry before the tail is beyond it.
        unsafe {
            let entry = &mut *self.entries.add(place);
            entry.set_addr(start as u64);
            entry.set_len(Self::SIZE as u32);
            entry.set_bid(buffer);
            self.tail = self.tail.wrapping_add(1);
            let tail = BufRingEntry::tail(self.entries).cast::<AtomicU16>();
            (*tail).store(self.tail, Ordering::Release);
        }
    }
}

/// A pipe between the page cache and a socket.
pub(crate) struct Spliced {
    from: OwnedFd,
    to: OwnedFd,
}

impl Spliced {
    pub(crate) fn new() -> io::Result<Self> {
        let mut ends = [0; 2];
        // SAFETY: the kernel writes two descriptors, which are nobody's yet.
        let (from, to) = unsafe {
            if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) < 0 {
                return Err(io::Error::last_os_error());
            }
            libc::fcntl(ends[1], libc::F_SETPIPE_SZ, 1 << 20);
            (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
        };
        Ok(Self { from, to })
    }

    /// Sends the reply to a read, and waits until the socket has taken it.
    pub(crate) fn reply(
        &self,
        file: &File,
        offset: u64,
        len: usize,
        socket: &OwnedFd,
        head: &[u8; 16],
    ) -> io::Result<()> {
        let checked = |result: isize| match result {
            n if n > 0 => Ok(n as usize),
            _ => Err(io::Error::last_os_error()),
        };
        // SAFETY: the bytes are there, and all descriptors are open.
        checked(unsafe {
            let flags = libc::MSG_NOSIGNAL | libc::MSG_MORE;
            libc::send(socket.as_raw_fd(), head.as_ptr().cast(), head.len(), flags)
        })?;
        let (mut offset, mut rest) = (offset as libc::loff_t, len);
        let null = std::ptr::null_mut;
        while rest > 0 {
            // SAFETY: as above; the kernel advances the offset.
            let mut held = checked(unsafe {
                let to = self.to.as_raw_fd();
                libc::splice(file.as_raw_fd(), &mut offset, to, null(), rest, 0)
            })?;
            rest -= held;
            while held > 0 {
                let more = if rest > 0 { libc::SPLICE_F_MORE } else { 0 };
                // SAFETY: as above.
                held -= checked(unsafe {
                    let (from, to) = (self.from.as_raw_fd(), socket.as_raw_fd());
                    libc::splice(from, null(), to, null(), held, more)
                })?;
            }
        }
        Ok(())
    }
}
