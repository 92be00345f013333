//! Open files and block devices of a region; anything else is refused.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use parda_control::Bytes;
use parda_input::locks::Locks;
use rustix::fs::{self, Advice, FallocateFlags, FileType, Mode, OFlags, SeekFrom};
use rustix::io::{Errno, retry_on_intr};

use super::{Block, FileState, RegionFault, Store};

/// As many buffers as one vectored read takes (`IOV_MAX`).
const MOST_BUFFERS: usize = 1024;

/// Kind of the file that is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A regular file, which can grow.
    File,
    /// A block device, which cannot.
    Device,
}

/// Access that a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// For reading alone.
    Read,
    /// Reading and writing; only reading, if writing is not allowed.
    Write,
    /// Reading and writing, while nobody else on this host has the device: not mounted, no part of LVM or RAID.
    Alone,
    /// Reading and writing, of a file that is made by this opening.
    Create,
}

/// A file or device that is open.
#[derive(Debug)]
pub(crate) struct Opened {
    fd: OwnedFd,
    kind: Kind,
    inode: u64,
    size: u64,
    caching: Caching,
    /// Why it could be opened for reading only.
    read_only: Option<Errno>,
}

/// Whether IO goes through the page cache. Not every file system allows direct IO: some refuse at the opening,
/// some at a read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Caching {
    Direct,
    Buffered,
}

