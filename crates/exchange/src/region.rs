//! Regions: places of slots, which are ranges of bytes that all hosts of a volume can read and write.

mod deadline;
mod file;
mod nbd;
mod open;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parda_control::Bytes;
use parda_disk::{protected, rights};
use rustix::process::geteuid;

pub use deadline::Deadline;
pub use file::FileRegion;
pub(crate) use nbd::Export;
pub use nbd::{Connection as NbdConnection, NbdRegion, RequestFailure as NbdFailure};
pub(crate) use open::{Access, Kind, Opened};

/// A place with a header and slots: the trait that a transport with slots implements. Calls block; [`Deadline`] bounds their time.
///
/// [`read`](Self::read) leaves its file or connection open, and [`write`](Self::write) writes there and nowhere else. So an unread
/// file is never written, even if another file has taken the path meanwhile. `write` closes a file again.
pub trait Region: Send {
    /// The place for messages: a path or a URI.
    fn place(&self) -> &str;

    /// The configured number of slots.
    fn slots(&self) -> SlotCount;

    /// Reads the header and the first `slots` slots, at most [`slots`](Self::slots), with one
    /// IO. Bytes beyond the end of a file that is too short are zeros.
    fn read_front(&mut self, slots: SlotCount) -> Result<RegionImage, RegionFault>;

    /// Reads the header and all slots.
    fn read(&mut self) -> Result<RegionImage, RegionFault> {
        self.read_front(self.slots())
    }

    /// Writes one slot of the place that was last read, so that the other hosts see it. Fails if that read was followed by
    /// another write, or if nothing is open.
    fn write(&mut self, slot: SlotIndex, block: &Block) -> Result<(), RegionFault>;

    /// Closes the file or connection of the last read, so that nothing is written to it.
    fn close(&mut self);
}

/// The blocks of a place: its header, then its slots. Besides, the file that they were read from, if the place is
/// a whole file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionImage(Vec<Block>, Option<FileState>);

/// A file that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileState {
    /// Inode number. The device number is left out: it changes when a volume is mounted again.
    pub(crate) inode: u64,
    /// Its length.
    pub(crate) bytes: u64,
}

impl RegionImage {
    /// The blocks of a place that is no whole file: its header, then its slots.
    #[must_use]
    pub fn of(blocks: Vec<Block>) -> RegionImage {
        RegionImage(blocks, None)
    }

    pub(crate) fn blank(slots: SlotCount) -> RegionImage {
        RegionImage::of(vec![Block::ZERO; slots.get() as usize + 1])
    }

    pub(crate) fn file(&self) -> Option<FileState> {
        self.1
    }

    /// The block that should be the header.
    #[must_use]
    pub fn header(&self) -> &Block {
        &self.0[0]
    }

    /// The slots, in order, without the header.
    #[must_use]
    pub fn slots(&self) -> &[Block] {
        &self.0[1..]
    }
}

/// The bytes of one slot, aligned so that they can be read and written past the page cache.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C, align(4096))]
pub struct Block(pub [u8; Block::BYTES]);

impl Block {
    /// Size of a block, in bytes.
    pub const BYTES: usize = 4096;
    /// A block of zeros.
    pub const ZERO: Block = Block([0; Block::BYTES]);

    /// The `N` bytes from `at` on.
    pub(crate) fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        std::array::from_fn(|i| self.0[at + i])
    }

    /// Puts bytes at an offset.
    pub(crate) fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// The number of a slot, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotIndex(pub u32);

impl SlotIndex {
    /// Offset of the slot from the start of the place, in bytes: behind the header and the slots before it.
    pub(crate) fn offset(self) -> u64 {
        (u64::from(self.0) + 1) * Block::BYTES as u64
    }
}

impl fmt::Display for SlotIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Number of slots of a place: 1 to 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotCount(u32);

impl SlotCount {
    /// As many hosts as one array is likely to see, and 4 MiB.
    pub const MAX: u32 = 1024;

    /// Checks `count`.
    #[must_use]
    pub fn new(count: u32) -> Option<SlotCount> {
        (1..=Self::MAX).contains(&count).then_some(SlotCount(count))
    }

    /// The first `slots` of them, or all if these are fewer.
    #[must_use]
    pub fn front(self, slots: u32) -> SlotCount {
        SlotCount(slots.clamp(1, self.0))
    }

    /// The number of slots as a `u32`.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }

