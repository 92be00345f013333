//! Disks whose backend grows, shrinks or loses its name while they are served.

use parda_control::{Instant, Span};

use super::Engine;
use crate::backend::Backend;
use crate::backend::disk_file::Look;
use crate::backend::map::Mapper;
use crate::disk_id::DiskId;
use crate::front::each;
use crate::front::front_end::FrontEnd;

/// Time of one call after which its file system counts as silent.
const SILENT: Span = Span::from_millis(3_000);

impl Engine {
    /// Has files and devices looked at, beside the ring. One look at a time: a silent file system is not asked again until it answers.
    /// Another thread goes on with the files of others. Slow or many looks take at most a part of a processor, and make no file system
    /// silent.
    pub(super) fn look_at_files(&mut self, now: Instant) {
        let at = self.looks.mapper.looks_at();
        if !self.looks.under_way && now < self.looks.again {
            return;
        }
        if self.looks.under_way {
            if at != self.looks.at {
                (self.looks.at, self.looks.moved) = (at, now);
            }
            if now.since(self.looks.moved) < SILENT {
                return;
            }
            let Some(disk) = at.1 else { return };
            if let Some(key) = self.disks.key_of(disk) {
                self.disks[key].is_silent = true;
            }
            // The thread ends when it has its answer.
            self.looks.mapper = Mapper::new(self.mailer.clone());
        }
        let files = self.disks.iter().filter_map(|(_, disk)| match disk.backend {
            Backend::File(_) if disk.is_silent => None,
            Backend::File(_) => Some((disk.id, disk.place.as_ref()?.open_path())),
            Backend::Memory(_) | Backend::Remote(_) => None,
        });
        let files = files.collect();
        self.looks.begin(now, files);
    }

    /// Takes note of what a look has found. One that another has replaced began before it: its file systems answer
    /// again, and what it saw is old.
    pub(super) fn looked(&mut self, now: Instant, number: u64, looks: Vec<(DiskId, Option<Look>)>) {
        let is_newest = self.looks.ended(now, number);
        for (id, look) in looks {
            let Some(key) = self.disks.key_of(id) else { continue };
            self.disks[key].is_silent = false;
            if let Some(look) = look.filter(|_| is_newest) {
                self.sized(id, look.size);
                self.placed(key, &look);
            }
        }
    }

    /// Takes note of whether a path still leads to what is served.
    fn placed(&mut self, key: usize, look: &Look) {
        let (volume, disk) = (&self.name, &mut self.disks[key]);
        if std::mem::replace(&mut disk.stats.replaced, look.replaced) == look.replaced {
            return;
        }
        let name = disk.name();
        if look.replaced {
            tracing::warn!(
                volume,
                disk = name,
                event = "disk_replaced",
                "its path leads to another file now, or to none: what was opened is served on, and \
                 lost at the end if it has no other name"
            );
        } else {
            tracing::info!(volume, disk = name, "its path leads to what is served again");
        }
    }

    /// Takes note of the size of a disk's backend.
    pub(super) fn sized(&mut self, id: DiskId, backend: u64) {
        let Some(key) = self.disks.key_of(id) else { return };
        let disk = &mut self.disks[key];
        let (before, after) = (disk.sizing.size(disk.sizing.backend), disk.sizing.size(backend));
        disk.sizing.backend = backend;
        if before == after {
            return;
        }
        disk.offered.geometry.size = after;
        disk.stats.lost = (disk.stats.lost + before).saturating_sub(after);
        self.offer(key);
        each!(self.fronts, resized(key, after));
        let (volume, disk) = (&self.name, self.disks[key].name());
        if after > before {
            tracing::info!(
                volume,
                disk,
                before,
                after,
                event = "disk_grown",
                "the disk has grown; clients see it when they connect again"
            );
        } else {
            tracing::error!(
                volume,
                disk,
                before,
                after,
                event = "disk_shrunk",
                "the disk has shrunk: what was behind its end is lost, and IOs there fail"
            );
        }
    }
}
