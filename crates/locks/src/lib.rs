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
/// Locked by every agent that shares a disk, by an open file that no IO uses: the lock ends with the agent.
const ALIVE: i64 = 401;

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

    /// Those that `other` has not.
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
    Locks { uses: 0xff, denies: 0xff }.release(&fd)?;
    set(fd, PARDA, libc::F_UNLCK)
}

/// Whether an agent, alive or killed, has another open file of this inode.
///
/// # Errors
/// The file system has no locks.
pub fn an_agent_has_it(fd: impl AsFd) -> io::Result<bool> {
    is_locked(fd, PARDA)
}

/// Says that an agent has this file and lives, for as long as the returned open file of the same inode is kept. Only for disks that are
/// shared: beside an agent that lives nobody has to wait for what a killed one has left under way. A killed agent lives on while one of
/// its threads hangs in the kernel.
///
/// # Errors
/// The file cannot be opened once more, or its file system has no locks.
pub fn say_alive(fd: impl AsFd) -> io::Result<File> {
    let again = File::open(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()))?;
    set(&again, ALIVE, libc::F_RDLCK)?;
    Ok(again)
}

/// Whether an agent that shares this file lives. Not for one that has said so itself.
///
/// # Errors
/// The file system has no locks.
pub fn a_live_agent_shares_it(fd: impl AsFd) -> io::Result<bool> {
    is_locked(fd, ALIVE)
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
    let mut found = lock(byte, libc::F_WRLCK);
    fcntl(fd, FcntlArg::F_OFD_GETLK(&mut found))?;
    Ok(i32::from(found.l_type) != libc::F_UNLCK)
}
