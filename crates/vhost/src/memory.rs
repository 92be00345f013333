//! Guest memory: files that the front end passes, mapped here.
//!
//! The guest changes its memory whenever it likes, so nothing here makes a reference to it: bytes go by raw
//! pointers, or the kernel copies them. A page of it may have no memory behind it any more (the file was truncated,
//! or huge pages ran out); see [`crate::sigbus`].

use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::{FsWord, fstatfs};
use vm_memory::mmap::MmapRegionError;
use vm_memory::{
    FileOffset, GuestAddress, GuestMemory, GuestMemoryMmap, GuestRegionMmap, MmapRegion,
    Permissions,
};

use crate::sigbus::{self, Guard};
use crate::{Broken, MAX_REGIONS};

/// A part of guest memory, as the front end describes it.
#[derive(Debug)]
pub struct MemoryRegion {
    /// Guest address of the region.
    pub guest: u64,
    /// Its length in bytes.
    pub size: u64,
    /// Address in the front end's address space, by which it names the places of queues.
    pub user: u64,
    /// Offset of the region in `file`, in bytes.
    pub offset: u64,
    /// A memfd, or a file of tmpfs or hugetlbfs.
    pub file: File,
}

const HUGETLBFS: FsWord = 0x9584_58f6;
const TMPFS: FsWord = 0x0102_1994;

/// Whether a file is memory, so that no access to it waits for a disk. A device node is none, though it lies on a tmpfs.
pub(crate) fn is_memory(file: &File) -> bool {
    let regular = file.metadata().is_ok_and(|metadata| metadata.is_file());
    regular && fstatfs(file).is_ok_and(|fs| fs.f_type == TMPFS || fs.f_type == HUGETLBFS)
}

/// A mapped region, shared by all states of a guest's memory that it is a part of.
#[derive(Clone, Debug)]
struct Mapped {
    guard: Arc<Guard>,
    guest: u64,
    size: u64,
    user: u64,
}

/// Memory of one guest, mapped until this is dropped. The memory does not change: [`Memory::with`] and [`Memory::without`] make another
/// one, which shares the mappings. [`Memory::with`] and [`Memory::without`] make another one, which shares the mappings.
#[derive(Debug, Default)]
pub struct Memory {
    /// Goes before the mappings that it guards.
    regions: Vec<Mapped>,
    map: GuestMemoryMmap,
}

impl Memory {
    /// Maps all regions of a guest.
    ///
    /// # Errors
    /// One of them cannot be mapped; none is then.
    pub fn map(regions: Vec<MemoryRegion>) -> io::Result<Memory> {
        regions.into_iter().try_fold(Memory::default(), |memory, region| memory.with(region))
    }

    /// The same with one more region.
    ///
    /// # Errors
    /// It cannot be mapped, overlaps another one, or there are [`MAX_REGIONS`] already.
    pub fn with(&self, region: MemoryRegion) -> io::Result<Memory> {
        let MemoryRegion { guest, size, user, offset, file } = region;
        if !is_memory(&file) {
            // An access could wait for a disk or for another process.
            let why = "guest memory must be a memfd, or a file of tmpfs or hugetlbfs";
            return Err(io::Error::other(why));
        }
        let len = usize::try_from(size).map_err(|_| contradict())?;
        let mapping = MmapRegion::from_file(FileOffset::new(file, offset), len);
        self.with_mapping(mapping.map_err(not_mapped)?, guest, user)
    }

    fn with_mapping(&self, mapping: MmapRegion, guest: u64, user: u64) -> io::Result<Memory> {
        let size = mapping.size() as u64;
        let ends = [guest, user].map(|start| start.checked_add(size));
        if ends.contains(&None) {
            return Err(contradict());
        }
        if self.regions.len() == MAX_REGIONS {
            return Err(io::Error::other("guest memory has as many regions as there are slots"));
        }
        let guard = Guard::new(mapping.as_ptr() as usize, mapping.size())
            .ok_or_else(|| io::Error::other("too many regions of guest memory in this process"))?;
        let mut regions = self.regions.clone();
        regions.push(Mapped { guard: Arc::new(guard), guest, size, user });
        let mapping = GuestRegionMmap::new(mapping, GuestAddress(guest)).ok_or_else(contradict)?;
        let map = self.map.insert_region(Arc::new(mapping)).map_err(|_| contradict())?;
        Ok(Memory { regions, map })
    }

    /// The same without the region that begins at these addresses of the guest and of the front end. `None` if there is none of
    /// this size.
    #[must_use]
    pub fn without(&self, guest: u64, size: u64, user: u64) -> Option<Memory> {
        let is_it = |r: &Mapped| (r.guest, r.size, r.user) == (guest, size, user);
        let at = self.regions.iter().position(is_it)?;
        let mut regions = self.regions.clone();
        regions.remove(at);
        let (map, _) = self.map.remove_region(GuestAddress(guest), size).ok()?;
        Some(Memory { regions, map })
    }

    /// So many bytes of this process from guest address 0 on: memory of tests.
    ///
    /// # Errors
    /// The kernel has no memory.
    pub fn anonymous(size: usize) -> io::Result<Memory> {
        let mapping = MmapRegion::new(size).map_err(not_mapped)?;
        Memory::default().with_mapping(mapping, 0, 0)
    }

