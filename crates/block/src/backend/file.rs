//! Regular files and block devices.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;

use parda_control::Bytes;
use parda_nbd::{BlockSizes, Errno, Op};
use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, StatxFlags};

use super::{Direct, Failure, Geometry, OpenError, Request};
use crate::buffer::Pool;
use crate::ring::{At, Ring};

/// What is known of a file before its thread has it.
pub(crate) struct Opened {
    pub(crate) fd: OwnedFd,
    /// Reads and writes go through the page cache.
    cached: bool,
    /// A write may be asked to be durable by itself.
    dsync: bool,
    pub(crate) geometry: Geometry,
    kind: FileType,
}

/// Opens a file or block device.
pub(crate) fn open(path: &Path, direct: Direct, read_only: bool) -> Result<Opened, OpenError> {
    let access = if read_only { OFlags::RDONLY } else { OFlags::RDWR };
    let try_open = |flags| fs::openat(CWD, path, access | OFlags::CLOEXEC | flags, Mode::empty());
    let fail = |e: rustix::io::Errno| OpenError::Open { path: path.into(), source: e.into() };

    let buffered = try_open(OFlags::empty()).map_err(fail)?;
    let kind = FileType::from_raw_mode(fs::fstat(&buffered).map_err(fail)?.st_mode);
    if !matches!(kind, FileType::RegularFile | FileType::BlockDevice) {
        return Err(OpenError::NotAFile(path.into()));
    }
    let size = fs::seek(&buffered, fs::SeekFrom::End(0)).map_err(fail)?;
    let not_direct = |why: String| OpenError::NotDirect { path: path.into(), why };
    let attempt = if direct == Direct::Off {
        Err(String::new())
    } else {
        try_open(OFlags::DIRECT).map_err(|e| io::Error::from(e).to_string()).and_then(|fd| {
            let block = logical_block(&fd, kind);
            if size.is_multiple_of(u64::from(block)) {
                Ok((fd, block))
            } else {
                Err(format!("its size of {size} bytes is no multiple of its block of {block}"))
            }
        })
    };
    // What goes around the page cache cannot be fetched into it, so CACHE is for the others.
    let (fd, min, cached) = match attempt {
        Ok((fd, block)) => (fd, block, false),
        Err(why) if direct == Direct::On => return Err(not_direct(why)),
        Err(_) => (buffered, 1, true),
    };
    let blocks = BlockSizes::with_min(min).map_err(|e| not_direct(e.to_string()))?;
    let dsync = kind == FileType::BlockDevice || honours_dsync(&fd);
    let (trim, write_zeroes, fast_zero, cache) = (true, true, true, cached);
    let geometry = Geometry { size, blocks, trim, write_zeroes, fast_zero, cache };
    Ok(Opened { fd, cached, dsync, geometry, kind })
}

/// What offsets and lengths of direct IO must be a multiple of, in bytes.
fn logical_block(fd: &OwnedFd, kind: FileType) -> u32 {
    if kind == FileType::BlockDevice {
        return fs::ioctl_blksszget(fd).unwrap_or(crate::buffer::ALIGN as u32);
    }
    // Linux 6.1 says it for regular files; 4096 is right, if perhaps too large, for all others.
    fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
        .ok()
        .map(|s| s.stx_dio_offset_align)
        .filter(|align| *align != 0)
        .unwrap_or(crate::buffer::ALIGN as u32)
}

/// Whether a write with `RWF_DSYNC` is durable when it completes. FUSE drops the flag of a direct
/// write that completes asynchronously (Linux 6.18), without a word; so only file systems that
/// are known to honour it are trusted, and on all others a sync follows the write.
fn honours_dsync(fd: &OwnedFd) -> bool {
    const BTRFS: fs::FsWord = 0x9123_683e;
    const EXT4: fs::FsWord = 0xef53;
    const TMPFS: fs::FsWord = 0x0102_1994;
    const XFS: fs::FsWord = 0x5846_5342;
    fs::fstatfs(fd).is_ok_and(|s| [BTRFS, EXT4, TMPFS, XFS].contains(&s.f_type))
}

/// Where a request is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// So many bytes were read or written.
    Transfer(u32),
    /// fallocate with this mode.
    Allocate(i32),
    /// So many zeroes were written, as the file system knows no better way.
    Zeroes(u32),
    /// Making it durable.
    Sync,
    /// Fetching it into the page cache.
    Fetch,
}

const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;

/// How much is read or written at once through the page cache, in bytes. The volume's thread copies
/// it, and serves nobody else meanwhile.
const COPIED_AT_ONCE: usize = 256 << 10;

/// How much is read or written at once around the page cache, in bytes. Nothing is copied, but the
/// kernel looks at every page.
const DIRECT_AT_ONCE: usize = 4 << 20;

/// A file that is served.
pub(crate) struct File {
    fd: Rc<OwnedFd>,
    cached: bool,
    dsync: bool,
    /// Where the disk begins in it.
    base: u64,
    /// How much is transferred at once, in bytes.
    at_once: usize,
    can_punch: bool,
    can_zero: bool,
    /// Zeroing without a hole is quick. Linux writes the zeroes to a block device that cannot.
    zeroes_fast: bool,
}

