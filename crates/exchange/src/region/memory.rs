//! Slots in memory, shared by the hosts of one process: for tests and simulation.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Block, Image, Region, RegionFault, SlotCount, SlotIndex};
use crate::header::Header;

/// A medium in memory. A clone is another host's way to the same medium.
#[derive(Debug)]
pub struct MemoryRegion {
    shared: Arc<Mutex<Shared>>,
    slots: SlotCount,
    /// It was read and not yet written since.
    open: bool,
}

impl Clone for MemoryRegion {
    fn clone(&self) -> MemoryRegion {
        MemoryRegion { shared: Arc::clone(&self.shared), slots: self.slots, open: false }
    }
}

#[derive(Debug)]
struct Shared {
    image: Image,
    reads_fail: Option<fn() -> RegionFault>,
    writes_fail: Option<fn() -> RegionFault>,
}

impl MemoryRegion {
    /// A medium that was just made: a header for any volume, and slots of zeros.
    #[must_use]
    pub fn new(slots: SlotCount) -> MemoryRegion {
        let mut image = Image::blank(slots);
        image.0[0] = Header::new(slots, None).encode();
        let shared = Shared { image, reads_fail: None, writes_fail: None };
        MemoryRegion { shared: Arc::new(Mutex::new(shared)), slots, open: false }
    }

    /// Lets every read fail from now on, or work again.
    pub fn fail_reads(&self, fault: Option<fn() -> RegionFault>) {
        self.lock().reads_fail = fault;
    }

    /// Lets every write fail from now on, or work again.
    pub fn fail_writes(&self, fault: Option<fn() -> RegionFault>) {
        self.lock().writes_fail = fault;
    }

    /// Changes what the slots hold behind everybody's back.
    pub fn edit(&self, edit: impl FnOnce(&mut [Block])) {
        edit(&mut self.lock().image.0[1..]);
    }

    /// Changes the header behind everybody's back.
    pub fn edit_header(&self, edit: impl FnOnce(&mut Block)) {
        edit(&mut self.lock().image.0[0]);
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // A test that panicked while it held the lock left plain bytes behind, which are still good.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Region for MemoryRegion {
    fn place(&self) -> &str {
        "memory"
    }

    fn slots(&self) -> SlotCount {
        self.slots
    }

    fn read_front(&mut self, slots: SlotCount) -> Result<Image, RegionFault> {
        let read = {
            let shared = self.lock();
            match shared.reads_fail {
                Some(fault) => Err(fault()),
                None => Ok(Image(shared.image.0[..=slots.get() as usize].to_vec(), None)),
            }
        };
        self.open = read.is_ok();
        read
    }

    fn write(&mut self, slot: SlotIndex, block: &Block) -> Result<(), RegionFault> {
        if !std::mem::take(&mut self.open) {
            return Err(RegionFault::NotOpen);
        }
        let mut shared = self.lock();
        if let Some(fault) = shared.writes_fail {
            return Err(fault());
        }
        shared.image.0[slot.0 as usize + 1] = block.clone();
        Ok(())
    }

    fn close(&mut self) {
        self.open = false;
    }
}
