//! Disks that come and go while the volume runs. Other threads open the files and connections, as
//! that can block.

use std::sync::mpsc::SyncSender;
use std::time::Duration;

use parda_control::{Instant, Span, VmConfig};

use super::Engine;
use super::closing::Remains;
use super::disks::{Disk, Leaving};
use super::failures::Failures;
use crate::backend::Backend;
use crate::backend::map::Mapper;
use crate::backend::upstream::Upstream;
use crate::backend::upstream::search::Owner;
use crate::client::Offered;
use crate::config::DiskConfig;
use crate::disk_id::DiskId;
use crate::front::front_end::FrontEnd;
use crate::front::{any, each};
use crate::losses::Losses;
use crate::open_disk::{OpenDisk, Opened};
use crate::stats::VmStats;

impl Engine {
    /// Puts settings in force that need no other backend. False if there is no such disk.
    pub(crate) fn set_disk(&mut self, now: Instant, id: DiskId, config: &DiskConfig) -> bool {
        // For tests: one volume of a whole agent panics, once. Not in release builds.
        #[cfg(debug_assertions)]
        {
            use std::sync::atomic::{AtomicBool, Ordering};
            static DONE: AtomicBool = AtomicBool::new(false);
            let asked = std::env::var("PARDA_TEST_PANIC_SHARES");
            let asked = asked.is_ok_and(|shares| shares == config.settings.shares().0.to_string());
            if asked && !DONE.swap(true, Ordering::Relaxed) {
                panic!("a test asked for this panic");
            }
        }
        let Some(key) = self.disks.key_of(id) else { return false };
        let disk = &mut self.disks[key];
        if disk.settings != config.settings {
            disk.settings = config.settings;
            self.host.set_vm(now, disk.vm_id, VmConfig::from(&config.settings));
        }
        let listen = config.offered_at();
        if disk.listen != listen {
            self.withdraw(key);
            self.disks[key].listen = listen;
            self.offer(key);
        }
        true
    }

    pub(crate) fn add_disk(&mut self, now: Instant, disk: OpenDisk) -> DiskId {
        let OpenDisk { config, opened, geometry, place, sizing, claim, room } = disk;
        let id = self.disks.next_id();
        let inherits = claim.as_ref().is_some_and(|claim| claim.take_loss());
        if inherits {
            let (volume, disk) = (&self.name, config.name.as_str());
            tracing::warn!(
                volume,
                disk,
                "writes that were acknowledged before the disk was opened anew may be lost, and the next flush will say so"
            );
        }
        let (volume, name) = (self.name.clone(), config.name.to_string());
        let owner = Owner { volume, name, disk: id, mailer: self.mailer.clone() };
        let listen = config.offered_at();
        let key = self.disks.add(Disk {
            id,
            offered: Offered {
                name: config.name,
                description: config.description,
                geometry,
                direct: opened.direct(),
            },
            place,
            mapper: Mapper::new(self.mailer.clone()),
            sizing,
            claim,
            room,
            listen,
            settings: config.settings,
            vm_id: self.host.add_vm(now, VmConfig::from(&config.settings)),
            is_silent: false,
            begun: Instant(0),
            stats: VmStats { page_cache: opened.is_cached(), ..VmStats::default() },
            losses: if inherits { Losses::inherited() } else { Losses::default() },
            failures: Failures::new(config.backend.place().to_string(), sizing.base),
            leaving: None,
            backend: match opened {
                Opened::File(file) => Backend::File(file),
                Opened::Memory(memory) => Backend::Memory(memory),
                Opened::Remote(opened) => {
                    let pool = &mut self.work.io.pool;
                    Backend::Remote(Box::new(Upstream::new(now, *opened, sizing.base, owner, pool)))
                }
            },
        });
        self.offer(key);
        self.disks.stir(key);
        id
    }

    /// Takes no more requests of a disk; when those in flight are answered, its connections close. The disk's
    /// shares count no more from now on. Connections that are still in their handshake will not find the disk.
    pub(crate) fn remove_disk(
        &mut self,
        now: Instant,
        id: DiskId,
        within: Duration,
        gone: SyncSender<()>,
    ) {
        let Some(key) = self.disks.key_of(id) else { return };
        let leaving = Leaving { by: now + Span::from(within), flushed: false, closed: false, gone };
        self.disks.leave(key, leaving);
        self.host.remove_vm(self.disks[key].vm_id);
        self.withdraw(key);
        each!(self.fronts, finish(key));
    }

    /// Drops the disks that are being removed as soon as nothing refers to them.
    pub(super) fn let_go(&mut self, now: Instant) {
        for key in self.disks.leaving.clone() {
            self.disks.stir(key);
            let serves = any!(self.fronts, serves(key));
            let Some(leaving) = &mut self.disks[key].leaving else { continue };
            if !serves && !std::mem::replace(&mut leaving.flushed, true) && now < leaving.by {
                self.flush_last(now, key);
            }
            let disk = &mut self.disks[key];
            let waits = serves || !disk.losses.is_settled();
            let Some(leaving) = &mut disk.leaving else { continue };
            if (now >= leaving.by || !waits) && !leaving.closed {
                leaving.closed = true;
                if let Some(up) = disk.backend.remote() {
                    up.abandon(&mut self.work);
                }
                if serves {
                    let (volume, disk) = (&self.name, disk.name());
                    tracing::warn!(
                        volume,
                        disk,
                        "removed at its time limit, with requests unanswered"
                    );
                }
                each!(self.fronts, kill(&mut self.work.io, key));
                // Failed requests are answered, and dead connections are removed.
                self.move_on(now);
            }
            let disk = &self.disks[key];
            let closed = disk.leaving.as_ref().is_some_and(|leaving| leaving.closed);
            if closed && disk.backend.is_idle() && !any!(self.fronts, serves(key)) {
                self.leave_losses(key);
                let mut disk = self.disks.remove(key);
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

    /// Offers a disk where it listens, as it is now.
    pub(super) fn offer(&mut self, key: usize) {
        let Disk { offered, listen, .. } = &self.disks[key];
        each!(self.fronts, offer(key, offered, listen));
    }

    fn withdraw(&mut self, key: usize) {
        let Disk { offered, listen, .. } = &self.disks[key];
        each!(self.fronts, withdraw(key, offered, listen));
    }
}
