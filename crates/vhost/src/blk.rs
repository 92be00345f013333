//! The block device of virtio (virtio 1.2, 5.2): features, configuration space, requests.

use std::ptr::NonNull;
use std::sync::Arc;

use parda_disk::{Extent, Geometry, Op};
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_MQ,
    VIRTIO_BLK_F_RO, VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_SIZE_MAX, VIRTIO_BLK_F_TOPOLOGY,
    VIRTIO_BLK_F_WRITE_ZEROES, VIRTIO_BLK_ID_BYTES, VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK,
    VIRTIO_BLK_S_UNSUPP, VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID,
    VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES,
    VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP,
};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use vm_memory::GuestAddress;

use crate::memory::{Memory, Part, Segments};
use crate::{Broken, MAX_QUEUES};

/// Bytes of a request's header.
pub const HEADER: usize = 16;

/// Bytes of the range of a discard or of zeroes.
const RANGE: usize = 16;

/// Unit of places and sizes, in bytes, whatever the block size.
pub const SECTOR: u64 = 512;

/// Pieces of memory of one request, and the bytes of one, of guests that ask for it. Together they are 31.5 MiB. Firmware that does not
/// ask brings longer ones, which are done as well.
const SEG_MAX: u32 = 126;
const SIZE_MAX: u32 = 256 << 10;

/// Longest range of one discard or write of zeroes, in sectors: 1 GiB.
const MAX_RANGE: u32 = 2 << 20;

/// Bytes of the configuration space that can be read. Bytes behind the last field are zero.
pub const CONFIG: usize = 256;

/// Largest block of a disk that guests can use, in bytes: Linux takes none that is larger than a page.
pub const MAX_BLOCK: u32 = 4096;

/// Features of a disk, as bits.
#[must_use]
pub fn features(disk: &Geometry) -> u64 {
    let mut bits = vec![
        VIRTIO_F_VERSION_1,
        VIRTIO_RING_F_INDIRECT_DESC,
        VIRTIO_RING_F_EVENT_IDX,
        VIRTIO_BLK_F_SIZE_MAX,
        VIRTIO_BLK_F_SEG_MAX,
        VIRTIO_BLK_F_BLK_SIZE,
        VIRTIO_BLK_F_TOPOLOGY,
        VIRTIO_BLK_F_FLUSH,
        VIRTIO_BLK_F_MQ,
    ];
    if disk.read_only {
        bits.push(VIRTIO_BLK_F_RO);
    } else {
        bits.extend(disk.trim.then_some(VIRTIO_BLK_F_DISCARD));
        bits.extend(disk.write_zeroes.then_some(VIRTIO_BLK_F_WRITE_ZEROES));
    }
    bits.into_iter().fold(0, |all, bit| all | 1 << bit)
}

/// The configuration space of a disk.
#[must_use]
pub fn config(disk: &Geometry) -> [u8; CONFIG] {
    let mut space = [0; CONFIG];
    let mut put = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
    let block = disk.blocks.min().max(SECTOR as u32);
    let preferred = disk.blocks.preferred().max(block);
    // Size that is written without a read of the rest. Larger ones are a preference, which partitions and file systems need not be aligned
    // to.
    let physical = preferred.min(MAX_BLOCK).max(block);
    // The most that the disk takes at once, where that is less than a guest asks for.
    let largest = disk.blocks.max();
    let optimal =
        if largest < SIZE_MAX * SEG_MAX && largest.is_multiple_of(physical) { largest } else { 0 };
    let unit = preferred / SECTOR as u32;
    // Offsets of `struct virtio_blk_config`.
    put(0, &(disk.size / SECTOR).to_le_bytes());
    put(8, &SIZE_MAX.to_le_bytes());
    put(12, &SEG_MAX.to_le_bytes());
    put(20, &block.to_le_bytes());
    // log2 of the logical blocks of a physical one. Then, in blocks: the smallest IO that performs well, and the best one.
    put(24, &[(physical / block).trailing_zeros() as u8, 0]);
    put(26, &u16::try_from(preferred / block).unwrap_or(u16::MAX).to_le_bytes());
    put(28, &(optimal / block).to_le_bytes());
    put(34, &MAX_QUEUES.to_le_bytes());
    for (at, value) in [(36, MAX_RANGE), (40, 1), (44, unit), (48, MAX_RANGE), (52, 1)] {
        put(at, &value.to_le_bytes());
    }
    // Zeroes may be holes.
    put(56, &[1]);
    space
}

/// Memory that is used again for each request.
#[derive(Default)]
pub struct Scratch {
    pub(crate) readable: Vec<Part>,
    pub(crate) writable: Vec<Part>,
}

impl Scratch {
    /// These places of a guest, each with its length in bytes: as a request has them.
    ///
    /// # Errors
    /// One of them is not in memory.
    pub fn segments<'a>(
        &'a mut self,
        memory: &'a Arc<Memory>,
        places: &[(u64, u32)],
    ) -> Result<Segments<'a>, Broken> {
        self.clear();
        for (start, len) in places {
            memory.places(GuestAddress(*start), *len, &mut self.writable)?;
        }
        Ok(Segments::new(memory, &self.writable))
    }

    pub(crate) fn clear(&mut self) {
        self.readable.clear();
        self.writable.clear();
    }
}

/// Outcome of a request, as the guest is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum GuestOutcome {
    /// The request was done.
    Ok = VIRTIO_BLK_S_OK as u8,
    /// The request has failed.
    Failed = VIRTIO_BLK_S_IOERR as u8,
    /// The device has no such request.
    Unsupported = VIRTIO_BLK_S_UNSUPP as u8,
}

