//! Orders and news of other threads to a volume's thread.

use std::collections::HashMap;
use std::io;

use parda_address::Address;
use parda_control::{Decision, Instant, Measurement};

use super::Engine;
use super::disks::Disk;
use crate::front::each;
use crate::front::front_end::FrontEnd;
use crate::listen::Bound;
use crate::mailbox::News;
use crate::stats::{Stats, VmStats};

/// Something that the control plane has the volume's thread do between two IOs.
pub(crate) type Order = Box<dyn FnOnce(&mut Engine, Instant) + Send>;

impl Engine {
    /// Does what was ordered, and takes what other threads have found.
    pub(super) fn read_mail(&mut self, now: Instant) {
        self.mailbox.silence();
        while let Ok(order) = self.orders.try_recv() {
            order(self, now);
        }
        while let Some(news) = self.mailbox.next() {
            self.hear(now, news);
        }
    }

    fn hear(&mut self, now: Instant, news: News) {
        match news {
            News::Reconnected { disk, lane, connected } => {
                if let Some(key) = self.disks.key_of(disk)
                    && let Some(up) = self.disks[key].backend.remote()
                {
                    let size = connected.agreed.size;
                    up.reconnected(lane, connected);
                    self.disks.stir(key);
                    self.sized(disk, size);
                }
            }
            News::Mapped { key, extents } => {
                let Some(request) = self.work.requests.get_mut(key) else { return };
                let outcome = extents.map(|extents| request.status = extents);
                self.disks[request.disk].mapper.answered(&mut self.work.finished);
                self.data_done(now, key, outcome);
            }
            News::Looked { number, looks } => self.looked(now, number, looks),
            News::Guest(mail) => self.fronts.vhost.mail(now, &mut self.work.io, mail),
        }
    }

    /// Ends a period, and writes what the law is to know of it.
    pub(crate) fn measure(&mut self, now: Instant, into: &mut Measurement) {
        self.host.measure(now, into);
        self.delays.end_period(now);
        self.look_at_files(now);
    }

    /// Works by another decision of the law.
    pub(crate) fn apply(&mut self, now: Instant, decision: &Decision) {
        self.host.apply(now, decision);
    }

    pub(crate) fn add_listener(&mut self, address: Address, bound: Bound) -> io::Result<()> {
        self.fronts.listeners.add(&mut self.work.io.ring, address, bound)
    }

    /// Closes a listener. False if there is none.
    pub(crate) fn remove_listener(&mut self, address: &Address) -> bool {
        self.fronts.remove_listener(&mut self.work.io, address)
    }

    pub(crate) fn stats(&self, now: Instant) -> Stats {
        let mut disks: Vec<(usize, &Disk)> = self.disks.iter().collect();
        disks.retain(|(_, disk)| disk.leaving.is_none());
        // The order in which the law has them.
        disks.sort_by_key(|(_, disk)| disk.vm_id);
        let mut clients = HashMap::new();
        each!(self.fronts, count(&mut clients));
        let (connections, memory, dropped) = self.fronts.stats(&self.work.io.pool);
        Stats {
            at: now,
            window: self.host.decision().window,
            vms_changed: self.host.vms_changed(),
            outstanding: self.host.outstanding(),
            held: self.host.held(),
            overdue: self.host.overdue(),
            lateness: self.delays.last,
            connections,
            memory,
            dropped,
            disks: disks.iter().map(|(_, disk)| disk.id).collect(),
            vms: (disks.iter())
                .map(|(key, disk)| VmStats {
                    clients: clients.get(key).copied().unwrap_or(0),
                    part: self.host.part(disk.vm_id).unwrap_or_default(),
                    standing: self.host.standing(disk.vm_id),
                    reservation: self.host.reservation(disk.vm_id),
                    ..disk.stats()
                })
                .collect(),
        }
    }
}