impl Opened {
    /// Opens a regular file or a block device. A symbolic link in the last component is followed only below /dev,
    /// and only to a block device. Devices have names there that are links.
    pub(crate) fn open(path: &Path, access: Access) -> Result<Opened, RegionFault> {
        let kind = if access == Access::Create { Kind::File } else { look(path)? };
        // A device is opened through its link. The opened file is checked once more below.
        let follow = if kind == Kind::Device { OFlags::empty() } else { OFlags::NOFOLLOW };
        // NONBLOCK: a FIFO that takes the file's place must not hold us up.
        let flags = OFlags::CLOEXEC | OFlags::NONBLOCK | follow;
        let how = match access {
            Access::Read => OFlags::RDONLY,
            Access::Write => OFlags::RDWR,
            // Without CREATE this says "alone" of a device, and nothing of a file.
            Access::Alone if kind == Kind::Device => OFlags::RDWR | OFlags::EXCL,
            Access::Alone => OFlags::RDWR,
            Access::Create => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
        };
        let (fd, caching, read_only) = match past_the_cache(path, flags | how) {
            Err(errno @ (Errno::ROFS | Errno::ACCESS | Errno::PERM)) if access == Access::Write => {
                let (fd, caching) =
                    past_the_cache(path, flags | OFlags::RDONLY).map_err(open_fault)?;
                (fd, caching, Some(errno))
            }
            Err(errno) if access == Access::Create => {
                return Err(match errno {
                    Errno::ROFS => RegionFault::ReadOnly,
                    errno => RegionFault::Create(errno.into()),
                });
            }
            opened => {
                let (fd, caching) = opened.map_err(open_fault)?;
                (fd, caching, None)
            }
        };
        let stat = fs::fstat(&fd).map_err(open_fault)?;
        if kind_of(FileType::from_raw_mode(stat.st_mode)) != Some(kind) {
            return Err(RegionFault::NotAFile);
        }
        let size = fs::seek(&fd, SeekFrom::End(0)).map_err(open_fault)?;
        Ok(Opened { fd, kind, inode: stat.st_ino, size, caching, read_only })
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn state(&self) -> FileState {
        FileState { inode: self.inode, bytes: self.size }
    }

    /// Finds out anew how long it is.
    pub(crate) fn measure(&mut self) -> Result<(), RegionFault> {
        self.size = fs::seek(&self.fd, SeekFrom::End(0)).map_err(open_fault)?;
        Ok(())
    }

    /// Locks the file for writing with the lock that qemu takes, which shuts out other takers of this lock.
    /// Returns whether that was possible. The lock ends when this process closes any descriptor of the file.
    pub(crate) fn lock(&self) -> bool {
        let operation = fs::FlockOperation::NonBlockingLockExclusive;
        match fs::fcntl_lock(&self.fd, operation) {
            Err(Errno::AGAIN | Errno::ACCESS) => false,
            // Not every file system has locks.
            Ok(()) | Err(_) => true,
        }
    }

    /// Takes the locks of an exchange, until the file is closed. Fails if it is in use as a disk.
    pub(crate) fn share(&self) -> Result<(), RegionFault> {
        // Not every file system has locks.
        let taken = Locks::of_exchange().take(&self.fd);
        let looked = taken.and_then(|()| Locks::is_written_disk(&self.fd));
        if looked.unwrap_or_default() { Err(RegionFault::InUse) } else { Ok(()) }
    }

    fn writable(&self) -> Result<(), RegionFault> {
        match self.read_only {
            None => Ok(()),
            Some(Errno::ROFS) => Err(RegionFault::ReadOnly),
            // What a device says that is read-only and was opened for writing by root.
            Some(_) if self.kind == Kind::Device && rustix::process::geteuid().is_root() => {
                Err(RegionFault::ReadOnly)
            }
            Some(errno) => Err(RegionFault::Open(errno.into())),
        }
    }

    fn write_fault(&self, errno: Errno, needed: u64) -> RegionFault {
        match errno {
            // EPERM is what a read-only block device says, which can be opened for writing.
            Errno::ROFS | Errno::PERM => RegionFault::ReadOnly,
            Errno::NOSPC | Errno::DQUOT => RegionFault::NoSpace { needed: Bytes(needed) },
            _ => RegionFault::Write(errno.into()),
        }
    }

    /// Does `io` past the page cache, and from then on through it where that is refused.
    fn either_way<T>(
        &mut self,
        mut io: impl FnMut(BorrowedFd<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match retry_on_intr(|| io(self.fd.as_fd())) {
            Err(Errno::INVAL) if self.caching == Caching::Direct => {
                let flags = fs::fcntl_getfl(&self.fd)?;
                fs::fcntl_setfl(&self.fd, flags - OFlags::DIRECT)?;
                self.caching = Caching::Buffered;
                retry_on_intr(|| io(self.fd.as_fd()))
            }
            done => done,
        }
    }
}

impl Store for Opened {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&mut self, at: u64, blocks: &mut [Block]) -> Result<(), RegionFault> {
        let fault = |errno: Errno| RegionFault::Read(errno.into());
        let mut done = 0;
        // A read that ends within a block has met the end of the file.
        while done < blocks.len() * Block::BYTES && done.is_multiple_of(Block::BYTES) {
            if self.caching == Caching::Buffered {
                // Else the cache may show old contents of the file, from the last read on this host.
                fs::fadvise(&self.fd, at, None, Advice::DontNeed).map_err(fault)?;
            }
            let rest = &mut blocks[done / Block::BYTES..];
            let read = self.either_way(|fd| {
                let mut buffers: Vec<_> = rest
                    .iter_mut()
                    .take(MOST_BUFFERS)
                    .map(|block| IoSliceMut::new(&mut block.0))
                    .collect();
                rustix::io::preadv(fd, &mut buffers, at + done as u64)
            });
            match read.map_err(fault)? {
                0 => break,
                read => done += read,
            }
        }
        Ok(())
    }

    fn write(&mut self, at: u64, block: &Block) -> Result<(), RegionFault> {
        self.writable()?;
        let end = at + Block::BYTES as u64;
        let written = self.either_way(|fd| rustix::io::pwrite(fd, &block.0, at));
        if written.map_err(|errno| self.write_fault(errno, end))? != Block::BYTES {
            return Err(RegionFault::Write(std::io::ErrorKind::WriteZero.into()));
        }
        if self.caching == Caching::Buffered {
            // The others read the medium, not our page cache.
            fs::fdatasync(&self.fd).map_err(|errno| self.write_fault(errno, end))?;
        }
        Ok(())
    }

    /// Never by setting a length, which would cut off what another
    /// host with a larger count has just added.
    fn grow(&mut self, bytes: u64) -> Result<(), RegionFault> {
        self.writable()?;
        if self.size >= bytes {
            return Ok(());
        }
        match retry_on_intr(|| fs::fallocate(&self.fd, FallocateFlags::empty(), 0, bytes)) {
            // Then writes themselves extend the file as far as they reach.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            grown => grown.map_err(|errno| self.write_fault(errno, bytes)),
        }
    }

    fn sync(&mut self) -> Result<(), RegionFault> {
        fs::fsync(&self.fd).map_err(|errno| RegionFault::Write(errno.into()))
    }
}

/// Kind of the file at a path, without opening it: opening a device node may have effects of its own.
fn look(path: &Path) -> Result<Kind, RegionFault> {
    let stat = fs::lstat(path).map_err(open_fault)?;
    let file_type = FileType::from_raw_mode(stat.st_mode);
    if file_type != FileType::Symlink {
        return kind_of(file_type).ok_or(RegionFault::NotAFile);
    }
    let link = || RegionFault::Link(std::fs::read_link(path).unwrap_or_default());
    let directory = std::path::absolute(path)
        .and_then(|path| path.parent().map_or(Ok(path.clone()), std::fs::canonicalize));
    if !directory.is_ok_and(|directory| directory.starts_with("/dev")) {
        return Err(link());
    }
    let stat = fs::stat(path).map_err(open_fault)?;
    match kind_of(FileType::from_raw_mode(stat.st_mode)) {
        Some(Kind::Device) => Ok(Kind::Device),
        _ => Err(link()),
    }
}

fn kind_of(file_type: FileType) -> Option<Kind> {
    match file_type {
        FileType::RegularFile => Some(Kind::File),
        FileType::BlockDevice => Some(Kind::Device),
        _ => None,
    }
}

fn past_the_cache(path: &Path, flags: OFlags) -> Result<(OwnedFd, Caching), Errno> {
    let open = |flags| retry_on_intr(|| fs::open(path, flags, Mode::from_raw_mode(0o644)));
    match open(flags | OFlags::DIRECT) {
        // A file system that refuses may already have created the file.
        Err(Errno::INVAL) if flags.contains(OFlags::CREATE) => {
            let flags = if fs::lstat(path).is_ok_and(|stat| stat.st_size == 0) {
                flags - OFlags::CREATE - OFlags::EXCL
            } else {
                flags
            };
            Ok((open(flags)?, Caching::Buffered))
        }
        Err(Errno::INVAL) => Ok((open(flags)?, Caching::Buffered)),
        opened => Ok((opened?, Caching::Direct)),
    }
}

fn open_fault(errno: Errno) -> RegionFault {
    match errno {
        Errno::NOENT => RegionFault::Missing,
        // A link, a directory or a FIFO that has taken the place of what was looked at.
        Errno::LOOP | Errno::ISDIR | Errno::NXIO => RegionFault::NotAFile,
        errno => RegionFault::Open(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_the_user_may_not_open_says_where_rights_are_explained() {
        let told = open_fault(Errno::ACCESS).to_string();
        assert!(told.contains("Permission denied (os error 13). User "), "{told}");
        assert!(told.contains(" lacks the rights: "), "{told}");
        assert!(told.contains("docs/installing.md#disks"), "{told}");
        let told = RegionFault::ReadOnly.to_string();
        assert!(told.contains("the line ReadWritePaths="), "{told}");
        let told = open_fault(Errno::IO).to_string();
        assert!(told.ends_with("(os error 5)"), "{told}");
    }

    #[test]
    fn a_file_system_that_refuses_direct_io_is_used_through_its_cache() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("exchange");
        std::fs::write(&path, vec![0; 8192]).unwrap();
        let mut opened = Opened::open(&path, Access::Write).unwrap();
        let mut refuses = 0;
        opened.caching = Caching::Direct;
        let done = opened.either_way(|fd| {
            let direct = fs::fcntl_getfl(fd)?.contains(OFlags::DIRECT);
            refuses += 1;
            if refuses == 1 { Err(Errno::INVAL) } else { Ok(direct) }
        });
        assert_eq!((done, opened.caching), (Ok(false), Caching::Buffered));
        opened.write(4096, &Block([4; Block::BYTES])).unwrap();
        for access in [Access::Read, Access::Write] {
            let mut blocks = [Block::ZERO, Block::ZERO, Block([9; Block::BYTES])];
            Opened::open(&path, access).unwrap().read(0, &mut blocks[..2]).unwrap();
            assert_eq!((blocks[0].0[0], blocks[1].0[4095], blocks[2].0[0]), (0, 4, 9));
        }
    }

    #[test]
    fn what_is_no_file_and_no_device_is_refused_unopened() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let socket = dir.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for path in [dir.path(), &fifo, &socket, Path::new("/dev/null")] {
            for access in [Access::Read, Access::Write, Access::Alone] {
                let fault = Opened::open(path, access).unwrap_err();
                assert!(matches!(fault, RegionFault::NotAFile), "{}: {fault}", path.display());
            }
        }
    }

    #[test]
    fn a_symbolic_link_is_not_followed_to_a_file() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), [0; 128]).unwrap();
        for (link, target) in [("link", "file"), ("dangling", "nothing")] {
            let link = dir.path().join(link);
            std::os::unix::fs::symlink(target, &link).unwrap();
            let fault = Opened::open(&link, Access::Write).unwrap_err();
            assert!(matches!(&fault, RegionFault::Link(to) if to == Path::new(target)), "{fault}");
        }
        // Created through a dangling link: no.
        assert!(Opened::open(&dir.path().join("dangling"), Access::Create).is_err());
        assert!(!dir.path().join("nothing").exists());
        // A link in a directory's place is the path to it, and no more.
        std::os::unix::fs::symlink(dir.path(), dir.path().join("dir")).unwrap();
        assert!(Opened::open(&dir.path().join("dir/file"), Access::Write).is_ok());
        // Below /dev, but to no block device.
        let fault = Opened::open(Path::new("/dev/stdin"), Access::Write).unwrap_err();
        assert!(matches!(fault, RegionFault::Link(_)), "{fault}");
    }
}