impl File {
    pub(crate) fn new(opened: Opened, base: Bytes) -> Self {
        let Opened { fd, cached, dsync, kind, .. } = opened;
        let zeroes_fast = kind == FileType::RegularFile;
        let at_once = if cached { COPIED_AT_ONCE } else { DIRECT_AT_ONCE };
        let (fd, base, can_punch, can_zero) = (Rc::new(fd), base.0, true, true);
        Self { fd, cached, dsync, base, at_once, can_punch, can_zero, zeroes_fast }
    }

    pub(crate) fn is_cached(&self) -> bool {
        self.cached
    }

    /// How a request begins; `None` if there is nothing to do.
    fn first(&self, op: Op) -> Result<Option<Step>, Failure> {
        Ok(match op {
            Op::Read(_) | Op::Write { .. } => Some(Step::Transfer(0)),
            Op::Flush => Some(Step::Sync),
            // A trim may be ignored.
            Op::Trim { .. } => self.can_punch.then_some(Step::Allocate(PUNCH)),
            Op::WriteZeroes { no_hole, fast, .. } => Some(if self.can_punch && !no_hole {
                Step::Allocate(PUNCH)
            } else if self.can_zero && (self.zeroes_fast || !fast) {
                Step::Allocate(ZERO)
            } else if fast {
                return Err(Failure::new(Errno::NotSup, "zeroes would have to be written"));
            } else {
                Step::Zeroes(0)
            }),
            Op::Cache(_) => Some(Step::Fetch),
            // Answered beside the ring, see `map`.
            Op::BlockStatus { .. } => None,
        })
    }

    /// How a request goes on after a step; `None` if it is done.
    fn following(
        &mut self,
        request: &Request,
        result: Result<usize, i32>,
    ) -> Result<Option<Step>, Failure> {
        let (step, len) = (request.step, request.extent().len);
        let durable = match request.op {
            Op::Trim { fua, .. } | Op::WriteZeroes { fua, .. } => fua.then_some(Step::Sync),
            Op::Write { fua, .. } => (fua && !self.dsync).then_some(Step::Sync),
            _ => None,
        };
        match (step, result) {
            (step, Err(libc::EINTR | libc::EAGAIN)) => Ok(Some(step)),
            (Step::Allocate(mode), Err(libc::EOPNOTSUPP | libc::ENOSYS)) => {
                if mode == PUNCH {
                    self.can_punch = false;
                } else {
                    self.can_zero = false;
                }
                self.first(request.op)
            }
            // It was only advice.
            (Step::Fetch, _) => Ok(None),
            (Step::Transfer(done) | Step::Zeroes(done), Err(errno)) => {
                Err(Failure::from_os(errno).at(request.extent().offset + u64::from(done)))
            }
            (_, Err(errno)) => Err(Failure::from_os(errno)),
            (Step::Transfer(done) | Step::Zeroes(done), Ok(0)) => {
                let failure = Failure::new(Errno::Io, "the file ends before the export does");
                Err(failure.at(request.extent().offset + u64::from(done)))
            }
            (Step::Transfer(done), Ok(n)) => {
                let done = done.saturating_add(n as u32);
                Ok(if done < len { Some(Step::Transfer(done)) } else { durable })
            }
            (Step::Zeroes(done), Ok(n)) => {
                let done = done.saturating_add(n as u32);
                Ok(if done < len { Some(Step::Zeroes(done)) } else { durable })
            }
            (Step::Allocate(_), Ok(_)) => Ok(durable),
            (Step::Sync, Ok(_)) => Ok(None),
        }
    }

    /// Starts a request; says how it ended if there is nothing to wait for.
    pub(crate) fn begin<T>(
        &self,
        ring: &mut Ring<T>,
        pool: &mut Pool,
        request: &mut Request,
        tag: T,
    ) -> Option<Result<(), Failure>> {
        match self.first(request.op) {
            Err(failure) => Some(Err(failure)),
            Ok(None) => Some(Ok(())),
            Ok(Some(step)) => {
                request.step = step;
                self.issue(ring, pool, request, tag);
                None
            }
        }
    }

    /// Takes the result of a step; says how the request ended if it did.
    pub(crate) fn advance<T>(
        &mut self,
        ring: &mut Ring<T>,
        pool: &mut Pool,
        request: &mut Request,
        result: Result<usize, i32>,
        tag: T,
    ) -> Option<Result<(), Failure>> {
        match self.following(request, result) {
            Err(failure) => Some(Err(failure)),
            Ok(None) => Some(Ok(())),
            Ok(Some(step)) => {
                request.step = step;
                self.issue(ring, pool, request, tag);
                None
            }
        }
    }

