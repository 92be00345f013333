//! Memory that a guest gets and gives back while it runs: the DIMMs of QEMU.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use vhost::VhostUserMemoryRegionInfo;
use vhost::vhost_user::VhostUserFrontend;
use vm_memory::{
    FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryRegion, GuestRegionMmap, MmapRegion,
};

use super::{Driver, other};

/// A region, as messages have it.
fn info(region: &GuestRegionMmap, file: &File) -> VhostUserMemoryRegionInfo {
    VhostUserMemoryRegionInfo {
        guest_phys_addr: region.start_addr().0,
        memory_size: region.len(),
        userspace_addr: region.as_ptr() as u64,
        mmap_offset: 0,
        mmap_handle: file.as_raw_fd(),
    }
}

impl Driver {
    /// Number of regions that the device takes.
    ///
    /// # Errors
    /// Answer of the device.
    pub fn most_regions(&mut self) -> io::Result<u64> {
        self.frontend.get_max_mem_slots().map_err(other)
    }

    /// Gives the guest all of a file as memory, at an address that has none.
    ///
    /// # Errors
    /// The memory, or what the device answers.
    pub fn add_region(&mut self, start: u64, file: &File) -> io::Result<()> {
        let len = file.metadata()?.len() as usize;
        let region = MmapRegion::from_file(FileOffset::new(file.try_clone()?, 0), len);
        let region = GuestRegionMmap::new(region.map_err(other)?, GuestAddress(start));
        let region = Arc::new(region.ok_or(io::ErrorKind::InvalidInput)?);
        let memory = self.memory.insert_region(Arc::clone(&region)).map_err(other)?;
        self.frontend.add_mem_region(&info(&region, file)).map_err(other)?;
        self.memory = memory;
        Ok(())
    }

    /// Takes a region from the guest. The device has answered all requests that may use it when this returns.
    ///
    /// # Errors
    /// There is none at this address, or what the device answers.
    pub fn remove_region(&mut self, start: u64) -> io::Result<()> {
        let region = self.memory.find_region(GuestAddress(start)).ok_or(io::ErrorKind::NotFound)?;
        let info = info(region, &self.file);
        self.frontend.remove_mem_region(&info).map_err(other)?;
        let start = GuestAddress(info.guest_phys_addr);
        (self.memory, _) = self.memory.remove_region(start, info.memory_size).map_err(other)?;
        Ok(())
    }

    /// Takes all regions from the guest, and gives them back.
    ///
    /// # Errors
    /// Answer of the device.
    pub fn replug(&mut self) -> io::Result<()> {
        let all: Vec<_> = self.memory.iter().map(|region| info(region, &self.file)).collect();
        all.iter().try_for_each(|info| self.frontend.remove_mem_region(info)).map_err(other)?;
        all.iter().try_for_each(|info| self.frontend.add_mem_region(info).map(drop)).map_err(other)
    }
}
