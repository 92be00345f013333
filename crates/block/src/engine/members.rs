//! Disks and listeners that come and go while the volume runs. What is opened or bound here was
//! opened and bound by others: that can block.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use parda_address::Address;
use parda_control::{Instant, Span, VmConfig};

use super::closing::Remains;
use super::{Disk, Engine, Leaving, Listener};
use crate::backend::Backend;
use crate::backend::file::File;
use crate::backend::map::Mapper;
use crate::backend::upstream::Upstream;
use crate::disk_id::DiskId;
use crate::listen::Bound;
use crate::losses::Losses;
use crate::open_disk::{OpenDisk, Opened};
use crate::stats::VmStats;

impl Disk {
    /// When the connections of a disk that is being removed are closed.
    pub(super) fn closes_at(&self) -> Option<Instant> {
        self.leaving.as_ref().filter(|leaving| !leaving.closed).map(|leaving| leaving.by)
    }
}

impl Engine {
    /// Where a disk is, unless it is being removed.
    pub(super) fn key_of(&self, id: DiskId) -> Option<usize> {
        self.keys.get(&id).copied()
    }

    pub(super) fn set_vm(&mut self, now: Instant, id: DiskId, vm: VmConfig) -> Option<VmConfig> {
        // How tests have one volume of a whole agent panic, once. Not in release builds.
        #[cfg(debug_assertions)]
        {
            use std::sync::atomic::{AtomicBool, Ordering};
            static DONE: AtomicBool = AtomicBool::new(false);
            let asked = std::env::var("PARDA_TEST_PANIC_SHARES");
            let asked = asked.is_ok_and(|shares| shares == vm.shares.0.to_string());
            if asked && !DONE.swap(true, Ordering::Relaxed) {
                panic!("a test asked for this panic");
            }
        }
        let key = self.key_of(id)?;
        let disk = &mut self.disks[key];
        self.host.set_vm(now, disk.vm_id, vm).then_some(vm)
    }

    pub(super) fn add_disk(&mut self, now: Instant, disk: OpenDisk) -> DiskId {
        let OpenDisk { config, opened, base, geometry, place, sizing, claim, room } = disk;
        let id = DiskId(self.next_disk);
        self.next_disk += 1;
        let key = self.disks.insert(Disk {
            id,
            stirred: false,
            timer: None,
            name: config.export,
            description: config.description,
            geometry,
            place,
            mapper: Mapper::new(self.mailer.clone()),
            sizing,
            claim,
            room,
            listen: config.listen,
            vm_id: self.host.add_vm(now, config.vm),
            base: base.0,
            is_silent: false,
            stats: VmStats { page_cache: opened.is_cached(), ..VmStats::default() },
            losses: Losses::default(),
            away: Arc::default(),
            leaving: None,
            backend: match opened {
                Opened::File(opened) => Backend::File(File::new(opened, base)),
                Opened::Memory(memory) => Backend::Memory(memory.starting_at(base)),
                Opened::Nbd(opened) => {
                    let pool = &mut self.work.pool;
                    Backend::Nbd(Box::new(Upstream::new(now, *opened, base.0, pool)))
                }
            },
        });
        self.keys.insert(id, key);
        self.offer(key);
        self.stir(key);
        self.dial_the_rest(key);
        id
    }

    /// Takes no more requests of a disk; when those in flight are answered, its connections close. The disk's
    /// shares count no more from now on. Connections that are still in their handshake will not find the disk.
    pub(super) fn remove_disk(
        &mut self,
        now: Instant,
        id: DiskId,
        within: Duration,
        gone: SyncSender<()>,
    ) {
        let Some(key) = self.key_of(id) else { return };
        let disk = &mut self.disks[key];
        disk.leaving = Some(Leaving { by: now + Span::from(within), closed: false, gone });
        self.leaving.push(key);
        self.keys.remove(&id);
        self.host.remove_vm(disk.vm_id);
        self.withdraw(key);
        for conn in self.clients_of(key) {
            self.conns[conn].finish();
            self.list(conn);
        }
    }

    /// Keys of the connections whose handshake ended on this disk.
    pub(super) fn clients_of(&self, disk: usize) -> Vec<usize> {
        let clients = self.conns.iter().filter(|(_, conn)| conn.disk() == Some(disk));
        clients.map(|(key, _)| key).collect()
    }