    fn issue<T>(&self, ring: &mut Ring<T>, pool: &mut Pool, request: &mut Request, tag: T) {
        let (op, extent) = (request.op, request.extent());
        let start = self.base + extent.offset;
        let at = |done: u32| At(start + u64::from(done));
        let len = extent.len as usize;
        let mut buffer = |room: usize| request.buffer.take().unwrap_or_else(|| pool.take(room));
        match request.step {
            Step::Transfer(done) => {
                let done_bytes = done as usize;
                let (buffer, rest) = (buffer(len), done_bytes..len.min(done_bytes + self.at_once));
                match op {
                    Op::Write { fua, .. } => {
                        ring.write(&self.fd, buffer, rest, at(done), fua && self.dsync, tag);
                    }
                    _ => ring.read(&self.fd, buffer, rest, at(done), tag),
                }
            }
            Step::Zeroes(done) => {
                ring.write_zeroes(&self.fd, at(done), extent.len - done, tag);
            }
            Step::Allocate(mode) => ring.fallocate(&self.fd, mode, At(start), extent.len, tag),
            Step::Sync => ring.fdatasync(&self.fd, tag),
            Step::Fetch => {
                ring.fadvise(&self.fd, libc::POSIX_FADV_WILLNEED, At(start), extent.len, tag);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parda_nbd::{Cookie, Extent};

    fn file() -> File {
        let file = tempfile::NamedTempFile::new().unwrap();
        File::new(open(file.path(), Direct::Off, false).unwrap(), Bytes(0))
    }

    fn request(op: Op, step: Step) -> Request {
        Request {
            conn: 0,
            disk: 0,
            cookie: Cookie(0),
            op,
            buffer: None,
            status: Vec::new(),
            id: None,
            step,
            error: None,
            outcome: None,
            modelled: false,
            sync: None,
            delayed: false,
        }
    }

    const EXTENT: Extent = Extent { offset: 0, len: 4096 };

    #[test]
    fn short_transfers_go_on_and_the_end_of_file_is_an_error() {
        let mut file = file();
        let mut after =
            |done, result| file.following(&request(Op::Read(EXTENT), Step::Transfer(done)), result);
        assert_eq!(after(0, Ok(4096)), Ok(None));
        assert_eq!(after(0, Ok(512)), Ok(Some(Step::Transfer(512))));
        assert_eq!(after(512, Err(libc::EINTR)), Ok(Some(Step::Transfer(512))));
        let failure = after(512, Ok(0)).unwrap_err();
        assert_eq!((failure.errno, failure.at), (Errno::Io, Some(512)));
        assert_eq!(after(0, Err(libc::ENOSPC)).unwrap_err().errno, Errno::NoSpc);
    }

    #[test]
    fn a_sync_follows_a_durable_write_where_the_file_system_may_forget_it() {
        let op = Op::Write { extent: EXTENT, fua: true };
        let mut file = file();
        for (dsync, next) in [(true, None), (false, Some(Step::Sync))] {
            file.dsync = dsync;
            assert_eq!(file.following(&request(op, Step::Transfer(0)), Ok(4096)), Ok(next));
            let short = file.following(&request(op, Step::Transfer(0)), Ok(512));
            assert_eq!(short, Ok(Some(Step::Transfer(512))));
        }
    }

    #[test]
    fn zeroing_falls_back_step_by_step_and_remembers() {
        let mut file = file();
        let op = Op::WriteZeroes { extent: EXTENT, fua: true, no_hole: false, fast: false };
        let unsupported = Err(libc::EOPNOTSUPP);
        assert_eq!(file.first(op), Ok(Some(Step::Allocate(PUNCH))));
        let next = file.following(&request(op, Step::Allocate(PUNCH)), unsupported);
        assert_eq!(next, Ok(Some(Step::Allocate(ZERO))));
        let next = file.following(&request(op, Step::Allocate(ZERO)), unsupported);
        assert_eq!(next, Ok(Some(Step::Zeroes(0))));
        assert_eq!(file.first(op), Ok(Some(Step::Zeroes(0))));
        let next = file.following(&request(op, Step::Zeroes(0)), Ok(4096));
        assert_eq!(next, Ok(Some(Step::Sync)), "FUA is owed after the last zero");
        assert_eq!(file.first(Op::Trim { extent: EXTENT, fua: false }), Ok(None));
    }

    #[test]
    fn zeroes_that_must_be_fast_are_never_written() {
        let mut file = file();
        let zeroes = |no_hole| Op::WriteZeroes { extent: EXTENT, fua: false, no_hole, fast: true };
        let errno = |result: Result<Option<Step>, Failure>| result.unwrap_err().errno;
        assert_eq!(file.first(zeroes(true)), Ok(Some(Step::Allocate(ZERO))));
        // The kernel writes zeroes to a block device whose hardware cannot.
        file.zeroes_fast = false;
        assert_eq!(errno(file.first(zeroes(true))), Errno::NotSup);
        assert_eq!(file.first(zeroes(false)), Ok(Some(Step::Allocate(PUNCH))));
        let unsupported = Err(libc::EOPNOTSUPP);
        let next = file.following(&request(zeroes(false), Step::Allocate(PUNCH)), unsupported);
        assert_eq!(errno(next), Errno::NotSup);
    }

    #[test]
    fn zeroes_that_must_stay_allocated_are_not_punched() {
        let op = Op::WriteZeroes { extent: EXTENT, fua: false, no_hole: true, fast: false };
        assert_eq!(file().first(op), Ok(Some(Step::Allocate(ZERO))));
    }
}