    /// Whether the guest has no memory.
    pub(crate) fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// Memory as crates of rust-vmm see it.
    pub fn map_ref(&self) -> &GuestMemoryMmap {
        &self.map
    }

    /// Where the guest sees an address of the front end. `None` if it is in no region.
    pub(crate) fn guest_address(&self, user: u64) -> Option<GuestAddress> {
        let region = self.regions.iter().find(|r| user >= r.user && user - r.user < r.size)?;
        region.guest.checked_add(user - region.user).map(GuestAddress)
    }

    /// Whether all of it still has memory behind it. If not, what was read of it since may be zeroes.
    pub fn is_intact(&self) -> bool {
        !(sigbus::any_was_lost() && self.regions.iter().any(|region| region.guard.is_lost()))
    }

    /// Appends the places of `len` bytes of the guest, which may cross regions.
    pub(crate) fn places(
        &self,
        start: GuestAddress,
        len: u32,
        parts: &mut Vec<Part>,
    ) -> Result<(), Broken> {
        let outside = |_| Broken::Outside { address: start.0, len };
        let slices = self.map.get_slices(start, len as usize, Permissions::ReadWrite);
        for slice in slices.map_err(outside)? {
            let slice = slice.map_err(outside)?;
            let place = slice.ptr_guard_mut().as_ptr();
            if let Some(start) = NonNull::new(place).filter(|_| !slice.is_empty()) {
                parts.push(Part { start, len: slice.len() as u32 });
            }
        }
        Ok(())
    }
}

/// Regions overlap or leave the address space.
fn contradict() -> io::Error {
    io::Error::other("the regions of guest memory contradict each other")
}

/// The kernel does not map it, or the file ends before the region does.
fn not_mapped(error: MmapRegionError) -> io::Error {
    io::Error::other(format!("guest memory cannot be mapped: {error}"))
}

/// A piece of guest memory in this process. It is mapped as long as the [`Memory`] that it is of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) start: NonNull<u8>,
    pub(crate) len: u32,
}

/// Pieces of guest memory, in their order.
#[derive(Clone, Copy, Debug)]
pub struct Segments<'a> {
    memory: &'a Arc<Memory>,
    parts: &'a [Part],
}

impl<'a> Segments<'a> {
    /// `parts` are places of `memory`.
    pub(crate) fn new(memory: &'a Arc<Memory>, parts: &'a [Part]) -> Self {
        Self { memory, parts }
    }

    /// The memory, which is mapped as long as somebody has a clone of this.
    #[must_use]
    pub fn memory(&self) -> &'a Arc<Memory> {
        self.memory
    }

    /// Start and length of each piece. The guest, and other processes, change the bytes at any time.
    pub fn places(&self) -> impl Iterator<Item = (NonNull<u8>, u32)> + use<'a> {
        self.parts.iter().map(|part| (part.start, part.len))
    }

    /// All of their bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.parts.iter().map(|part| u64::from(part.len)).sum()
    }

    /// Whether there is no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Copies bytes to their start, as many as there is room for.
    pub fn write(&self, mut bytes: &[u8]) {
        for (start, len) in self.places() {
            let n = bytes.len().min(len as usize);
            // SAFETY: the place is mapped, as `memory` is borrowed, and has `n` bytes; nobody in this process has a
            // reference to it.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start.as_ptr(), n) };
            bytes = &bytes[n..];
        }
    }

    /// Copies bytes from their start; returns how many there were.
    pub fn read(&self, bytes: &mut [u8]) -> usize {
        let mut done = 0;
        for (start, len) in self.places() {
            let n = (bytes.len() - done).min(len as usize);
            // SAFETY: as in `write`. What is copied may be torn, and any bytes are valid.
            unsafe { std::ptr::copy_nonoverlapping(start.as_ptr(), bytes[done..].as_mut_ptr(), n) };
            done += n;
        }
        done
    }
}

/// Takes the first `n` bytes off; `false` if there are fewer.
pub(crate) fn skip(parts: &mut Vec<Part>, mut n: u32) -> bool {
    while n > 0 {
        let Some(first) = parts.first_mut() else { return false };
        if first.len > n {
            // SAFETY: within the piece.
            first.start = unsafe { first.start.add(n as usize) };
            first.len -= n;
            return true;
        }
        n -= first.len;
        parts.remove(0);
    }
    true
}

/// Takes the last byte off.
pub(crate) fn take_last(parts: &mut Vec<Part>) -> Option<NonNull<u8>> {
    let last = parts.last_mut()?;
    last.len -= 1;
    // SAFETY: within the piece, which had a byte.
    let place = unsafe { last.start.add(last.len as usize) };
    if last.len == 0 {
        parts.pop();
    }
    Some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_no_memory_though_its_node_lies_on_a_tmpfs() {
        let file = File::options().read(true).write(true).open("/dev/zero").unwrap();
        let region = MemoryRegion { guest: 0, size: 4096, user: 0, offset: 0, file };
        let error = Memory::map(vec![region]).unwrap_err().to_string();
        assert!(error.starts_with("guest memory must be a memfd"), "{error}");
    }
}
