//! Locks on a disk's file or device, those that QEMU takes.
//!
//! QEMU, qemu-img, qemu-nbd and qemu-storage-daemon lock single bytes of an image (block/file-posix.c):
//! byte 100 + *p* is locked by who uses permission *p*, byte 200 + *p* by who does not share it. All
//! locks are shared ones, so taking them never fails; then each looks whether anybody has locked
//! the opposite byte. They are locks of the open file description (`F_OFD_SETLK`), which matters
//! for more than their being inherited: a request in io_uring keeps its file open, so the locks
//! outlive a process that was killed for as long as the kernel has IO of it under way. Whoever
//! looks at the locks first can never be overwritten by a predecessor.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};

use nix::fcntl::{FcntlArg, fcntl};

/// Bytes that are locked, as a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Locks {
    /// Permissions in use: byte 100 + bit.
    pub uses: u8,
    /// Permissions that nobody else may use: byte 200 + bit.
    pub denies: u8,
}

/// `BLK_PERM_CONSISTENT_READ` of QEMU: to read what does not change by itself.
const READ: u8 = 1 << 0;
/// Bit of qemu's `BLK_PERM_WRITE`: others may write.
const WRITE: u8 = 1 << 1;
/// Bit of qemu's `BLK_PERM_RESIZE`: others may change the size.
const RESIZE: u8 = 1 << 3;

const USES: i64 = 100;
const DENIES: i64 = 200;
/// Locked by every agent, and not by QEMU: who finds a conflict and this byte locked may wait for
/// what an agent that was killed has left under way.
const PARDA: i64 = 400;
/// From here on, the byte of its host is locked by an agent that shares a disk: for as long as the kernel has IO of it.
const HAS: i64 = 1 << 33;
/// The same, by an open file that no IO uses: for as long as the agent lives.
const LIVES: i64 = 2 << 33;
/// Number of hosts that have a byte each.
const HOSTS: i64 = 1 << 32;

impl Locks {
    /// Locks that a disk needs. `shared`: others may write at the same time.
    #[must_use]
    pub fn of(read_only: bool, shared: bool) -> Self {
        Self {
            uses: if read_only { READ } else { READ | WRITE },
            denies: if shared { RESIZE } else { WRITE | RESIZE },
        }
    }

    /// Locks of an exchange. Every disk of an agent has locks against it; other exchanges do not.
    #[must_use]
    pub fn of_exchange() -> Self {
        Self { uses: RESIZE, denies: 0 }
    }

    /// Whether a disk that is written has the file of this open file. Exchanges write and do not say so, and who only reads,
    /// as for a backup, is in nobody's way.
    ///
    /// # Errors
    /// The file system has no locks.
    pub fn is_written_disk(fd: impl AsFd) -> io::Result<bool> {
        Ok(Self { uses: 0, denies: WRITE }.obstacle(fd)?.is_some())
    }

    /// Locks that one of the two has, or both.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self { uses: self.uses | other.uses, denies: self.denies | other.denies }
    }

    /// Locks that `other` has not.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self { uses: self.uses & !other.uses, denies: self.denies & !other.denies }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    fn bytes(self) -> impl Iterator<Item = i64> {
        let bits =
            |set: u8, base| (0..8i64).filter(move |b| set & 1 << b != 0).map(move |b| base + b);
        bits(self.uses, USES).chain(bits(self.denies, DENIES))
    }

    /// Takes these locks beside those that `fd` has.
    ///
    /// # Errors
    /// The file system has no locks.
    pub fn take(self, fd: impl AsFd) -> io::Result<()> {
        set(&fd, PARDA, libc::F_RDLCK)?;
        self.take_as_qemu(fd)
    }

    /// Takes these locks and does not say that it is an agent who does.
    ///
    /// # Errors
    /// The file system has no locks.
    pub fn take_as_qemu(self, fd: impl AsFd) -> io::Result<()> {
        self.bytes().try_for_each(|byte| set(&fd, byte, libc::F_RDLCK))
    }

    /// Gives these locks up.
    ///
    /// # Errors
    /// The file system has no locks.
    pub fn release(self, fd: impl AsFd) -> io::Result<()> {
        self.bytes().try_for_each(|byte| set(&fd, byte, libc::F_UNLCK))
    }

    /// Locks of another open file that are in the way of these: what whoever has them does. `None` if nothing is.
    ///
    /// # Errors
    /// The file system has no locks.
    pub fn obstacle(self, fd: impl AsFd) -> io::Result<Option<&'static str>> {
        let opposite = Self { uses: self.denies, denies: self.uses };
        for byte in opposite.bytes() {
            if is_locked(&fd, byte)? {
                return Ok(Some(match (byte - USES, byte - DENIES) {
                    (1, _) => "has it open for writing",
                    (0 | 2..8, _) => "changes its size",
                    (_, 0) => "lets nobody read it",
                    _ => "lets nobody write to it",
                }));
            }
        }
        Ok(None)
    }
}

