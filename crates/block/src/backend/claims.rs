//! Files and devices that the disks of this process have open: one table for all volumes, by medium and not by name.
//!
//! Several disks may be regions of one device. Two that overlap, one of them writable, are never open at the same time. A disk that moves
//! to another volume is opened there when its old volume has closed it.
//!
//! The table is held for a moment only. Calls that may hang in a file system, such as a lock, are made in the [`Turn`] of the medium. They
//! delay only disks on the same file or device.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use rustix::fs::{FileType, Stat};

use super::OpenError;
use super::file::claim::Held;
use super::medium::{Medium, Stretch, Stretches};

/// A disk's hold on its data, until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    held: OnceLock<Vec<Held>>,
    /// Goes last: while its file is being closed, which may hang, the disk has its bytes still.
    owner: Arc<Owner>,
}

/// Owner of a byte range, while referenced.
#[derive(Debug)]
pub(crate) struct Owner {
    disk: String,
    stretch: Stretch,
    read_only: bool,
    /// Its file was deleted and is about to be closed.
    deleted: AtomicBool,
}

impl Claim {
    /// Name of the disk.
    pub(crate) fn disk(&self) -> &str {
        &self.owner.disk
    }

    /// Keeps its stretch from other disks when the claim is gone.
    pub(crate) fn owner(&self) -> Arc<Owner> {
        Arc::clone(&self.owner)
    }

    /// Records that acknowledged writes may be lost and not every client was told. The next disk on this data has to tell its clients.
    pub(crate) fn leave_loss(&self) {
        Claims::lock().0.losses.push(self.owner.stretch.clone());
    }

    /// Whether a disk has left such a loss here. A disk that has all of that data takes it over, and no other is told.
    pub(crate) fn take_loss(&self) -> bool {
        let (losses, own) = (&mut Claims::lock().0.losses, &self.owner.stretch);
        let found = !self.owner.read_only && losses.iter().any(|lost| lost.meets(own));
        losses.retain(|lost| !(found && own.covers(lost)));
        found
    }

    /// Locks and exclusive opens that keep other programs from a file or device, and from the file behind a loop device. Empty until they
    /// are known.
    pub(crate) fn held(&self) -> &[Held] {
        self.held.get().map_or(&[], Vec::as_slice)
    }

    /// Begins to close its file. One without a name nobody can open, and once it is closed its inode may be another file's.
    pub(crate) fn closes(&self) {
        let stat = self.held().first().and_then(|held| held.stat().ok());
        let is_deleted = |stat: Stat| {
            stat.st_nlink == 0 && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        };
        self.owner.deleted.store(stat.is_some_and(is_deleted), Ordering::Relaxed);
    }

    /// Number of descriptors that the disk has, with those of files behind loop devices.
    pub(crate) fn descriptors(&self) -> u64 {
        self.held().iter().map(Held::descriptors).sum()
    }

    /// Says how it does, once.
    pub(crate) fn holds(&self, held: Vec<Held>) {
        // Only the maker of the claim sets this.
        let _ = self.held.set(held);
    }
}

/// Turn of a disk to take hold of its data: others on the same file or device wait.
pub(crate) type Turn = Mutex<()>;

/// A claim that may be gone, and whose it is.
type Known = (Weak<Owner>, Weak<Claim>);

#[derive(Default)]
struct Table {
    claims: Stretches<Known>,
    turns: HashMap<Medium, Weak<Turn>>,
    /// Ranges where acknowledged writes of a closed disk may be lost, and not every client was
    /// told.
    losses: Vec<Stretch>,
    /// Claims that were left when those that are gone were last forgotten.
    left: usize,
}

static TABLE: LazyLock<Mutex<Table>> = LazyLock::new(Mutex::default);

/// The table, for as long as something is looked for and added.
pub(crate) struct Claims(MutexGuard<'static, Table>);

impl Claims {
    pub(crate) fn lock() -> Claims {
        Claims(TABLE.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The turns of all that is on the same file or device.
    pub(crate) fn turn(&mut self, stretch: &Stretch) -> Arc<Turn> {
        let place = self.0.turns.entry(stretch.medium().clone()).or_default();
        place.upgrade().unwrap_or_else(|| {
            let turn = Arc::default();
            *place = Arc::downgrade(&turn);
            turn
        })
    }

    /// Claims of other disks on the same file or device.
    pub(crate) fn beside(&self, stretch: &Stretch) -> Vec<Arc<Claim>> {
        self.0.claims.on(stretch.medium()).filter_map(|(_, claim)| claim.upgrade()).collect()
    }

    /// Fails if another disk has some of it, and one of the two is writable. `place`: its name.
    pub(crate) fn check(
        &self,
        stretch: &Stretch,
        read_only: bool,
        place: impl ToString,
    ) -> Result<(), OpenError> {
        let mut others = self.0.claims.meeting(stretch).filter_map(|(owner, _)| owner.upgrade());
        let both_read = |owner: &Owner| owner.read_only && read_only;
        match others.find(|owner| !both_read(owner) && !owner.deleted.load(Ordering::Relaxed)) {
            Some(owner) => {
                let (place, other) = (place.to_string(), owner.disk.clone());
                Err(OpenError::Overlap { place, other })
            }
            None => Ok(()),
        }
    }

    pub(crate) fn add(&mut self, disk: &str, stretch: Stretch, read_only: bool) -> Arc<Claim> {
        let Table { claims, turns, left, .. } = &mut *self.0;
        // Seldom enough that it costs each claim next to nothing.
        if claims.len() > 2 * *left + 16 {
            claims.retain(|(owner, _)| owner.strong_count() > 0);
            turns.retain(|_, turn| turn.strong_count() > 0);
            *left = claims.len();
        }
        let owner = Arc::new(Owner {
            disk: disk.to_owned(),
            stretch: stretch.clone(),
            read_only,
            deleted: AtomicBool::new(false),
        });
        let held = OnceLock::new();
        let claim = Arc::new(Claim { held, owner: Arc::clone(&owner) });
        claims.insert(stretch, (Arc::downgrade(&owner), Arc::downgrade(&claim)));
        claim
    }
}
