//! Commands of other threads to a volume's thread, and its end.

use std::collections::HashMap;

use parda_control::{Instant, Span, View};

use super::Engine;
use super::disks::Disk;
use crate::front::each;
use crate::front::front_end::FrontEnd;
use crate::mailbox::Command;
use crate::stats::{Stats, VmStats};

impl Engine {
    pub(super) fn command(&mut self, now: Instant, command: Command) {
        // An answer that nobody waits for any more is no error.
        match command {
            Command::Tick { peers, answer } => {
                let (peers, tenants) = peers.map(|peers| *peers).unzip();
                self.host.hear_tenants(tenants);
                let report = self.host.tick(now, peers.map_or(View::Silent, View::Peers));
                let _ = answer.send((report, self.host.tenant_parts().collect()));
                self.delays.end_period(now);
                self.look_at_files(now);
            }
            Command::Stats { answer } => {
                let _ = answer.send(self.stats(now));
            }
            Command::SetTenants { tenants, answer } => {
                self.host.set_tenants(now, &tenants);
                let _ = answer.send(());
            }
            Command::SetVm { disk, vm, answer } => {
                let _ = answer.send(self.set_vm(now, disk, vm));
            }
            Command::AddDisk { disk, answer } => {
                let _ = answer.send(self.add_disk(now, *disk));
            }
            Command::RemoveDisk { disk, within, gone } => self.remove_disk(now, disk, within, gone),
            Command::SetListen { disk, listen, answer } => {
                let _ = answer.send(self.set_listen(disk, listen));
            }
            Command::AddListener { address, bound, answer } => {
                let _ = answer.send(self.fronts.add_listener(&mut self.work.io, address, bound));
            }
            Command::RemoveListener { address, answer } => {
                let _ = answer.send(self.fronts.remove_listener(&mut self.work.io, &address));
            }
            Command::SetControl { config, answer } => {
                let result = self.host.set_config(now, config);
                let _ = answer.send(result.map(|()| self.host.governor().config().clone()));
            }
            Command::Reconnected { disk, lane, connected } => {
                if let Some(key) = self.disks.key_of(disk)
                    && let Some(up) = self.disks[key].backend.remote()
                {
                    let size = connected.agreed.size;
                    up.reconnected(lane, connected);
                    self.disks.stir(key);
                    self.sized(disk, size);
                }
            }
            Command::Mapped { key, extents } => {
                let Some(request) = self.work.requests.get_mut(key) else { return };
                let outcome = extents.map(|extents| request.status = extents);
                self.disks[request.disk].mapper.answered(&mut self.work.finished);
                self.data_done(now, key, outcome);
            }
            Command::Looked { number, looks } => self.looked(now, number, looks),
            Command::Guest(mail) => self.fronts.vhost.mail(&mut self.work.io, mail),
            Command::Shutdown { within } => self.stop(now, within),
        }
    }

    pub(super) fn stats(&self, now: Instant) -> Stats {
        let mut disks: Vec<(usize, &Disk)> = self.disks.iter().collect();
        disks.retain(|(_, disk)| disk.leaving.is_none());
        // The order in which the law has them.
        disks.sort_by_key(|(_, disk)| disk.vm_id);
        let mut clients = HashMap::new();
        each!(self.fronts, count(&mut clients));
        let (connections, memory, dropped) = self.fronts.stats(&self.work.io.pool);
        Stats {
            at: now,
            window: self.host.governor().window(),
            outstanding: self.host.outstanding(),
            held: self.host.held(),
            latency: self.host.governor().latency().map(Span::from_secs),
            outlook: self.host.governor().outlook().cloned(),
            threshold: self.host.governor().threshold(),
            objective_price: self.host.governor().objective_price(),
            settings: self.host.governor().settings(),
            overdue: self.host.overdue(),
            estimate: self.host.governor().estimate(),
            lateness: self.delays.last,
            connections,
            memory,
            dropped,
            tenants: self.host.tenants().collect(),
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