/// Gives up all locks of this open file.
///
/// # Errors
/// The file system has no locks.
pub fn release_all(fd: impl AsFd) -> io::Result<()> {
    // All bytes, to the end.
    let all = libc::flock { l_len: 0, ..lock(0, libc::F_UNLCK) };
    Ok(fcntl(fd, FcntlArg::F_OFD_SETLK(&all)).map(drop)?)
}

/// Whether an agent, alive or killed, has another open file of this inode.
///
/// # Errors
/// The file system has no locks.
pub fn an_agent_has_it(fd: impl AsFd) -> io::Result<bool> {
    is_locked(fd, PARDA)
}

/// Says that the agent of this host has the file: by this open file, and for as long as the returned one is kept. Of the
/// host's number 32 bits count.
///
/// # Errors
/// The file cannot be opened once more, or its file system has no locks.
pub fn share(fd: impl AsFd, host: u64) -> io::Result<File> {
    let (host, fd) = (byte_of(host), fd.as_fd());
    let again = File::open(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
    set(&again, LIVES + host, libc::F_RDLCK)?;
    set(fd, HAS + host, libc::F_RDLCK)?;
    Ok(again)
}

/// Whether the kernel may have IO of a killed agent that shared this file: of the one before the agent of this host, or of one
/// of another host. An agent of which a thread hangs in the kernel is taken for alive.
///
/// # Errors
/// The file system has no locks.
pub fn a_killed_agent_shared_it(fd: impl AsFd, host: u64) -> io::Result<bool> {
    let mut ranges: Vec<Range<i64>> = std::iter::once(0..HOSTS).collect();
    while let Some(range) = ranges.pop() {
        let Some(byte) = locked_in(&fd, HAS + range.start..HAS + range.end)? else { continue };
        let other = byte - HAS;
        if other == byte_of(host) || !range.contains(&other) || !is_locked(&fd, LIVES + other)? {
            return Ok(true);
        }
        ranges.extend([range.start..other, other + 1..range.end]);
    }
    Ok(false)
}

fn byte_of(host: u64) -> i64 {
    (host % HOSTS as u64) as i64
}

fn lock(byte: i64, kind: i32) -> libc::flock {
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: byte,
        l_len: 1,
        l_pid: 0,
    }
}

fn set(fd: impl AsFd, byte: i64, kind: i32) -> io::Result<()> {
    Ok(fcntl(fd, FcntlArg::F_OFD_SETLK(&lock(byte, kind))).map(drop)?)
}

fn is_locked(fd: impl AsFd, byte: i64) -> io::Result<bool> {
    Ok(locked_in(fd, byte..byte + 1)?.is_some())
}

/// A byte there that another open file has locked.
fn locked_in(fd: impl AsFd, bytes: Range<i64>) -> io::Result<Option<i64>> {
    if bytes.is_empty() {
        // To the kernel a length of zero is one without end.
        return Ok(None);
    }
    let len = bytes.end - bytes.start;
    let mut found = libc::flock { l_len: len, ..lock(bytes.start, libc::F_WRLCK) };
    fcntl(fd, FcntlArg::F_OFD_GETLK(&mut found))?;
    Ok((i32::from(found.l_type) != libc::F_UNLCK).then_some(found.l_start))
}
