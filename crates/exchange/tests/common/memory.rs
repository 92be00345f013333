//! Slots in memory, shared by the hosts of one process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parda_exchange::Header;
use parda_exchange::region::{Block, Region, RegionFault, RegionImage, SlotCount, SlotIndex};

/// A medium in memory. A clone is another host's way to the same medium.
#[derive(Debug)]
pub(crate) struct MemoryRegion {
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
    /// The header, then the slots.
    blocks: Vec<Block>,
    reads_fail: Option<fn() -> RegionFault>,
    writes_fail: Option<fn() -> RegionFault>,
}

impl MemoryRegion {
    /// A medium that was just made: a header for any volume, and slots of zeros.
    pub(crate) fn new(slots: SlotCount) -> MemoryRegion {
        let mut blocks = vec![Block::ZERO; slots.get() as usize + 1];
        blocks[0] = Header::new(slots, None).encode();
        let shared = Shared { blocks, reads_fail: None, writes_fail: None };
        MemoryRegion { shared: Arc::new(Mutex::new(shared)), slots, open: false }
    }

    /// Lets every read fail from now on, or work again.
    pub(crate) fn fail_reads(&self, fault: Option<fn() -> RegionFault>) {
        self.lock().reads_fail = fault;
    }

    /// Lets every write fail from now on, or work again.
    pub(crate) fn fail_writes(&self, fault: Option<fn() -> RegionFault>) {
        self.lock().writes_fail = fault;
    }

    /// Changes what the slots hold behind everybody's back.
    pub(crate) fn edit(&self, edit: impl FnOnce(&mut [Block])) {
        edit(&mut self.lock().blocks[1..]);
    }

    /// Changes the header behind everybody's back.
    pub(crate) fn edit_header(&self, edit: impl FnOnce(&mut Block)) {
        edit(&mut self.lock().blocks[0]);
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

    fn read_front(&mut self, slots: SlotCount) -> Result<RegionImage, RegionFault> {
        let read = {
            let shared = self.lock();
            match shared.reads_fail {
                Some(fault) => Err(fault()),
                None => Ok(RegionImage::of(shared.blocks[..=slots.get() as usize].to_vec())),
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
        shared.blocks[slot.0 as usize + 1] = block.clone();
        Ok(())
    }

    fn close(&mut self) {
        self.open = false;
    }
}
