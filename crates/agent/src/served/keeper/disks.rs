//! Disks of a volume as they are opened, changed and closed while it runs.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parda_address::{Address, ExportName};
use parda_awake::Instant;
use parda_block::{BackendConfig, DiskConfig, OpenDisk, OpenError, SpawnError, Stopped};

use super::{Keeper, NotOpened, Order, Owner, Ticket, apart};
use crate::news::is_news;
use crate::patience::{LOOK_BEHIND, PATIENCE};
use crate::served::member::{Member, State, position};
use crate::served::shared::Heard;

/// Time for which a removed disk still answers the requests in flight.
const DRAIN: Duration = Duration::from_secs(30);

/// Interval of looks whether a place is still being opened for another disk.
const LOOK: Duration = Duration::from_millis(20);

impl Keeper {
    /// Brings disks in and out so that they are those that are wanted.
    pub(super) fn reconcile_disks(&mut self) {
        let wanted = self.wanted.disks().to_vec();
        let mut named: HashMap<&ExportName, Vec<&DiskConfig>> = HashMap::new();
        for disk in &wanted {
            named.entry(&disk.name).or_default().push(disk);
        }
        let mut leave = Vec::new();
        for member in &mut self.shown.disks {
            if member.state == State::Leaving {
                continue;
            }
            let Some(disk) = same_disk(&named, &member.config) else {
                leave.push((member.owner, "not in the configuration any more"));
                continue;
            };
            if !member.config.stays_open_for(disk) {
                leave.push((member.owner, "its data is to be another: it is opened anew"));
                continue;
            }
            let before = std::mem::replace(&mut member.config, disk.clone());
            let (State::Open(id), Some(ring)) = (member.state, &self.ring) else { continue };
            if before == *disk {
                continue;
            }
            let volume = &self.wanted.name;
            match ring.set_disk(id, disk.clone()) {
                Ok(true) => say_changed(volume, &before, disk),
                _ => tracing::error!(volume, disk = %disk.name, "not changed: it has ended"),
            }
        }
        for (owner, why) in leave {
            self.remove_disk(owner, why);
        }
        let there = self.shown.disks.iter().filter(|member| member.state != State::Leaving);
        let there: HashSet<(&ExportName, &Address)> =
            there.map(|member| (&member.config.name, &member.config.listen)).collect();
        let new = wanted.iter().filter(|disk| !there.contains(&(&disk.name, &disk.listen)));
        let new: Vec<DiskConfig> = new.cloned().collect();
        self.shown.disks.extend(new.into_iter().map(Member::new));
    }

    fn remove_disk(&mut self, owner: Owner, why: &str) {
        let Some(at) = position(&self.shown.disks, owner) else { return };
        let member = &mut self.shown.disks[at];
        tracing::info!(volume = self.wanted.name, disk = %member.config.name, why, "is removed");
        match (member.state, &self.ring) {
            (State::Open(id), Some(ring)) => {
                member.state = State::Leaving;
                member.since = Instant::now();
                let (ring, orders) = (Arc::clone(ring), self.orders.clone());
                apart("remove", move || {
                    // A ring that has ended holds nothing of the disk any more.
                    let _ = ring.remove_disk(id, DRAIN);
                    let _ = orders.send(Order::Removed(owner));
                });
            }
            // A disk that is still being opened is closed once it is open.
            _ => drop(self.shown.disks.remove(at)),
        }
    }

    /// Begins to open the disks that are due. Disks whose data others hold stay closed: other disks of this agent ([`OpenError::Overlap`])
    /// as well as other programs.
    pub(super) fn open_disks(&mut self, now: Instant) {
        for member in &mut self.shown.disks {
            if !matches!(member.state, State::Waiting(at) if now >= at) {
                continue;
            }
            let (owner, disk) = (member.owner, member.config.clone());
            let ticket = match self.shared.opens.begin(&disk) {
                Ok(ticket) => ticket,
                // A removed disk, or another reader, is still being opened at this place.
                Err(heard) if heard.is_silent() => {
                    member.must_wait(silent(&disk));
                    continue;
                }
                Err(_) => {
                    member.state = State::Waiting(now + LOOK);
                    continue;
                }
            };
            member.state = State::Opening;
            // The time that it takes to connect to a server is bounded as it is.
            member.heard =
                matches!(disk.backend, BackendConfig::File { .. }).then(|| ticket.heard.clone());
            let (own, orders) = (Arc::clone(&self.wanted.own), self.orders.clone());
            self.opening.push(move || {
                ticket.heard.now();
                let opened = match own.fault(&disk.backend.place(), disk.bytes().as_ref()) {
                    Some(fault) => {
                        Err(format!("disk {:?}: path {fault}", disk.name.to_string()).into())
                    }
                    None => {
                        let answered = || ticket.heard.now();
                        OpenDisk::open_watched(disk, own.host(), &answered).map_err(NotOpened::from)
                    }
                };
                // A keeper that has ended takes nothing: it is closed here.
                let _ = orders.send(Order::Opened(owner, Box::new(opened), ticket));
            });
        }
    }

