//! Requests that are held, and not begun, of clients that went meanwhile or want to stop.

use std::collections::BTreeSet;

use parda_control::Instant;

use super::Engine;
use crate::backend::Request;
use crate::client::{self, Client};
use crate::front::front_end::FrontEnd;
use crate::front::{any, of};

impl Engine {
    /// Lets requests in, dispatches, and starts what follows. Held requests of gone clients take nothing of their disks' limits from the
    /// next ones. Held requests of a guest whose queue is to stop pass the limit at once. Its whole machine stands still until then (QEMU's
    /// `stop`, migration, a snapshot).
    pub(super) fn move_on(&mut self, now: Instant) {
        self.steps(now);
        self.pump(now);
        if any!(self.fronts, has_leavers()) {
            self.take_back(now);
            self.steps(now);
            self.pump(now);
        }
    }

    fn take_back(&mut self, now: Instant) {
        let held = |request: &Request| {
            request.id.is_none() && request.outcome.is_none() && request.client != Client::Volume
        };
        let held = self.work.requests.iter().filter(|(_, request)| held(request));
        let disks: BTreeSet<usize> = held.map(|(_, request)| request.disk).collect();
        for disk in disks {
            let (vm, requests, fronts) =
                (self.disks[disk].vm_id, &self.work.requests, &self.fronts);
            let gone = |token| of!(fronts, requests[token as usize].client, is_gone());
            for token in self.host.withdraw(now, vm, gone) {
                self.work.finished.push((token as usize, Err(client::gone())));
            }
            self.host.hasten(now, vm, |token| {
                let request = &requests[token as usize];
                of!(fronts, request.client, is_awaited(request.reply))
            });
        }
    }
}
