//! Disks behind other servers: their time-outs, lost connections, and the search for new ones.

use std::sync::Arc;

use parda_control::{Instant, Span};

use super::Engine;
use crate::backend::upstream::Lost;
use crate::backend::upstream::search::Searched;

/// How often a volume that ends looks whether it still waits for anybody but silent servers.
const LOOK_EVERY: Span = Span::from_millis(250);

impl Engine {
    /// Looks for the connections of a new disk that are not opened yet.
    pub(super) fn dial_the_rest(&mut self, key: usize) {
        let Some(up) = self.disks[key].backend.remote() else { return };
        for lane in up.unopened() {
            self.redial(key, lane, 0);
        }
    }

    /// When a volume that ends looks whether it waits for silent servers alone.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.stop_by.map(|_| self.now() + LOOK_EVERY)
    }

    /// Does what is due at servers behind disks.
    pub(super) fn upstream_timers(&mut self, now: Instant) {
        let mut i = 0;
        while let Some(&index) = self.disks.stirred.get(i) {
            i += 1;
            let Some(disk) = self.disks.get_mut(index) else { continue };
            let Some(up) = disk.backend.remote() else { continue };
            up.resume(now, &mut self.work, (&self.name, disk.offered.name.as_str()));
            let lost = up.timers(now, &mut self.work);
            self.upstream_lost(index, lost);
        }
    }

    /// Takes note of what a server may have lost, and looks for a lost connection.
    pub(super) fn upstream_lost(&mut self, index: usize, lost: Option<Lost>) {
        let disk = &mut self.disks[index];
        let Some(up) = disk.backend.remote() else { return };
        let losses = up.take_losses();
        (0..losses).for_each(|_| disk.losses.lost());
        let Some(lost) = lost else { return };
        lost.report(&self.name, disk.name(), losses);
        self.redial(index, lost.lane, lost.failures);
    }

    fn redial(&mut self, disk: usize, lane: usize, failures: u32) {
        let disk = &mut self.disks[disk];
        let searched = Searched {
            volume: self.name.clone(),
            name: disk.name().to_owned(),
            disk: disk.id,
            mailer: self.mailer.clone(),
            away: Arc::downgrade(&disk.away),
        };
        if let Some(up) = disk.backend.remote() {
            up.look_for(searched, lane, failures);
        }
    }

    /// Whether a volume that ends waits for nothing but servers that are away or silent.
    pub(super) fn only_silent_servers(&self, now: Instant) -> bool {
        let silent = |disk: usize| self.disks[disk].backend.is_silent(now);
        let mut requests = self.work.requests.iter().map(|(_, request)| request);
        // Those that were not dispatched wait for room in the window, behind the others.
        let some = requests.clone().any(|request| request.id.is_some());
        some && requests.all(|request| request.id.is_none() || silent(request.disk))
    }
}
