//! What the disks of this process have open: one table for all volumes, by what was opened and not by
//! its name.
//!
//! Several disks may be regions of one device. Two that have a byte in common, and of which one is
//! writable, are never open at the same time: a disk that moves to another volume is opened there
//! when its old volume has closed it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::OpenError;
use super::file::claim::Held;
use super::medium::Stretch;

/// A disk's hold on its data, until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) disk: String,
    stretch: Stretch,
    read_only: bool,
    /// How it keeps other programs from a file or device, and from the file behind a loop device.
    pub(crate) held: Vec<Held>,
}

static CLAIMS: Mutex<Vec<Weak<Claim>>> = Mutex::new(Vec::new());

/// The table, for as long as something is looked for and added.
pub(crate) struct Claims(MutexGuard<'static, Vec<Weak<Claim>>>);

impl Claims {
    pub(crate) fn lock() -> Claims {
        let mut claims = CLAIMS.lock().unwrap_or_else(PoisonError::into_inner);
        claims.retain(|claim| claim.strong_count() > 0);
        Claims(claims)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = Arc<Claim>> {
        self.0.iter().filter_map(Weak::upgrade)
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

    pub(crate) fn add(
        &mut self,
        disk: &str,
        stretch: Stretch,
        read_only: bool,
        held: Vec<Held>,
    ) -> Arc<Claim> {
        let claim = Arc::new(Claim { disk: disk.to_owned(), stretch, read_only, held });
        self.0.push(Arc::downgrade(&claim));
        claim
    }
}
