//! Slots in a file on the volume itself, or in a stretch of a block device.

use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use parda_control::Bytes;
use rustix::fs::{self, Advice, FallocateFlags, FileType, Mode, OFlags, SeekFrom};
use rustix::io::{Errno, retry_on_intr};

use super::{Block, Misaligned, Region, RegionError, RegionFault, SlotCount, SlotIndex, aligned};

/// A file that is created and grows as needed, or a device that is used as it is.
///
/// It is opened, used and closed in every call, so that the volume can be unmounted in between.
/// IO goes past the page cache where it can, because another host's writes do not show in ours.
#[derive(Debug)]
pub struct FileRegion {
    path: PathBuf,
    place: String,
    extent: Extent,
    slots: SlotCount,
}

#[derive(Clone, Copy, Debug)]
enum Extent {
    Growing,
    Fixed { offset: Bytes, len: Option<Bytes> },
}

/// Whether IO goes through the page cache. Not every file system lets it pass by.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Caching {
    Direct,
    Buffered,
}

impl FileRegion {
    /// A regular file. The first write creates it if it is missing, but not its directory: where
    /// the directory lies on the volume, nothing is created under an empty mount point.
    #[must_use]
    pub fn growing(path: &Path, slots: SlotCount) -> FileRegion {
        FileRegion::new(path, Extent::Growing, slots)
    }

    /// A block device, or a file used like one, from `offset` on: never created, never extended.
    /// Without `len` all the rest of it may be used.
    pub fn fixed(
        path: &Path,
        offset: Bytes,
        len: Option<Bytes>,
        slots: SlotCount,
    ) -> Result<FileRegion, Misaligned> {
        let offset = aligned(offset)?;
        Ok(FileRegion::new(path, Extent::Fixed { offset, len }, slots))
    }

    fn new(path: &Path, extent: Extent, slots: SlotCount) -> FileRegion {
        FileRegion { path: path.to_owned(), place: path.display().to_string(), extent, slots }
    }

    /// Does `io` past the page cache, and through it where that is refused: some file systems
    /// refuse when the file is opened, some when it is read or written.
    fn past_the_cache<T>(
        &self,
        io: impl Fn(Caching) -> Result<T, RegionFault>,
    ) -> Result<T, RegionError> {
        let refused = |fault: &RegionFault| match fault {
            RegionFault::Open(e) | RegionFault::Read(e) | RegionFault::Write(e) => {
                e.raw_os_error() == Some(Errno::INVAL.raw_os_error())
            }
            _ => false,
        };
        match io(Caching::Direct) {
            Err(fault) if refused(&fault) => io(Caching::Buffered),
            other => other,
        }
        .map_err(|fault| fault.at(&self.place))
    }

    fn open(&self, how: OFlags, caching: Caching) -> Result<OwnedFd, Errno> {
        let direct = match caching {
            Caching::Direct => OFlags::DIRECT,
            Caching::Buffered => OFlags::empty(),
        };
        // NONBLOCK: a FIFO in the file's place must not hold us up. It means nothing to a file.
        let flags = how | direct | OFlags::CLOEXEC | OFlags::NONBLOCK;
        retry_on_intr(|| fs::open(&self.path, flags, Mode::from_raw_mode(0o644)))
    }