    /// Whether `slot` is one of them.
    #[must_use]
    pub fn contains(self, slot: SlotIndex) -> bool {
        slot.0 < self.0
    }

    /// The size of a place with so many slots: they and the header.
    #[must_use]
    pub fn place_bytes(self) -> u64 {
        SlotIndex(self.0).offset()
    }
}

/// The start of a region would make slots share sectors with other data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an exchange cannot begin at {}: its offset must be a multiple of {}", .0.0, Block::BYTES)]
pub struct Misaligned(pub Bytes);

pub(crate) fn aligned(offset: Bytes) -> Result<Bytes, Misaligned> {
    offset.0.is_multiple_of(Block::BYTES as u64).then_some(offset).ok_or(Misaligned(offset))
}

/// Fault of a region: reading or writing it failed. The caller reports the fault and continues: the next period tries again.
#[derive(Debug, thiserror::Error)]
pub enum RegionFault {
    /// The place does not exist.
    #[error("it is not there (is the volume mounted?)")]
    Missing,
    /// The place could not be opened.
    #[error("cannot open it: {}{}", .0, rights(.0, Path::new("FILE"), geteuid().as_raw()).unwrap_or_default())]
    Open(io::Error),
    /// The place does not exist and could not be created.
    #[error("cannot create it: {0}; does its directory exist, and is the volume mounted?")]
    Create(io::Error),
    /// The file system or device takes no writes.
    #[error(
        "it is read-only: this host hears the others, but they do not hear it{}",
        protected(None)
    )]
    ReadOnly,
    /// The file system is full.
    #[error("no space left: free some, the file needs {} bytes", needed.0)]
    NoSpace {
        /// Size of the whole file.
        needed: Bytes,
    },
    /// A device, region or export that does not grow is smaller than the place.
    #[error(
        "it has {} bytes for the header and the slots, but they need {}: configure fewer slots or a \
         larger region",
        found.0, needed.0
    )]
    TooSmall {
        /// Bytes that the place needs.
        needed: Bytes,
        /// Bytes that the place has.
        found: Bytes,
    },
    /// A directory, FIFO or the like.
    #[error("it is neither a regular file nor a block device")]
    NotAFile,
    /// A disk, as its locks say.
    #[error(
        "an agent or QEMU has it open as a disk and writes to it: it is neither read nor written here. Where NBD clients \
         have this exchange from QEMU, let this host have it by the same URI; where it is a region of that file, set its \
         `offset`"
    )]
    InUse,
    /// A symbolic link to something else than a block device, or not below /dev.
    #[error(
        "it is a symbolic link to {}: links are followed only below /dev, to block devices. Name the \
         file itself",
        .0.display()
    )]
    Link(PathBuf),
    /// The file or connection of the last read is not open any more.
    #[error("it is not open since it was last read: not written")]
    NotOpen,
    /// Reading the place failed.
    #[error("reading it failed: {0}")]
    Read(io::Error),
    /// Writing the place failed.
    #[error("writing it failed: {0}")]
    Write(io::Error),
    /// No answer came in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The NBD server could not be reached.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// The NBD server and we did not come to terms.
    #[error(transparent)]
    Handshake(#[from] parda_nbd::client::HandshakeError),
    /// The NBD server takes no IO of a slot's size.
    #[error("the export takes IOs of {min} to {max} bytes, but a slot needs {}", Block::BYTES)]
    BlockSize {
        /// Smallest size, in bytes.
        min: u32,
        /// Largest size, in bytes.
        max: u32,
    },
    /// The NBD server broke the protocol.
    #[error(transparent)]
    Reply(#[from] parda_nbd::client::ReplyError),
}

/// Bytes that are read and written in whole blocks.
pub(crate) trait Store {
    /// Size of the medium in bytes.
    fn size(&self) -> u64;

    /// Reads blocks from `at` on. Bytes beyond the end read as zeros.
    fn read(&mut self, at: u64, blocks: &mut [Block]) -> Result<(), RegionFault>;

    /// Writes one block at an offset.
    fn write(&mut self, at: u64, block: &Block) -> Result<(), RegionFault>;
    /// Makes it at least so long, if it can grow.
    fn grow(&mut self, _: u64) -> Result<(), RegionFault> {
        Ok(())
    }
    /// Waits until all that was written is on the medium, as far as that can be known.
    fn sync(&mut self) -> Result<(), RegionFault>;
}