    /// Logs the disks whose file systems do not answer. They count as tried, and are served when they answer.
    pub(super) fn watch_openings(&mut self) {
        let volume = &self.wanted.name;
        let no_thread = self.opening.fault();
        for member in &mut self.shown.disks {
            if let Some(fault) = &no_thread
                && member.state == State::Opening
                && member.heard.as_ref().is_none_or(Heard::waits)
                && is_news(&mut member.fault, fault)
            {
                let disk = &member.config.name;
                say_down(volume, disk, &format!("{fault}; it is tried again until it can"));
            }
            if member.falls_silent(silent) {
                let (disk, why) = (&member.config.name, silent(&member.config));
                say_down(volume, disk, &format!("{why}; it is served when it does"));
            }
        }
    }

    pub(super) fn opened(
        &mut self,
        owner: Owner,
        opened: Result<OpenDisk, NotOpened>,
        ticket: Ticket,
    ) {
        let volume = &self.wanted.name;
        let member = position(&self.shown.disks, owner).map(|at| &mut self.shown.disks[at]);
        let (Some(member), Some(ring)) = (member, &self.ring) else {
            // The disk was removed meanwhile, or is opened again with the next ring. To close it may take long.
            if let Some(at) = position(&self.shown.disks, owner) {
                self.shown.disks[at].failed(Stopped.to_string());
            }
            apart("close", move || drop((opened, ticket)));
            return;
        };
        member.heard = None;
        let disk = member.config.clone();
        let open = match opened {
            Ok(open) => open,
            Err(error) => {
                let (why, name) = (error.to_string(), &disk.name);
                let source = match error.downcast_ref() {
                    Some(SpawnError::Backend { source, .. }) => Some(source),
                    _ => None,
                };
                member.no_room = matches!(source, Some(OpenError::Descriptors));
                if matches!(source, Some(OpenError::Overlap { .. })) {
                    if member.must_wait(why.clone()) {
                        tracing::info!(volume, disk = %name, "waits until it can be opened: {why}");
                    }
                } else if member.failed(why.clone()) {
                    say_down(volume, name, &format!("{why}; it is tried again until it can"));
                }
                return;
            }
        };
        match ring.add_disk(open.with(disk.clone())) {
            Ok(id) => {
                member.opened(id);
                tracing::info!(
                    volume, disk = %disk.name, data = %disk.backend.place(), listen = %disk.listen,
                    shares = disk.settings.shares().0, event = "disk_up", "serving"
                );
            }
            // The disk is opened again with the next ring.
            Err(error) => drop(member.failed(error.to_string())),
        }
    }
}

/// Log of the settings of a disk that changed while it is served.
fn say_changed(volume: &str, before: &DiskConfig, disk: &DiskConfig) {
    let DiskConfig { name, settings, listen, drain, .. } = disk;
    if *settings != before.settings {
        tracing::info!(
            volume, disk = %name, shares = settings.shares().0, burst = settings.burst.unwrap_or_default(),
            event = "shares_changed",
            "shares changed"
        );
    }
    match (before.drain, drain) {
        (false, true) => tracing::info!(
            volume, disk = %name, event = "disk_drains",
            "takes no new connections; those that exist go on"
        ),
        (true, false) => tracing::info!(
            volume, disk = %name, event = "disk_drains_no_more",
            "takes new connections again"
        ),
        _ if *listen != before.listen => tracing::info!(
            volume, disk = %name, %listen,
            "offered elsewhere; its connections stay"
        ),
        _ => {}
    }
}

fn say_down(volume: &str, disk: &ExportName, why: &str) {
    tracing::error!(volume, %disk, event = "disk_down", "cannot be served: {why}");
}

fn silent(disk: &DiskConfig) -> String {
    let place = disk.backend.place();
    format!("{place}: its file system does not answer within {PATIENCE:?}: {LOOK_BEHIND}")
}

/// The disk of that name, at that listener if several have the name.
fn same_disk<'a>(
    named: &HashMap<&ExportName, Vec<&'a DiskConfig>>,
    disk: &DiskConfig,
) -> Option<&'a DiskConfig> {
    match named.get(&disk.name)?[..] {
        [one] => Some(one),
        ref several => several.iter().find(|d| d.listen == disk.listen).copied(),
    }
}
