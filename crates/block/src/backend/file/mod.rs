//! Regular files and block devices.

pub(crate) mod claim;
pub(crate) mod format;
mod step;
pub(crate) mod unaligned;

use std::cell::OnceCell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parda_disk::{BlockSizes, Errno, Extent, Failure, Geometry, MAX_PAYLOAD, Op};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, StatxFlags};

use claim::LOCK_WAIT;
pub(crate) use claim::Wanted;
pub(crate) use step::Step;
use unaligned::{ChangeId, Cut, Exclusion, patch, shift, whole_blocks};

use super::claims::Claim;
use super::medium::Medium;
use super::{Direct, Lock, OpenError, Request};
use crate::buffer::{Buffer, Pool};
use crate::reactor::{Reactor, Tag};
use crate::ring::{At, Ring};
use crate::writer::Writer;

/// Opens a file or block device, and keeps others from it. Its geometry is that of all of it, and not of a region alone.
pub(crate) fn open(wanted: &Wanted<'_>) -> Result<(File, Geometry, Arc<Claim>), OpenError> {
    let &Wanted { disk, path, direct, lock, raw, read_only, answered, .. } = wanted;
    let fail = |e: rustix::io::Errno| OpenError::Open { path: path.into(), source: e.into() };
    let access = if read_only { OFlags::RDONLY } else { OFlags::RDWR };
    // A FIFO or a tape must not hold up the start.
    let careful = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = Arc::new(fs::open(path, access | careful, Mode::empty()).map_err(fail)?);
    answered();
    let stat = fs::fstat(&fd).map_err(fail)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if !matches!(kind, FileType::RegularFile | FileType::BlockDevice) {
        let path = path.display();
        let why = "is neither a regular file nor a block device";
        return Err(OpenError::Refused(format!("{path} {why}")));
    }
    // Linux opens a read-only device for writing, and then refuses each write.
    if !read_only && Medium::of(&stat).is_read_only() {
        return Err(OpenError::read_only(path.display()));
    }
    let claim = claim::claim(&fd, wanted, LOCK_WAIT)?;
    answered();

    let size = fs::seek(&fd, fs::SeekFrom::End(0)).map_err(fail)?;
    if !raw && wanted.range().start == 0 {
        format::refuse_images(&fd, size, disk, path, read_only)?;
        answered();
    }
    let block = logical_block(&fd, kind);
    let not_direct = |why: &str| {
        OpenError::Refused(format!(
            "{}: direct = \"on\" is not possible: {why}. Use direct = \"auto\" or change the file",
            path.display()
        ))
    };
    let cached = go_around_the_cache(&fd, direct, size, block).err();
    match &cached {
        Some(why) if direct == Direct::On => {
            return Err(not_direct(why));
        }
        Some(why) if direct == Direct::Auto => tracing::warn!(
            disk,
            path = %path.display(),
            why,
            "goes through the page cache, where latencies are not those of the array"
        ),
        _ => {}
    }
    // Any byte: clients that know nothing of block sizes are served as well (see `unaligned`). Not so in the page cache of a block device:
    // there Linux does not separate a write of a part of a block from a trim or zeroes of its rest. Nor by direct IO where others may write
    // as well: two that read a block, change a part and write it back would lose writes.
    let min = match kind {
        _ if cached.is_none() && lock == Lock::Shared => block,
        FileType::BlockDevice if cached.is_none() => 1,
        FileType::BlockDevice if size.is_multiple_of(u64::from(CACHE_BLOCK)) => CACHE_BLOCK,
        FileType::BlockDevice => block,
        _ => 1,
    };
    let blocks = BlockSizes::new([min, block.max(4096), MAX_PAYLOAD])
        .map_err(|e| not_direct(&e.to_string()))?;
    let align = if cached.is_some() { 1 } else { block };
    // A block device allocates whole blocks, whoever asks; a file system any bytes.
    let allocates = if kind == FileType::BlockDevice { block } else { align };
    let system = fs::fstatfs(&fd).map_or(0, |s| s.f_type);
    let dsync = kind == FileType::BlockDevice || HONOUR_DSYNC.contains(&system);
    let cached = cached.is_some();
    let writer = kind == FileType::RegularFile && cached && !WRITE_AT_ONCE.contains(&system);
    let guarded = if cached && kind == FileType::BlockDevice { CACHE_BLOCK } else { align };
    let file = File {
        fd,
        cached,
        dsync,
        writer: writer.then(OnceCell::new),
        base: wanted.range().start,
        align,
        allocates,
        guarded,
        exclusion: Exclusion::default(),
        at_once: if cached { COPIED_AT_ONCE } else { DIRECT_AT_ONCE },
        can_punch: true,
        can_zero: true,
        zeroes_fast: kind == FileType::RegularFile,
    };
    // Direct IO fetches nothing into the page cache, so CACHE is for the others.
    let (trim, write_zeroes, fast_zero, cache) = (true, true, true, cached);
    let geometry = Geometry { size, blocks, read_only, trim, write_zeroes, fast_zero, cache };
    Ok((file, geometry, claim))
}

