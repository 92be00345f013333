//! Disks behind other servers: their time-outs, lost connections, and the search for new ones.

use parda_control::{Instant, Span};

use super::Engine;
use crate::backend::upstream::Upstream;

/// Interval at which a volume at its end checks whether it waits for silent servers alone.
const LOOK_EVERY: Span = Span::from_millis(250);

impl Engine {
    /// When a volume that ends looks whether it waits for silent servers alone.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.stop_by.map(|_| self.now() + LOOK_EVERY)
    }

    /// Does what is due at servers behind disks.
    pub(super) fn upstream_timers(&mut self, now: Instant) {
        let mut i = 0;
        while let Some(&key) = self.disks.stirred.get(i) {
            i += 1;
            let Some(up) = self.disks.remote(key) else { continue };
            up.resume(now, &mut self.work);
            up.timers(now, &mut self.work);
            self.note_losses(key);
        }
    }

    /// Takes note of what a server may have lost.
    pub(super) fn note_losses(&mut self, key: usize) {
        let disk = &mut self.disks[key];
        let losses = disk.backend.remote().map_or(0, Upstream::take_losses);
        (0..losses).for_each(|_| disk.losses.lost());
    }

    /// Whether a volume that ends waits for nothing but servers that are away or silent.
    pub(super) fn only_silent_servers(&self, now: Instant) -> bool {
        let silent = |disk: usize| self.disks[disk].backend.is_silent(now);
        let mut requests = self.work.requests.iter().map(|(_, request)| request);
        // Requests that were not dispatched wait for room in the window, behind the others.
        let some = requests.clone().any(|request| request.id.is_some());
        some && requests.all(|request| request.id.is_none() || silent(request.disk))
    }
}
