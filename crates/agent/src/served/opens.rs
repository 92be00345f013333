//! Disks that are being opened, over all volumes: one at a time at each place, so that a file system which does not answer has one thread of
//! each disk, and what answers late is used or closed before it is opened again.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::config::{Disk, Place};
use crate::locked::locked;
use crate::patience::PATIENCE;

/// When a file system that is being asked was asked, or has answered last. Nothing before its turn has come: to wait for that is
/// no silence.
#[derive(Clone, Default)]
pub(super) struct Heard(Arc<Mutex<Option<Instant>>>);

impl Heard {
    /// It is asked from now on, or has answered.
    pub(super) fn now(&self) {
        *locked(&self.0) = Some(Instant::now());
    }

    /// When it counts as silent, if it says nothing more.
    pub(super) fn due(&self) -> Option<Instant> {
        locked(&self.0).map(|heard| heard + PATIENCE)
    }

    pub(super) fn is_silent(&self) -> bool {
        self.silence() >= PATIENCE
    }

    pub(super) fn silence(&self) -> Duration {
        locked(&self.0).map_or(Duration::ZERO, |heard| heard.elapsed())
    }

    /// Its turn has not come.
    pub(super) fn waits(&self) -> bool {
        locked(&self.0).is_none()
    }
}

/// Bytes of a place.
type Bytes = (Place, Option<Range<u64>>);

/// What is being opened.
#[derive(Clone, Default)]
pub(crate) struct Opens(Arc<Mutex<HashMap<Bytes, Heard>>>);

impl Opens {
    /// Begins to open a disk. `Err`: another thread opens what is at its place.
    pub(super) fn begin(&self, disk: &Disk) -> Result<Ticket, Heard> {
        let bytes = (disk.place.clone(), disk.region.clone());
        match locked(&self.0).entry(bytes.clone()) {
            Entry::Occupied(other) => Err(other.get().clone()),
            Entry::Vacant(place) => {
                let heard = place.insert(Heard::default()).clone();
                Ok(Ticket { opens: self.clone(), bytes, heard })
            }
        }
    }
}

/// A disk that is being opened, until this is dropped.
pub(super) struct Ticket {
    opens: Opens,
    bytes: Bytes,
    pub(super) heard: Heard,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        locked(&self.opens.0).remove(&self.bytes);
    }
}