/// Turns the page cache off for this open file if that is wanted; says why not. The flag is set
/// after opening, so that it is the same file as was looked at and locked.
fn go_around_the_cache(fd: &OwnedFd, direct: Direct, size: u64, block: u32) -> Result<(), String> {
    let set = |flags| fs::fcntl_setfl(fd, flags).map_err(|e| io::Error::from(e).to_string());
    // The ring must wait for what it asks for.
    set(OFlags::empty())?;
    if direct == Direct::Off {
        return Err("direct = \"off\"".into());
    }
    if !size.is_multiple_of(u64::from(block)) {
        return Err(format!("its size of {size} bytes is no multiple of its block of {block}"));
    }
    set(OFlags::DIRECT)
}

/// Alignment of offsets and lengths of direct IO, in bytes.
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

const BTRFS: fs::FsWord = 0x9123_683e;
const EXT4: fs::FsWord = 0xef53;
const TMPFS: fs::FsWord = 0x0102_1994;
const XFS: fs::FsWord = 0x5846_5342;

/// File systems on which a write with `RWF_DSYNC` is known to be durable when it completes. On all
/// others a sync follows the write: FUSE drops the flag of a direct write that completes
/// asynchronously (Linux 6.18), without a word.
const HONOUR_DSYNC: [fs::FsWord; 4] = [BTRFS, EXT4, TMPFS, XFS];

/// File systems that can write to the page cache without waiting. io_uring then writes
/// in the call that submits.
const WRITE_AT_ONCE: [fs::FsWord; 2] = [BTRFS, XFS];

const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;

/// Most bytes that are read or written at once through the page cache. The volume's thread copies
/// them, and serves no other client meanwhile.
const COPIED_AT_ONCE: usize = 256 << 10;

/// The largest block in which Linux fills the page cache of a block device, in bytes. A write of a part of a block reads the rest from the
/// device. That read does not exclude a trim or zeroes of the rest under way: old data could be written back over the zeroes. Hence this
/// size is the minimum block of such disks, if their size allows it.
const CACHE_BLOCK: u32 = 4096;

/// Most bytes that are read or written at once around the page cache. Nothing is copied, but the
/// kernel looks at every page.
const DIRECT_AT_ONCE: usize = 4 << 20;

fn slow_zeroes() -> Failure {
    Failure::new(Errno::NotSup, "zeroes would have to be written")
}

