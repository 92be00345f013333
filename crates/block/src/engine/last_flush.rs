//! The last flush of a disk behind an NBD server, before its connections are closed. Once these are gone, no connection reports any more
//! that the server has lost acknowledged writes. Data of a file is with the kernel, which tells the next one who opens the file.
//!
//! A loss by then that not all clients were told is told by the next disk on the same data.

use parda_control::Instant;
use parda_disk::{Failure, Op};

use super::Engine;
use crate::backend::{Backend, Request};
use crate::client::{Client, ReplyHandle};
use crate::front::any;
use crate::front::front_end::FrontEnd;

impl Engine {
    /// Has the server behind a disk flush what it has acknowledged, if there is something, and a connection.
    pub(super) fn flush_last(&mut self, now: Instant, key: usize) {
        let disk = &mut self.disks[key];
        let dirty = disk.losses.is_dirty();
        if dirty && disk.backend.remote().is_some_and(|up| up.is_up()) {
            let (client, reply) = (Client::Volume, ReplyHandle(0));
            let flush = Request::new(client, key, reply, Op::Flush, None);
            let request = self.work.requests.insert(flush);
            self.start(now, request);
            self.pump(now);
        }
    }

    /// The last flush of a disk has ended.
    pub(super) fn flushed_last(&self, disk: usize, outcome: Result<(), Failure>) {
        if let Err(failure) = outcome {
            let (volume, disk) = (&self.name, self.disks[disk].name());
            tracing::warn!(
                volume,
                disk,
                error = failure.message.as_str(),
                "the flush before the disk is closed failed: acknowledged writes may be lost"
            );
        }
    }

    /// Whether a volume at its end, without clients, has flushed its disks or waits for silent servers alone.
    pub(super) fn has_flushed(&mut self, now: Instant) -> bool {
        if !std::mem::replace(&mut self.flushed, true) {
            let keys: Vec<usize> = self.disks.iter().map(|(key, _)| key).collect();
            keys.into_iter().for_each(|key| self.flush_last(now, key));
        }
        let mut disks = self.disks.iter().map(|(_, disk)| disk);
        disks.all(|disk| disk.losses.is_settled() || disk.backend.is_silent(now))
    }

    /// A disk is about to be closed. Leaves what it has not told to the next disk on its data.
    pub(super) fn leave_losses(&self, key: usize) {
        let disk = &self.disks[key];
        // Of a server that was not flushed nobody will know what it loses.
        let unknown = matches!(disk.backend, Backend::Remote(_)) && disk.losses.is_dirty();
        // Clients that are left were not asked what they know.
        let unasked = || disk.losses.failures() > 0 && any!(self.fronts, serves(key));
        if let Some(claim) = &disk.claim
            && (unknown || disk.losses.owes() || unasked())
        {
            claim.leave_loss();
        }
    }
}
