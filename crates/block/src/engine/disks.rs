//! Disks of a volume.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use parda_address::Address;
use parda_config::VmSettings;
use parda_control::{Instant, VmId};
use slab::Slab;

use crate::backend::claims::Claim;
use crate::backend::disk_file::DiskFile;
use crate::backend::map::Mapper;
use crate::backend::sizing::Sizing;
use crate::backend::upstream::Upstream;
use crate::backend::{Backend, Work};
use crate::client::Offered;
use crate::descriptors::Room;
use crate::disk_id::DiskId;
use crate::losses::Losses;
use crate::reactor::{Tag, Timer};
use crate::stats::VmStats;

use super::failures::Failures;

pub(super) struct Disk {
    pub(super) id: DiskId,
    pub(super) offered: Offered,
    pub(super) settings: VmSettings,
    /// Addresses where clients find the disk now.
    pub(super) listen: Vec<Address>,
    pub(super) vm_id: VmId,
    pub(super) backend: Backend,
    /// File to search for holes; `None` behind another server, which is asked instead.
    pub(super) place: Option<DiskFile>,
    pub(super) mapper: Mapper,
    pub(super) sizing: Sizing,
    /// Its file system did not answer to a look at the file, and still does not.
    pub(super) is_silent: bool,
    pub(super) stats: VmStats,
    /// When its file was handed a request last.
    pub(super) begun: Instant,
    pub(super) losses: Losses<usize>,
    pub(super) failures: Failures,
    pub(super) leaving: Option<Leaving>,
    /// Goes last: another disk may have its data then.
    pub(super) claim: Option<Arc<Claim>>,
    /// Room for its descriptors.
    pub(super) room: Room,
}

/// A disk that is being removed.
pub(super) struct Leaving {
    /// When its connections are closed though requests are not answered.
    pub(super) by: Instant,
    /// Its server was asked for a last flush.
    pub(super) flushed: bool,
    pub(super) closed: bool,
    pub(super) gone: SyncSender<()>,
}

impl Disk {
    pub(super) fn name(&self) -> &str {
        self.offered.name.as_str()
    }

    /// Its counters, and the reason why its server is not found, if it is looked for.
    pub(super) fn stats(&self) -> VmStats {
        let away = match &self.backend {
            Backend::Remote(up) => up.away(),
            Backend::File(_) | Backend::Memory(_) => None,
        };
        VmStats { away, ..self.stats.clone() }
    }
}

/// The disks of a volume, by key. Keys are used again.
#[derive(Default)]
pub(super) struct Disks {
    all: Slab<Disk>,
    /// Keys of the disks that are not being removed.
    keys: HashMap<DiskId, usize>,
    next: u64,
    /// Disks whose server has something to do this turn.
    pub(super) stirred: Vec<usize>,
    /// Disks that are being removed.
    pub(super) leaving: Vec<usize>,
}

impl Deref for Disks {
    type Target = Slab<Disk>;

    fn deref(&self) -> &Slab<Disk> {
        &self.all
    }
}

impl DerefMut for Disks {
    fn deref_mut(&mut self) -> &mut Slab<Disk> {
        &mut self.all
    }
}

impl Disks {
    /// Checks between two calls that each disk is found by its number, or is being removed.
    fn check(&self) {
        assert_eq!(self.keys.len() + self.leaving.len(), self.all.len());
        debug_assert!(self.keys.iter().all(|(id, key)| self.all[*key].id == *id));
        debug_assert!(self.leaving.iter().all(|key| self.all[*key].leaving.is_some()));
    }

    /// A number that no disk had before.
    pub(super) fn next_id(&mut self) -> DiskId {
        self.next += 1;
        DiskId(self.next - 1)
    }

    pub(super) fn add(&mut self, disk: Disk) -> usize {
        let id = disk.id;
        let key = self.all.insert(disk);
        let before = self.keys.insert(id, key);
        assert_eq!(before, None, "a number is given once");
        self.check();
        key
    }

    /// Has a disk be removed: it is not found by its number any more.
    pub(super) fn leave(&mut self, key: usize, leaving: Leaving) {
        let disk = &mut self.all[key];
        let before = disk.leaving.replace(leaving);
        assert!(before.is_none(), "a disk is removed once");
        self.keys.remove(&disk.id);
        self.leaving.push(key);
        self.check();
    }

    /// Takes out a disk that was being removed, and of which nothing is under way.
    pub(super) fn remove(&mut self, key: usize) -> Disk {
        let disk = self.all.remove(key);
        assert!(disk.losses.is_settled(), "whoever waited for a sync was answered");
        self.leaving.retain(|other| *other != key);
        self.check();
        disk
    }

    /// Where a disk is, unless it is being removed.
    pub(super) fn key_of(&self, id: DiskId) -> Option<usize> {
        self.keys.get(&id).copied()
    }

    /// When the connections of disks that are being removed are closed.
    pub(super) fn close_at(&self) -> impl Iterator<Item = Instant> {
        let leaving = self.leaving.iter().filter_map(|key| self.all.get(*key)?.leaving.as_ref());
        leaving.filter(|leaving| !leaving.closed).map(|leaving| leaving.by)
    }

    /// Puts a disk behind another server on the list of those that have something to do.
    pub(super) fn stir(&mut self, key: usize) {
        if let Some(up) = self.remote(key)
            && !up.stirred
        {
            up.stirred = true;
            self.stirred.push(key);
        }
    }

    /// The server behind a disk, if there is one.
    pub(super) fn remote(&mut self, key: usize) -> Option<&mut Upstream> {
        self.all.get_mut(key)?.backend.remote()
    }

    /// Starts all that connections to servers have to do.
    pub(super) fn pump(&mut self, work: &mut Work) {
        for key in std::mem::take(&mut self.stirred) {
            let Some(up) = self.remote(key) else { continue };
            up.stirred = false;
            up.pump(work, |lane, wire| Tag::Upstream(key, lane, wire));
            // A timer that comes too early finds that out, and is set again.
            let deadline = up.deadline();
            if let Some(at) = deadline.filter(|at| up.timer.is_none_or(|set| *at < set)) {
                up.timer = deadline;
                work.io.timers.add(at, Timer::Upstream(key));
            }
        }
    }
}