/// A file that is open to be served.
pub(crate) struct File {
    /// The disk's only descriptor. Its locks belong to this open file.
    /// The ring does its IOs by the descriptor, and threads beside the ring look at it.
    pub(crate) fd: Arc<OwnedFd>,
    /// Reads and writes go through the page cache.
    cached: bool,
    /// A write may be asked to be durable by itself.
    dsync: bool,
    /// There if io_uring would hand every write to a thread of the kernel. Its writes to the page cache are done by a
    /// thread, from the first one on. Nothing in it: no thread could be had.
    writer: Option<OnceCell<Option<Writer>>>,
    /// Byte of the file at which the disk begins.
    base: u64,
    /// Alignment of reads and writes, and of the borders of a region, in bytes; 1 in the page cache.
    pub(crate) align: u32,
    /// Alignment of ranges that are allocated or freed, in bytes.
    allocates: u32,
    /// Alignment of the blocks that `exclusion` guards, in bytes; 1 if it guards nothing.
    guarded: u32,
    exclusion: Exclusion,
    /// Most bytes that are transferred at once.
    at_once: usize,
    can_punch: bool,
    can_zero: bool,
    /// Zeroing without a hole is quick. Linux writes the zeroes to a block device that cannot.
    zeroes_fast: bool,
}

/// Descriptor and writer of a file that is served no more.
/// The file is closed when this is dropped, or when the ring has no request of it any more.
pub(crate) type FileRemains = (Arc<OwnedFd>, Option<Writer>);

impl File {
    /// Descriptor and writer, which any thread may close.
    pub(crate) fn into_remains(self) -> FileRemains {
        let writer = self.writer.and_then(OnceCell::into_inner).flatten();
        (self.fd, writer)
    }