    /// Checks that this can hold slots. Answers where they begin.
    fn check(&self, fd: &OwnedFd) -> Result<u64, RegionFault> {
        let open = |errno: Errno| RegionFault::Open(errno.into());
        match self.extent {
            Extent::Growing => {
                let stat = fs::fstat(fd).map_err(open)?;
                if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                    return Err(RegionFault::NotAFile);
                }
                Ok(0)
            }
            Extent::Fixed { offset, len } => {
                let end = fs::seek(fd, SeekFrom::End(0)).map_err(open)?;
                let there = end.saturating_sub(offset.0);
                let found = len.map_or(there, |len| len.0.min(there));
                let needed = self.slots.bytes();
                if found < needed {
                    return Err(RegionFault::TooSmall {
                        needed: Bytes(needed),
                        found: Bytes(found),
                    });
                }
                Ok(offset.0)
            }
        }
    }

    fn read_with(&self, caching: Caching) -> Result<Vec<Block>, RegionFault> {
        let mut blocks = self.slots.blank();
        let fd = match self.open(OFlags::RDONLY, caching) {
            // Nobody wrote yet. If it cannot be created either, the write says so.
            Err(Errno::NOENT) if matches!(self.extent, Extent::Growing) => return Ok(blocks),
            other => other.map_err(|e| RegionFault::Open(e.into()))?,
        };
        let start = self.check(&fd)?;
        if caching == Caching::Buffered {
            // Else this may show what the file held when it was last read on this host.
            fs::fadvise(&fd, start, None, Advice::DontNeed)
                .map_err(|e| RegionFault::Read(e.into()))?;
        }
        let mut done = 0;
        while done < self.slots.bytes() {
            // A read that ends within a block has met the end of the file.
            if !done.is_multiple_of(Block::BYTES as u64) {
                break;
            }
            let rest = &mut blocks[(done / Block::BYTES as u64) as usize..];
            let mut buffers: Vec<_> =
                rest.iter_mut().map(|block| IoSliceMut::new(&mut block.0)).collect();
            let read = retry_on_intr(|| rustix::io::preadv(&fd, &mut buffers, start + done))
                .map_err(|e| RegionFault::Read(e.into()))?;
            if read == 0 {
                break;
            }
            done += read as u64;
        }
        Ok(blocks)
    }

    fn write_with(
        &self,
        slot: SlotIndex,
        block: &Block,
        caching: Caching,
    ) -> Result<(), RegionFault> {
        let fd = self.open_to_write(caching)?;
        let start = self.check(&fd)?;
        if matches!(self.extent, Extent::Growing) {
            self.grow(&fd)?;
        }
        let written = retry_on_intr(|| rustix::io::pwrite(&fd, &block.0, start + slot.offset()))
            .map_err(|e| self.write_fault(e))?;
        if written != Block::BYTES {
            return Err(RegionFault::Write(std::io::ErrorKind::WriteZero.into()));
        }
        if caching == Caching::Buffered {
            // The others read the medium, not our page cache.
            fs::fdatasync(&fd).map_err(|e| self.write_fault(e))?;
        }
        Ok(())
    }

    fn open_to_write(&self, caching: Caching) -> Result<OwnedFd, RegionFault> {
        let opened = match (self.open(OFlags::WRONLY, caching), self.extent) {
            (Err(Errno::NOENT), Extent::Growing) => {
                return self.open(OFlags::WRONLY | OFlags::CREATE, caching).map_err(|e| match e {
                    // As an open that is refused, so that it is tried through the cache.
                    Errno::INVAL => RegionFault::Open(e.into()),
                    Errno::ROFS => RegionFault::ReadOnly,
                    Errno::NOSPC | Errno::DQUOT => self.write_fault(e),
                    _ => RegionFault::Create(e.into()),
                });
            }
            (opened, _) => opened,
        };
        opened.map_err(|e| match e {
            Errno::ROFS => RegionFault::ReadOnly,
            // A directory or a FIFO without a reader.
            Errno::ISDIR | Errno::NXIO => RegionFault::NotAFile,
            _ => RegionFault::Open(e.into()),
        })
    }

    /// Makes room for all slots. Never by setting a length, which would cut off slots that a host
    /// with a larger count has just added.
    fn grow(&self, fd: &OwnedFd) -> Result<(), RegionFault> {
        let size = fs::fstat(fd).map_err(|e| RegionFault::Open(e.into()))?.st_size;
        if u64::try_from(size).is_ok_and(|size| size >= self.slots.bytes()) {
            return Ok(());
        }
        let all = self.slots.bytes();
        match retry_on_intr(|| fs::fallocate(fd, FallocateFlags::empty(), 0, all)) {
            // Then the write itself extends the file as far as it reaches.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            other => other.map_err(|e| self.write_fault(e)),
        }
    }

    fn write_fault(&self, errno: Errno) -> RegionFault {
        match errno {
            // EPERM is what a read-only block device says, which can be opened for writing.
            Errno::ROFS | Errno::PERM => RegionFault::ReadOnly,
            Errno::NOSPC | Errno::DQUOT => {
                RegionFault::NoSpace { needed: Bytes(self.slots.bytes()) }
            }
            _ => RegionFault::Write(errno.into()),
        }
    }
}

impl Region for FileRegion {
    fn place(&self) -> &str {
        &self.place
    }

    fn slots(&self) -> SlotCount {
        self.slots
    }

    fn read(&mut self) -> Result<Vec<Block>, RegionError> {
        self.past_the_cache(|caching| self.read_with(caching))
    }

    fn write(&mut self, slot: SlotIndex, block: &Block) -> Result<(), RegionError> {
        self.past_the_cache(|caching| self.write_with(slot, block, caching))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn four() -> SlotCount {
        SlotCount::new(4).unwrap()
    }

    fn filled(byte: u8) -> Block {
        Block([byte; Block::BYTES])
    }

    #[test]
    fn a_missing_file_reads_as_zeros_and_a_write_creates_it_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("exchange");
        let mut region = FileRegion::growing(&path, four());
        assert_eq!(region.read().unwrap(), four().blank());
        assert!(!path.exists());
        region.write(SlotIndex(1), &filled(7)).unwrap();
        assert_eq!(path.metadata().unwrap().len(), 4 * 4096);
        assert_eq!(region.read().unwrap(), [Block::ZERO, filled(7), Block::ZERO, Block::ZERO]);
    }

