//! Disks that are being opened, over all volumes: one at a time at each place, so that a file system which does not answer has one thread of
//! each disk, and what answers late is used or closed before it is opened again.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::config::{Disk, Place};
use crate::locked::locked;
use crate::patience::PATIENCE;

/// When a file system that is being asked has answered last.
#[derive(Clone)]
pub(super) struct Heard(Arc<Mutex<Instant>>);

impl Heard {
    /// It has answered.
    pub(super) fn now(&self) {
        *locked(&self.0) = Instant::now();
    }

    /// When it counts as silent, if it says nothing more.
    pub(super) fn due(&self) -> Instant {
        *locked(&self.0) + PATIENCE
    }

    pub(super) fn is_silent(&self) -> bool {
        self.silence() >= PATIENCE
    }

    pub(super) fn silence(&self) -> Duration {
        locked(&self.0).elapsed()
    }
}

struct Opening {
    place: Place,
    region: Option<Range<u64>>,
    heard: Heard,
}

/// What is being opened.
#[derive(Clone, Default)]
pub(crate) struct Opens(Arc<Mutex<Vec<Opening>>>);

impl Opens {
    /// Begins to open a disk. `Err`: another thread opens what is at its place.
    pub(super) fn begin(&self, disk: &Disk) -> Result<Ticket, Heard> {
        let mut all = locked(&self.0);
        let same = |other: &&Opening| other.place == disk.place && other.region == disk.region;
        if let Some(other) = all.iter().find(same) {
            return Err(other.heard.clone());
        }
        let heard = Heard(Arc::new(Mutex::new(Instant::now())));
        let (place, region) = (disk.place.clone(), disk.region.clone());
        all.push(Opening { place, region, heard: heard.clone() });
        Ok(Ticket { opens: self.clone(), heard })
    }
}

/// A disk that is being opened, until this is dropped.
pub(super) struct Ticket {
    opens: Opens,
    pub(super) heard: Heard,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        locked(&self.opens.0).retain(|other| !Arc::ptr_eq(&other.heard.0, &self.heard.0));
    }
}