    /// Whether reads and writes go through the page cache.
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
                return Err(slow_zeroes());
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
        let (step, part) = (request.step, request.part);
        let len = part.len;
        // At or after the begin of the request: the part that is read may begin before.
        let place = |done: u64| (part.offset + done).max(request.extent().offset);
        let durable = self.durable(request);
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
            // A fetch is only advice.
            (Step::Fetch, _) => Ok(None),
            (Step::Transfer(done) | Step::Zeroes(done), Err(errno)) => {
                Err(Failure::from_os(errno).at(place(done)))
            }
            (_, Err(errno)) => Err(Failure::from_os(errno)),
            (Step::Transfer(done) | Step::Zeroes(done), Ok(0)) => {
                let failure = Failure::new(Errno::Io, "the file ends before the export does");
                Err(failure.at(place(done)))
            }
            (Step::Transfer(done), Ok(n)) => {
                let done = done.saturating_add(n as u64);
                Ok(if done < len { Some(Step::Transfer(done)) } else { durable })
            }
            (Step::Zeroes(done), Ok(n)) => {
                let done = done.saturating_add(n as u64);
                Ok(if done < len { Some(Step::Zeroes(done)) } else { durable })
            }
            (Step::Allocate(_), Ok(_)) => Ok(durable),
            (Step::ReadEdge(_) | Step::WriteEdge(_), Ok(n)) if n != self.align as usize => {
                Err(Failure::new(Errno::Io, "the file ends before the export does"))
            }
            (Step::ReadEdge(side), Ok(_)) => Ok(Some(Step::WriteEdge(side))),
            (Step::WriteEdge(side), Ok(_)) => match self.cut(request).after(side) {
                Some(next) => Ok(Some(Step::ReadEdge(next))),
                None if part.len == 0 => Ok(durable),
                None => self.first(request.op),
            },
            (Step::Sync, Ok(_)) => Ok(None),
        }
    }

    /// Step that makes a request durable after its data is written; `None` if not asked for, or
    /// done with the write.
    fn durable(&self, request: &Request) -> Option<Step> {
        let Request { op, part, .. } = *request;
        // The blocks at the edges of a write are written without.
        let done = matches!(op, Op::Write { extent, .. } if self.dsync && part == extent);
        (op.fua() && !done).then_some(Step::Sync)
    }

    fn is_aligned(extent: Extent, block: u32) -> bool {
        (extent.offset | extent.len).is_multiple_of(u64::from(block))
    }

    fn cut(&self, request: &Request) -> Cut {
        Cut::new(request.extent(), self.align)
    }

    /// Starts a request; says how it ended if there is nothing to wait for. The request may wait
    /// for others without having started: [`File::ready`] brings it then. [`File::ready`] brings it
    /// then.
    pub(crate) fn begin(
        &mut self,
        io: &mut Reactor,
        request: &mut Request,
        key: usize,
    ) -> Option<Result<(), Failure>> {
        let extent = request.extent();
        request.part = extent;
        let mut edged = false;
        // Around the page cache memory has to be aligned, and whole blocks need more of it than there is.
        let fits = |b: &Buffer| Self::is_aligned(extent, self.align) && b.is_aligned(self.align);
        if request.buffer.as_ref().is_some_and(|b| b.is_lent() && !fits(b)) {
            request.move_to_pool(&mut io.pool);
        }
        match request.op {
            Op::Read(_) if !Self::is_aligned(extent, self.align) => {
                request.part = whole_blocks(extent, self.align);
            }
            Op::Trim { .. } if !Self::is_aligned(extent, self.allocates) => {
                // A trim is a wish: what cannot be freed stays.
                request.part = Cut::new(extent, self.allocates).middle;
            }
            Op::Write { .. } | Op::WriteZeroes { .. } if !Self::is_aligned(extent, self.align) => {
                request.part = Cut::new(extent, self.align).middle;
                edged = true;
            }
            _ => {}
        }
        if request.op.changes() && self.guarded > 1 {
            let alone = edged || (self.cached && !matches!(request.op, Op::Write { .. }));
            let range = if alone || self.cached {
                whole_blocks(extent, self.guarded)
            } else {
                request.part
            };
            request.change = self.exclusion.enter(key, range, alone);
            if request.change.is_none() {
                // Its wait is no measurement of the array.
                request.delayed = true;
                return None;
            }
        }
        self.start(io, request, key)
    }

    /// Starts a request that has waited for others.
    pub(crate) fn start(
        &mut self,
        io: &mut Reactor,
        request: &mut Request,
        key: usize,
    ) -> Option<Result<(), Failure>> {
        let edge = match request.op {
            Op::Write { .. } | Op::WriteZeroes { .. } => self.cut(request).first(),
            _ => None,
        };
        let step = match (edge, request.op) {
            (Some(side), op) => self.first(op).map(|_| Some(Step::ReadEdge(side))),
            (None, Op::Trim { .. }) if request.part.len == 0 => Ok(self.durable(request)),
            // Zeroes of a part of a block have to be written.
            (None, Op::WriteZeroes { extent, fast, .. })
                if !Self::is_aligned(extent, self.allocates) =>
            {
                if fast {
                    Err(slow_zeroes())
                } else {
                    Ok(Some(Step::Zeroes(0)))
                }
            }
            (None, op) => self.first(op),
        };
        if edge.is_some() && step.is_ok() {
            request.aside = request.buffer.take();
        }
        self.go_on(io, request, step, key)
    }

    /// The next request that has waited for others, with its key.
    pub(crate) fn ready(&mut self) -> Option<(usize, ChangeId)> {
        self.exclusion.ready()
    }

    /// Takes the result of a step; says how the request ended if it did.
    pub(crate) fn advance(
        &mut self,
        io: &mut Reactor,
        request: &mut Request,
        result: Result<usize, i32>,
        key: usize,
    ) -> Option<Result<(), Failure>> {
        let step = self.following(request, result);
        if let (Step::WriteEdge(_), Ok(Some(step))) = (request.step, &step) {
            Self::leave_edge(&mut io.pool, request, *step);
        }
        self.go_on(io, request, step, key)
    }

    fn go_on(
        &mut self,
        io: &mut Reactor,
        request: &mut Request,
        step: Result<Option<Step>, Failure>,
        key: usize,
    ) -> Option<Result<(), Failure>> {
        let outcome = match step {
            Ok(Some(step)) => {
                request.step = step;
                self.issue(io, request, key);
                return None;
            }
            Ok(None) => Ok(()),
            Err(failure) => Err(failure),
        };
        if let Some(change) = request.change.take() {
            self.exclusion.leave(change);
        }
        if let Op::Read(extent) = request.op {
            let from = (extent.offset - request.part.offset) as usize;
            match &mut request.buffer {
                _ if outcome.is_err() => request.aside = None,
                _ if request.aside.is_some() => request.move_from_pool(&mut io.pool, from),
                // The client's bytes to the front.
                Some(buffer) if from > 0 => shift(buffer, from, extent.len as usize),
                _ => {}
            }
        } else {
            request.aside.take().into_iter().for_each(|buffer| io.pool.put(buffer));
        }
        Some(outcome)
    }

    /// A block at an edge is written: its buffer makes way for that of the whole blocks.
    fn leave_edge(pool: &mut Pool, request: &mut Request, next: Step) {
        if matches!(next, Step::ReadEdge(_) | Step::WriteEdge(_)) {
            return;
        }
        request.buffer.take().into_iter().for_each(|buffer| pool.put(buffer));
        if let Some(mut payload) = request.aside.take() {
            // To the front, where it is aligned.
            let from = (request.part.offset - request.extent().offset) as usize;
            shift(&mut payload, from, request.part.len as usize);
            request.buffer = Some(payload);
        }
    }

    /// Thread that writes, if it is not the ring.
    fn writer(&self, ring: &mut Ring<Tag>, fua: bool) -> Option<&Writer> {
        // One that has to be durable would hold up those behind it.
        let writer = self.writer.as_ref().filter(|_| !fua)?;
        writer.get_or_init(|| ring.writer(&self.fd)).as_ref()
    }

    /// Begins the present step of a request.
    pub(crate) fn issue(&self, io: &mut Reactor, request: &mut Request, key: usize) {
        let Reactor { ring, pool, .. } = io;
        let (op, extent, tag) = (request.op, request.part, Tag::File(key));
        let durable = self.durable(request).is_none();
        let cut = self.cut(request);
        let start = self.base + extent.offset;
        let at = |done: u64| At(start + done);
        let len = extent.len as usize;
        let mut buffer = |room: usize| request.buffer.take().unwrap_or_else(|| pool.take(room));
        match request.step {
            Step::Transfer(done) => {
                let done_bytes = done as usize;
                let (buffer, rest) = (buffer(len), done_bytes..len.min(done_bytes + self.at_once));
                match op {
                    Op::Write { fua, .. } => match self.writer(ring, fua) {
                        Some(writer) => {
                            let rest = done_bytes..len;
                            ring.write_cached((&self.fd, writer), buffer, rest, at(done), tag);
                        }
                        None => {
                            ring.write(&self.fd, buffer, rest, at(done), fua && durable, tag);
                        }
                    },
                    _ => ring.read(&self.fd, buffer, rest, at(done), tag),
                }
            }
            Step::Zeroes(done) => {
                ring.write_zeroes(&self.fd, at(done), extent.len - done, tag);
            }
            Step::Allocate(mode) => ring.fallocate(&self.fd, mode, At(start), extent.len, tag),
            Step::ReadEdge(side) => {
                let block = buffer(self.align as usize);
                let Some(from) = cut.block(side) else { return };
                ring.read(&self.fd, block, 0..self.align as usize, At(self.base + from), tag);
            }
            Step::WriteEdge(side) => {
                let mut block = buffer(self.align as usize);
                let Some(from) = cut.block(side) else { return };
                let range = from..from + u64::from(self.align);
                let (inside, at) = patch(request.extent(), range);
                match &request.aside {
                    Some(payload) => payload.copy_to(at, &mut block.front_mut()[inside]),
                    None => block.zero(inside),
                }
                let whole = 0..self.align as usize;
                ring.write(&self.fd, block, whole, At(self.base + from), false, tag);
            }
            Step::Sync => ring.fdatasync(&self.fd, tag),
            Step::Fetch => {
                // The kernel reads a bounded part of it anyway.
                let len = u32::try_from(extent.len).unwrap_or(u32::MAX);
                ring.fadvise(&self.fd, libc::POSIX_FADV_WILLNEED, At(start), len, tag);
            }
        }
    }
}

#[cfg(test)]
mod tests;
