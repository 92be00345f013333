//! Slots in memory, shared by the hosts of one process: for tests and simulation.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Block, Region, RegionError, RegionFault, SlotCount, SlotIndex};

/// A medium in memory. A clone is another host's way to the same medium.
#[derive(Clone, Debug)]
pub struct MemoryRegion {
    shared: Arc<Mutex<Shared>>,
    slots: SlotCount,
}

#[derive(Debug)]
struct Shared {
    blocks: Vec<Block>,
    reads_fail: Option<fn() -> RegionFault>,
    writes_fail: Option<fn() -> RegionFault>,
}

impl MemoryRegion {
    /// A medium full of zeros.
    #[must_use]
    pub fn new(slots: SlotCount) -> MemoryRegion {
        let shared = Shared { blocks: slots.blank(), reads_fail: None, writes_fail: None };
        MemoryRegion { shared: Arc::new(Mutex::new(shared)), slots }
    }

    /// Lets every read fail from now on, or work again.
    pub fn fail_reads(&self, fault: Option<fn() -> RegionFault>) {
        self.lock().reads_fail = fault;
    }

    /// Lets every write fail from now on, or work again.
    pub fn fail_writes(&self, fault: Option<fn() -> RegionFault>) {
        self.lock().writes_fail = fault;
    }

    /// Changes what the medium holds behind everybody's back.
    pub fn edit(&self, edit: impl FnOnce(&mut [Block])) {
        edit(&mut self.lock().blocks);
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

    fn read(&mut self) -> Result<Vec<Block>, RegionError> {
        let shared = self.lock();
        match shared.reads_fail {
            Some(fault) => Err(fault().at(self.place())),
            None => Ok(shared.blocks.clone()),
        }
    }

    fn write(&mut self, slot: SlotIndex, block: &Block) -> Result<(), RegionError> {
        let mut shared = self.lock();
        if let Some(fault) = shared.writes_fail {
            return Err(fault().at(self.place()));
        }
        shared.blocks[slot.0 as usize] = block.clone();
        Ok(())
    }
}