    /// Drops the disks that are being removed as soon as nothing refers to them.
    pub(super) fn let_go(&mut self, now: Instant) {
        for key in self.leaving.clone() {
            self.stir(key);
            let clients = self.clients_of(key);
            let disk = &mut self.disks[key];
            let Some(leaving) = &mut disk.leaving else { continue };
            let late = now >= leaving.by;
            if (late || clients.is_empty()) && !leaving.closed {
                leaving.closed = true;
                if let Backend::Nbd(up) = &mut disk.backend {
                    up.abandon(&mut self.work);
                }
                if !clients.is_empty() {
                    let (volume, disk) = (&self.name, disk.name.as_str());
                    tracing::warn!(
                        volume,
                        disk,
                        "removed at its time limit, with requests unanswered"
                    );
                }
                for conn in clients {
                    self.conns[conn].kill(&mut self.work);
                    self.list(conn);
                }
                // What has failed now is answered, and the dead are buried.
                self.settle(now);
                self.pump(now);
            }
            let idle = match &self.disks[key].backend {
                Backend::File(_) | Backend::Memory(_) => true,
                Backend::Nbd(up) => up.is_idle(),
            };
            if idle && self.clients_of(key).is_empty() {
                let mut disk = self.disks.remove(key);
                assert!(disk.losses.is_settled(), "whoever waited for a sync was answered");
                self.leaving.retain(|other| *other != key);
                let leaving = disk.leaving.take();
                // Closes the backend before anybody hears of it.
                Remains::of(disk).close(move || {
                    if let Some(leaving) = leaving {
                        let _ = leaving.gone.send(());
                    }
                });
            }
        }
    }

    pub(super) fn set_listen(&mut self, id: DiskId, listen: Vec<Address>) -> bool {
        let Some(key) = self.key_of(id) else { return false };
        self.withdraw(key);
        self.disks[key].listen = listen;
        self.offer(key);
        true
    }

    pub(super) fn add_listener(&mut self, address: Address, bound: Bound) {
        let key = self.listeners.insert(Listener {
            address,
            tcp: matches!(bound.address, Address::Tcp { .. }),
            tls: bound.tls,
            shared: bound.shared,
            fd: Arc::new(bound.fd),
            file: bound.file,
            retry_at: None,
            accepting: None,
            leaving: None,
        });
        self.listeners[key].accept(&mut self.ring, key);
    }

    /// Closes a listener. Who is still in his handshake loses his connection, who is done with it
    /// keeps it.
    pub(super) fn remove_listener(&mut self, address: &Address, gone: SyncSender<()>) {
        let wanted = |(_, l): &(usize, &Listener)| l.address == *address && l.leaving.is_none();
        let Some((key, _)) = self.listeners.iter().find(wanted) else { return };
        let listener = &mut self.listeners[key];
        listener.leaving = Some(gone);
        listener.stop(&mut self.ring);
        let shaking =
            |(_, conn): &(usize, &crate::conn::Conn)| conn.listener == key && conn.disk().is_none();
        let conns: Vec<usize> = self.conns.iter().filter(shaking).map(|(key, _)| key).collect();
        for conn in conns {
            self.conns[conn].kill(&mut self.work);
            self.list(conn);
        }
        self.pace.retain(|newcomer| newcomer.listener != key);
        self.bury_listener(key);
    }

    /// Drops a listener that is being removed, once the ring has nothing of it.
    pub(super) fn bury_listener(&mut self, key: usize) {
        let listener = &self.listeners[key];
        if listener.leaving.is_none() || listener.accepting.is_some() {
            return;
        }
        // Closes the socket before anybody hears of it.
        let Listener { fd, leaving, .. } = self.listeners.remove(key);
        drop(fd);
        if let Some(gone) = leaving {
            let _ = gone.send(());
        }
    }

    /// Offers a disk where it listens, as it is now.
    pub(super) fn offer(&mut self, key: usize) {
        let Disk { name, listen, .. } = &self.disks[key];
        self.offers.add(key, name, listen);
    }

    fn withdraw(&mut self, key: usize) {
        let Disk { name, listen, .. } = &self.disks[key];
        self.offers.remove(key, name, listen);
    }
}
