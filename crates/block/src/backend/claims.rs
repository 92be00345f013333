//! What the disks of this process have open: one table for all volumes, by what was opened and not by
//! its name.
//!
//! Several disks may be regions of one device. Two that have a byte in common, and of which one is
//! writable, are never open at the same time: a disk that moves to another volume is opened there
//! when its old volume has closed it.
//!
//! The table is held for a moment only. What may hang in a file system, such as a lock of a file, is done in the [`Turn`] of
//! what holds the data, which keeps nobody waiting but disks on the same file or device.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use super::OpenError;
use super::file::claim::Held;
use super::medium::{Medium, Stretch};

/// A disk's hold on its data, until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) disk: String,
    stretch: Stretch,
    read_only: bool,
    held: OnceLock<Vec<Held>>,
}

impl Claim {
    /// How it keeps other programs from a file or device, and from the file behind a loop device. Nothing, until that is known.
    pub(crate) fn held(&self) -> &[Held] {
        self.held.get().map_or(&[], Vec::as_slice)
    }

    /// Says how it does, once.
    pub(crate) fn holds(&self, held: Vec<Held>) {
        // Who has made the claim says it, and nobody else.
        let _ = self.held.set(held);
    }
}

/// Turn of a disk to take hold of its data: others on the same file or device wait.
#[derive(Debug, Default)]
pub(crate) struct Turn(Mutex<()>);

impl Turn {
    pub(crate) fn take(&self) -> MutexGuard<'_, ()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Table {
    claims: Vec<Weak<Claim>>,
    turns: Vec<(Medium, Weak<Turn>)>,
}

static TABLE: Mutex<Table> = Mutex::new(Table { claims: Vec::new(), turns: Vec::new() });

/// The table, for as long as something is looked for and added.
pub(crate) struct Claims(MutexGuard<'static, Table>);

impl Claims {
    pub(crate) fn lock() -> Claims {
        let mut table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
        table.claims.retain(|claim| claim.strong_count() > 0);
        table.turns.retain(|(_, turn)| turn.strong_count() > 0);
        Claims(table)
    }

    /// Number of disks with a claim.
    pub(crate) fn count(&self) -> usize {
        self.0.claims.len()
    }

    /// The turns of all that is on the same file or device.
    pub(crate) fn turn(&mut self, stretch: &Stretch) -> Arc<Turn> {
        let there = self.0.turns.iter().find(|(medium, _)| medium == stretch.medium());
        if let Some(turn) = there.and_then(|(_, turn)| turn.upgrade()) {
            return turn;
        }
        let turn = Arc::default();
        self.0.turns.push((stretch.medium().clone(), Arc::downgrade(&turn)));
        turn
    }

    fn all(&self) -> impl Iterator<Item = Arc<Claim>> {
        self.0.claims.iter().filter_map(Weak::upgrade)
    }

    /// What other disks have of the same file or device.
    pub(crate) fn beside(&self, stretch: &Stretch) -> Vec<Arc<Claim>> {
        self.all().filter(|claim| claim.stretch.medium() == stretch.medium()).collect()
    }

    /// Fails if another disk has some of it, and one of the two is writable. `place`: its name.
    pub(crate) fn check(
        &self,
        stretch: &Stretch,
        read_only: bool,
        place: impl ToString,
    ) -> Result<(), OpenError> {
        let mut others = self.all().filter(|c| !(c.read_only && read_only));
        match others.find(|claim| claim.stretch.meets(stretch)) {
            Some(claim) => {
                let (place, other) = (place.to_string(), claim.disk.clone());
                Err(OpenError::Overlap { place, other })
            }
            None => Ok(()),
        }
    }

    pub(crate) fn add(&mut self, disk: &str, stretch: Stretch, read_only: bool) -> Arc<Claim> {
        let held = OnceLock::new();
        let claim = Arc::new(Claim { disk: disk.to_owned(), stretch, read_only, held });
        self.0.claims.push(Arc::downgrade(&claim));
        claim
    }
}
