//! Disks whose backend grows, shrinks or loses its name while they are served.
//!
//! NBD has no word from server to client for it: a client learns the size when it connects. So new
//! connections see the new size, and those that are there keep theirs.

use super::Engine;
use crate::backend::Backend;
use crate::backend::map::{DiskFile, Look};
use crate::volume::DiskId;

/// How a disk's size follows from that of its backend, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizing {
    /// Where the disk begins.
    base: u64,
    /// How long the disk is at most, if it is a region.
    len: Option<u64>,
    /// Alignment of its size, in bytes.
    min: u64,
    /// The backend's size when it was last looked at.
    backend: u64,
}

impl Sizing {
    /// For a backend of `backend` bytes with the minimum block size `min`.
    pub(crate) fn new(base: u64, len: Option<u64>, min: u32, backend: u64) -> Self {
        Self { base, len, min: u64::from(min.max(1)), backend }
    }

    fn size(&self, backend: u64) -> u64 {
        let there = backend.saturating_sub(self.base);
        let whole = there - there % self.min;
        self.len.map_or(whole, |len| len.min(whole))
    }
}

impl Engine {
    /// Has files and devices looked at, beside the ring. Once at a time: a file system that does not
    /// answer is not asked again until it does.
    pub(super) fn look_at_files(&mut self) {
        if self.looking {
            return;
        }
        let files = self.disks.iter().filter_map(|(_, disk)| match disk.backend {
            Backend::File(_) => Some((disk.id, disk.place.clone()?)),
            Backend::Memory(_) | Backend::Nbd(_) => None,
        });
        let files: Vec<(DiskId, DiskFile)> = files.collect();
        self.looking = !files.is_empty() && self.mapper.look(files).is_ok();
    }

    /// Takes note of what has become of a disk's file.
    pub(super) fn looked(&mut self, id: DiskId, look: Look) {
        self.sized(id, look.size);
        let Some(key) = self.key_of(id) else { return };
        let (volume, disk) = (&self.name, &mut self.disks[key]);
        if std::mem::replace(&mut disk.stats.replaced, look.replaced) == look.replaced {
            return;
        }
        let name = &disk.name;
        if look.replaced {
            tracing::warn!(
                volume,
                disk = name,
                "its path leads to another file now, or to none: what was opened is served on, and \
                 lost at the end if it has no other name"
            );
        } else {
            tracing::info!(volume, disk = name, "its path leads to what is served again");
        }
    }

    /// Takes note of the size of a disk's backend.
    pub(super) fn sized(&mut self, id: DiskId, backend: u64) {
        let Some(key) = self.key_of(id) else { return };
        let disk = &mut self.disks[key];
        let (before, after) = (disk.sizing.size(disk.sizing.backend), disk.sizing.size(backend));
        disk.sizing.backend = backend;
        if before == after {
            return;
        }
        disk.export.size = after;
        self.offer();
        // What is gone is gone for those as well who connected before.
        for conn in self.clients_of(key) {
            self.conns[conn].shrink(after);
        }
        let (volume, disk) = (&self.name, &self.disks[key].name);
        if after > before {
            tracing::info!(
                volume,
                disk,
                before,
                after,
                "the disk has grown; clients see it when they connect again"
            );
        } else {
            tracing::error!(
                volume,
                disk,
                before,
                after,
                "the disk has shrunk: what was behind its end is lost, and IOs there fail"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_what_of_its_backend_belongs_to_it_in_whole_blocks() {
        let whole = Sizing::new(0, None, 512, 0);
        assert_eq!([0, 511, 512, 1025].map(|bytes| whole.size(bytes)), [0, 0, 512, 1024]);
        let region = Sizing::new(4096, Some(8192), 1, 0);
        assert_eq!(
            [0, 4096, 5000, 12288, 99999].map(|bytes| region.size(bytes)),
            [0, 0, 904, 8192, 8192]
        );
        let rest = Sizing::new(4096, None, 4096, 0);
        assert_eq!(rest.size(3 * 4096 + 1), 2 * 4096);
    }
}