/// The byte of a request into which its outcome goes.
#[derive(Debug)]
pub struct StatusByte {
    place: NonNull<u8>,
    _memory: Arc<Memory>,
}

impl StatusByte {
    /// Tells the outcome. [`crate::Vring::answer`] comes next.
    pub fn tell(&self, outcome: GuestOutcome) {
        // SAFETY: the byte is in memory that is mapped as long as `_memory` is kept. Nobody in this process has a
        // reference to it.
        unsafe { self.place.as_ptr().write_volatile(outcome as u8) };
    }
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestOp {
    /// An operation, whose range is not checked yet. Data of a read or write is in [`GuestRequest::data`].
    Op(Op),
    /// The serial number, to be written to [`GuestRequest::data`].
    Serial,
    /// Nothing that can be done: the answer.
    Nothing(GuestOutcome),
}

/// Request of a guest.
pub struct GuestRequest<'a> {
    /// Number by which it is answered.
    pub head: u16,
    /// Operation that the guest asks for.
    pub asked: GuestOp,
    /// Memory of the data: of a read to be written, of a write to be read.
    pub data: Segments<'a>,
    status: NonNull<u8>,
}

impl<'a> GuestRequest<'a> {
    /// `scratch` has the places behind the header, and those before the status. `fua`: writes are durable before they are answered.
    pub(crate) fn new(
        (head, header, status): (u16, [u8; HEADER], NonNull<u8>),
        fua: bool,
        memory: &'a Arc<Memory>,
        scratch: &'a Scratch,
    ) -> GuestRequest<'a> {
        let [k0, k1, k2, k3, _, _, _, _, s0, s1, s2, s3, s4, s5, s6, s7] = header;
        let (kind, sector) = (
            u32::from_le_bytes([k0, k1, k2, k3]),
            u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]),
        );
        let from_guest = Segments::new(memory, &scratch.readable);
        let to_guest = Segments::new(memory, &scratch.writable);
        let (asked, data) = match kind {
            VIRTIO_BLK_T_IN => (transfer(sector, to_guest.len(), Op::Read), to_guest),
            VIRTIO_BLK_T_OUT => {
                let write = |extent| Op::Write { extent, fua };
                (transfer(sector, from_guest.len(), write), from_guest)
            }
            VIRTIO_BLK_T_FLUSH => (GuestOp::Op(Op::Flush), to_guest),
            VIRTIO_BLK_T_GET_ID => (GuestOp::Serial, to_guest),
            VIRTIO_BLK_T_DISCARD | VIRTIO_BLK_T_WRITE_ZEROES => {
                (range(kind, fua, from_guest), from_guest)
            }
            _ => (GuestOp::Nothing(GuestOutcome::Unsupported), to_guest),
        };
        GuestRequest { head, asked, data, status }
    }

    /// Status byte for the outcome.
    #[must_use]
    pub fn status(&self) -> StatusByte {
        StatusByte { place: self.status, _memory: Arc::clone(self.data.memory()) }
    }
}

/// A read or write of so many bytes.
fn transfer(sector: u64, len: u64, op: impl FnOnce(Extent) -> Op) -> GuestOp {
    match sector.checked_mul(SECTOR) {
        Some(offset) if len.is_multiple_of(SECTOR) => GuestOp::Op(op(Extent { offset, len })),
        _ => GuestOp::Nothing(GuestOutcome::Failed),
    }
}

/// A discard, or zeroes, which are a write.
fn range(kind: u32, fua: bool, data: Segments<'_>) -> GuestOp {
    let mut bytes = [0; RANGE];
    if data.len() != RANGE as u64 || data.read(&mut bytes) != RANGE {
        return GuestOp::Nothing(GuestOutcome::Failed);
    }
    let [s0, s1, s2, s3, s4, s5, s6, s7, n0, n1, n2, n3, f0, f1, f2, f3] = bytes;
    let sector = u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
    let (count, flags) =
        (u32::from_le_bytes([n0, n1, n2, n3]), u32::from_le_bytes([f0, f1, f2, f3]));
    let unmap = flags & VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP != 0;
    let known = if kind == VIRTIO_BLK_T_DISCARD { 0 } else { VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP };
    if flags & !known != 0 {
        return GuestOp::Nothing(GuestOutcome::Unsupported);
    }
    transfer(sector, u64::from(count) * SECTOR, |extent| match kind {
        VIRTIO_BLK_T_DISCARD => Op::Trim { extent, fua: false },
        _ => Op::WriteZeroes { extent, fua, no_hole: !unmap, fast: false },
    })
}

/// Bytes of a name that are kept in a serial number beside a checksum.
const KEPT: usize = 11;

/// The serial number of a disk: its name. Guests take disks of one serial number for paths to one disk. So a name that is too long ends in
/// a checksum of all of it.
#[must_use]
pub fn serial(name: &str) -> [u8; VIRTIO_BLK_ID_BYTES as usize] {
    let mut serial = [0; VIRTIO_BLK_ID_BYTES as usize];
    let mut text = name.to_owned();
    if text.len() > serial.len() {
        let end = (0..=KEPT).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
        text = format!("{}-{:08x}", &name[..end], crc32c::crc32c(name.as_bytes()));
    }
    serial[..text.len()].copy_from_slice(text.as_bytes());
    serial
}