    #[test]
    fn a_file_system_that_refuses_direct_io_is_used_through_its_cache() {
        let dir = tempfile::tempdir().unwrap();
        let region = FileRegion::growing(&dir.path().join("exchange"), four());
        let refused = |caching| match caching {
            Caching::Direct => Err(RegionFault::Open(Errno::INVAL.into())),
            Caching::Buffered => Ok(caching),
        };
        assert_eq!(region.past_the_cache(refused).unwrap(), Caching::Buffered);
        region.write_with(SlotIndex(2), &filled(4), Caching::Buffered).unwrap();
        for caching in [Caching::Buffered, Caching::Direct] {
            assert_eq!(region.read_with(caching).unwrap()[2], filled(4));
        }
        let other = region.past_the_cache(|_| Err::<(), _>(RegionFault::NotAFile));
        assert!(matches!(other.unwrap_err().fault, RegionFault::NotAFile));
    }

    #[test]
    fn a_smaller_count_never_cuts_off_a_larger_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("exchange");
        let mut large = FileRegion::growing(&path, SlotCount::new(8).unwrap());
        large.write(SlotIndex(7), &filled(7)).unwrap();
        FileRegion::growing(&path, four()).write(SlotIndex(0), &filled(1)).unwrap();
        let blocks = large.read().unwrap();
        assert_eq!((&blocks[0], &blocks[7]), (&filled(1), &filled(7)));
    }

    #[test]
    fn a_truncated_file_reads_as_far_as_it_goes_and_grows_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("exchange");
        let mut region = FileRegion::growing(&path, four());
        for slot in 0..4 {
            region.write(SlotIndex(slot), &filled(9)).unwrap();
        }
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4096 + 100).unwrap();
        let blocks = region.read().unwrap();
        assert_eq!(blocks[0], filled(9));
        assert_eq!((blocks[1].0[99], blocks[1].0[100]), (9, 0));
        assert_eq!(blocks[2], Block::ZERO);
        region.write(SlotIndex(3), &filled(5)).unwrap();
        assert_eq!(path.metadata().unwrap().len(), 4 * 4096);
        assert_eq!(region.read().unwrap()[3], filled(5));
    }

    #[test]
    fn a_fixed_region_stays_within_its_bounds() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("device");
        std::fs::write(&path, vec![1; 8 * 4096]).unwrap();
        let at = |offset, len| FileRegion::fixed(&path, Bytes::kib(offset), len, four());
        let mut region = at(4, None).unwrap();
        region.write(SlotIndex(3), &filled(5)).unwrap();
        assert_eq!(region.read().unwrap()[3], filled(5));
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 8 * 4096);
        assert!(bytes[4 * 4096..5 * 4096].iter().all(|b| *b == 5));
        assert_eq!(bytes.iter().filter(|b| **b == 5).count(), 4096);
        for mut small in [at(20, None).unwrap(), at(0, Some(Bytes::kib(12))).unwrap()] {
            let fault = small.read().unwrap_err().fault;
            assert!(
                matches!(
                    fault,
                    RegionFault::TooSmall { needed: Bytes(16_384), found: Bytes(12_288) }
                ),
                "{fault}"
            );
            let fault = small.write(SlotIndex(0), &filled(6)).unwrap_err().fault;
            assert!(matches!(fault, RegionFault::TooSmall { .. }), "{fault}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        let crooked = FileRegion::fixed(&path, Bytes(512), None, four());
        assert!(matches!(crooked, Err(Misaligned(Bytes(512)))));
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
        for path in [dir.path(), &fifo] {
            let mut region = FileRegion::growing(path, four());
            let fault = region.read().unwrap_err().fault;
            assert!(matches!(fault, RegionFault::NotAFile), "{fault}");
            let fault = region.write(SlotIndex(0), &filled(1)).unwrap_err().fault;
            assert!(matches!(fault, RegionFault::NotAFile), "{fault}");
        }
    }

    #[test]
    fn a_missing_directory_is_named_and_not_created() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("not-mounted/exchange");
        let error = FileRegion::growing(&path, four()).write(SlotIndex(0), &filled(1)).unwrap_err();
        assert!(matches!(error.fault, RegionFault::Create(_)), "{error}");
        assert!(error.to_string().contains("not-mounted/exchange"));
        assert!(!path.parent().unwrap().exists());
    }

    #[test]
    fn a_missing_device_is_not_created() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sdz");
        let mut region = FileRegion::fixed(&path, Bytes(0), None, four()).unwrap();
        assert!(matches!(region.read().unwrap_err().fault, RegionFault::Open(_)));
        let fault = region.write(SlotIndex(0), &filled(1)).unwrap_err().fault;
        assert!(matches!(fault, RegionFault::Open(_)), "{fault}");
        assert!(!path.exists());
    }
}
