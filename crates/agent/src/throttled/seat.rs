//! A QEMU behind its socket: its reports on its disks, and the limits set there.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::time::Instant as Clock;

use parda_config::VmSettings;
use parda_control::latency::Direction;
use parda_control::{TenantId, VmGrant, VmPeriod};
use parda_steer::Journal;
use parda_steer::cgroup::{Want, level};
use parda_steer::journal::{How, JournalError, LockedJournal, Original};
use parda_steer::qemu::{
    self, Counters, IoMix, QemuDisk, QemuFlow, QemuLimits, QmpDiskId, QmpError, SocketId,
    journal_name, throttle,
};

use crate::config::Qemu;
use parda_input::escaped;

/// Failures in a row after which a VM counts no more.
const MISSES: u32 = 3;
/// Most periods between two questions to a QEMU that does not answer, as a power of two.
const RAREST: u32 = 6;
/// Part of its limit up to which a disk is taken not to wait for it.
const FREE: f64 = 0.5;
/// Longest that an IO waits for a throttle of parda, in seconds: guests give up after 30.
const LONGEST_WAIT: f64 = 10.0;
/// Most IOs that are believed to be pending at a disk.
const MOST_PENDING: f64 = 65_536.0;
/// Burst that QEMU allows each time that limits are set: what they allow in this time, in seconds.
const BURST: f64 = 0.1;
/// Least relative change of a limit that is set on a disk which it does not hold.
const SAME: f64 = 0.1;

/// A socket and the QEMU behind it.
#[derive(Default)]
pub(super) struct Seat {
    id: Option<SocketId>,
    pub(super) vm: Option<Vm>,
    /// Held while there may be limits of parda.
    journal: Option<LockedJournal>,
    /// Whether the search for limits left by an earlier agent is done.
    is_clean: bool,
    /// Whether it answered in this period.
    has_answered: bool,
    misses: u32,
    /// Periods until it is asked again.
    wait: u32,
    pub(super) fault: Option<String>,
}

/// A VM that answers.
pub(super) struct Vm {
    pub(super) name: String,
    pub(super) settings: VmSettings,
    /// Grant of the VM among the VMs of its host and of its tenant.
    pub(super) grant: VmGrant,
    /// Rate that its shares give the VM, while they hold VMs of the host back.
    pub(super) by_shares: Option<f64>,
    pub(super) disks: BTreeMap<QmpDiskId, Held>,
    pub(super) ios: u64,
    pub(super) bytes: u64,
    looked: Clock,
}

/// A disk of the volume.
pub(super) struct Held {
    disk: QemuDisk,
    /// Limits that are not parda's.
    own: QemuLimits,
    /// Limits of parda, with their rate, while they are set.
    ours: Option<(QemuLimits, f64)>,
    /// Whether limits were sent and not acknowledged.
    is_unsure: bool,
    /// IOs of the last period, and its length in seconds.
    did: Counters,
    seconds: f64,
    /// Whether its times are those of the array.
    pub(super) is_free: bool,
}

/// Rate of a disk in the next period.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Target {
    /// IO/s; `None` for no limit of parda.
    rate: Option<f64>,
    /// Whether the disk wants more.
    holds: bool,
}

/// Failure at a QEMU: of its journal, or a [`QmpError`].
type SeatError = Box<dyn Error + Send + Sync>;

impl Seat {
    /// Disks of a QEMU that answered in this period.
    pub(super) fn disks(&self) -> impl Iterator<Item = &Held> {
        let vm = self.vm.iter().filter(|_| self.has_answered);
        vm.flat_map(|vm| vm.disks.values())
    }

    /// Reads the measurements of the disks. `acts`: limits will be set.
    pub(super) fn look(&mut self, volume: &str, socket: &Path, qemu: &Qemu, acts: bool) {
        let id = SocketId::of(socket).ok();
        if self.id != id {
            // Another QEMU than before.
            self.leave(volume, socket);
            *self = Seat { id, ..Seat::default() };
        }
        self.has_answered = false;
        let Some(id) = id else { return };
        if self.wait > 0 {
            self.wait -= 1;
            return;
        }
        match self.ask(socket, id, acts) {
            Ok(vm) => self.take(volume, socket, vm, qemu),
            Err(error) => self.miss(volume, socket, &error),
        }
    }

    fn ask(
        &mut self,
        socket: &Path,
        id: SocketId,
        acts: bool,
    ) -> Result<qemu::QemuGuest, SeatError> {
        let (journal, name) = (Journal::at(Journal::PLACE), journal_name(socket));
        if acts && self.journal.is_none() {
            self.journal = Some(journal.hold(&name)?.0);
        } else if !self.is_clean && self.journal.is_none() {
            match journal.restore(&name) {
                // The other agent acts, and this one only looks.
                Err(JournalError::Held { .. }) => {}
                restored => drop(restored?),
            }
        }
        self.is_clean = true;
        let vm = qemu::look(socket)?;
        // Another QEMU took its place meanwhile.
        if SocketId::of(socket).map_err(QmpError::from)? != id {
            return Err(QmpError::Silent.into());
        }
        Ok(vm)
    }

    fn miss(&mut self, volume: &str, socket: &Path, error: &SeatError) {
        self.misses += 1;
        self.wait = (1 << self.misses.min(RAREST)) - 2;
        let gone = error.downcast_ref().is_some_and(QmpError::gone);
        if gone || self.misses > MISSES {
            self.went(volume, socket);
        }
        // An error of a QEMU that has ended is no fault.
        self.say(volume, (!gone).then(|| format!("{}: {error}", socket.display())));
    }

    /// Logs a fault once.
    fn say(&mut self, volume: &str, fault: Option<String>) {
        let fault = fault.map(|fault| escaped(&fault, |_| false));
        if fault != self.fault
            && let Some(fault) = &fault
        {
            tracing::warn!(volume, "{fault}; its VM goes on as it is");
        }
        self.fault = fault;
    }

    fn take(&mut self, volume: &str, socket: &Path, seen: qemu::QemuGuest, qemu: &Qemu) {
        (self.has_answered, self.misses, self.wait) = (true, 0, 0);
        self.say(volume, None);
        let stem = socket.file_stem().unwrap_or_default().to_string_lossy();
        let name = escaped(seen.name.as_deref().unwrap_or(&stem), |_| false);
        let settings = qemu.vms.of(&[&name, &stem]);
        let shares = settings.shares().0;
        let now = Clock::now();
        let vm = self.vm.get_or_insert_with(|| {
            tracing::info!(volume, vm = name, shares, event = "vm_came", "a VM came");
            Vm {
                name: name.clone(),
                settings,
                grant: VmGrant::default(),
                by_shares: None,
                disks: BTreeMap::new(),
                ios: 0,
                bytes: 0,
                looked: now,
            }
        });
        (vm.name, vm.settings) = (name, settings);
        let seconds = now.saturating_duration_since(vm.looked).as_secs_f64();
        vm.looked = now;
        let is_here = |disk: &QemuDisk| qemu.disks.iter().any(|pattern| disk.matches(pattern));
        let mut before = std::mem::take(&mut vm.disks);
        for disk in seen.disks.into_iter().filter(is_here) {
            let held = match before.remove(&disk.id) {
                Some(held) => held.next(disk, seconds),
                None => Held::new(disk, self.journal.as_ref()),
            };
            if let (Some(journal), Some(id)) = (&mut self.journal, self.id) {
                let original = held.original(socket, id);
                let known = journal.originals();
                let is_noted = known.iter().any(|noted| noted.same_setting(&original));
                if is_noted && !known.contains(&original) {
                    let (vm, disk) = (&vm.name, &held.disk.name);
                    tracing::info!(volume, vm, disk, "somebody set other limits; they are kept");
                    if let Err(error) = journal.correct(original) {
                        tracing::error!(volume, vm, disk, "{error}; they will not be put back");
                    }
                }
            }
            for (_, flow) in held.did() {
                vm.ios += flow.ios;
                vm.bytes += flow.bytes;
            }
            vm.disks.insert(held.disk.id.clone(), held);
        }
    }

    /// Gives the disks their rates.
    pub(super) fn set(&mut self, volume: &str, socket: &Path, targets: Vec<(QmpDiskId, Target)>) {
        if self.has_answered
            && let Err(error) = self.try_set(socket, targets)
        {
            self.miss(volume, socket, &error);
        }
    }

    fn try_set(
        &mut self,
        socket: &Path,
        targets: Vec<(QmpDiskId, Target)>,
    ) -> Result<(), SeatError> {
        let (Some(id), Some(vm), Some(journal)) = (self.id, &mut self.vm, &mut self.journal) else {
            return Ok(());
        };
        let mut changes = Vec::new();
        let mut originals = Vec::new();
        for (disk, target) in targets {
            let Some(held) = vm.disks.get_mut(&disk) else { continue };
            let Some(limits) = held.change(target) else { continue };
            originals.push(held.original(socket, id));
            held.is_unsure = true;
            changes.push((disk, limits, target.rate));
        }
        if changes.is_empty() {
            return Ok(());
        }
        journal.note(&originals)?;
        let list: Vec<_> = changes.iter().map(|(disk, limits, _)| (disk, limits)).collect();
        let as_seen = |id: &QmpDiskId, now: &QemuLimits| {
            vm.disks.get(id).is_some_and(|held| held.disk.limits == *now)
        };
        let is_set = throttle(socket, &list, as_seen)?;
        for ((disk, limits, rate), is_set) in changes.into_iter().zip(is_set) {
            let Some(held) = vm.disks.get_mut(&disk) else { continue };
            held.is_unsure = false;
            if is_set {
                held.disk.limits = limits.clone();
                held.ours = Some((limits, rate.unwrap_or(f64::INFINITY)));
            }
        }
        Ok(())
    }

    /// Restores the previous limits, with the changes that others have made since.
    pub(super) fn release(&mut self, volume: &str, socket: &Path, qemu: &Qemu) {
        if self.journal.is_some() && self.misses == 0 {
            self.look(volume, socket, qemu, true);
        }
        self.put_back(volume, socket);
    }

    fn put_back(&mut self, volume: &str, socket: &Path) {
        let Some(mut journal) = self.journal.take() else { return };
        if let Err(error) = journal.put_back() {
            tracing::error!(
                volume,
                socket = %socket.display(),
                "{error}; parda steer restore puts back what was set before"
            );
        }
        for held in self.vm.iter_mut().flat_map(|vm| vm.disks.values_mut()) {
            (held.ours, held.is_unsure) = (None, true);
        }
    }

    /// The QEMU is gone.
    pub(super) fn leave(&mut self, volume: &str, socket: &Path) {
        self.went(volume, socket);
        self.put_back(volume, socket);
    }

    fn went(&mut self, volume: &str, socket: &Path) {
        if let Some(vm) = self.vm.take() {
            tracing::info!(volume, vm = vm.name, socket = %socket.display(), event = "vm_went", "a VM went");
        }
    }
}

impl Vm {
    /// IOs that the VM would have outstanding or waiting. IOs that wait for other limits than parda's do not count. `latency`: of the
    /// array, in seconds.
    pub(super) fn pending(&self, latency: f64) -> f64 {
        self.disks.values().map(|disk| disk.pending(latency)).sum()
    }

    /// IO/s that the tenant's limit allows the VM; infinite without one.
    pub(super) fn most(&self) -> f64 {
        self.grant.limit.iops.total.map_or(f64::INFINITY, |rate| rate.mean)
    }

    /// Whether the tenant's limit holds the VM back.
    pub(super) fn is_at_most(&self, latency: f64) -> bool {
        let most = self.most();
        self.pending(latency) > most * latency && self.by_shares.is_none_or(|rate| rate > most)
    }

    /// IO and demand of the VM in the period. IO that a limit holds back is no demand.
    pub(super) fn did(&self, latency: f64) -> VmPeriod {
        let shares = self.settings.shares();
        let tenant = self.settings.tenant.map(|tenant| TenantId::of(&tenant));
        let (pending, most) = (self.pending(latency), self.most());
        let pending = if most.is_finite() { pending.min(most * latency) } else { pending };
        let held = self.is_at_most(latency);
        let mut did = VmPeriod { shares, tenant, pending, ios: [0; 2], bytes: [0; 2], held };
        for (direction, flow) in self.disks.values().flat_map(Held::did) {
            did.ios[direction as usize] += flow.ios;
            did.bytes[direction as usize] += flow.bytes;
        }
        did
    }

    /// Rates of the disks that together do so many IO/s, and never more than the tenant's limit allows.
    pub(super) fn targets(&self, rate: f64, latency: f64, period: f64) -> Vec<(QmpDiskId, Target)> {
        let wants: Vec<_> = self
            .disks
            .values()
            .map(|disk| Want { shares: 1.0, rate: disk.pending(latency) / latency })
            .collect();
        let by_shares = level(&wants, rate).unwrap_or(rate);
        let most = level(&wants, self.most());
        let spare = self.most() - wants.iter().map(|want| want.rate).sum::<f64>();
        let spare = spare / wants.len().max(1) as f64;
        let target = |((id, disk), want): ((&QmpDiskId, &Held), &Want)| {
            let each = by_shares.min(most.unwrap_or(want.rate + spare));
            let holds = want.rate > each;
            // A disk that is held is given its limits anew in each period, and with them a burst.
            let burst = if holds { period / (period + BURST) } else { 1.0 };
            let rate = (each * burst).max(disk.pending(latency) / LONGEST_WAIT);
            (id.clone(), Target { rate: Some(rate), holds })
        };
        self.disks.iter().zip(&wants).map(target).collect()
    }
}

impl Held {
    fn new(disk: QemuDisk, journal: Option<&LockedJournal>) -> Held {
        let noted = journal.into_iter().flat_map(LockedJournal::originals);
        let mut noted = noted.filter_map(|original| match &original.how {
            How::Throttle { disk: id, limits, .. } if *id == disk.id => Some(limits.clone()),
            _ => None,
        });
        let own = match disk.limits.is_ours() {
            // An agent that was killed has left them.
            true => noted.next().unwrap_or_default(),
            false => disk.limits.clone(),
        };
        let ours = disk.limits.is_ours().then(|| (disk.limits.clone(), 0.0));
        let did = Counters::default();
        Held { disk, own, ours, is_unsure: true, did, seconds: 0.0, is_free: false }
    }

    /// The disk a period later.
    fn next(self, disk: QemuDisk, seconds: f64) -> Held {
        let now = disk.counters;
        let since = |now: QemuFlow, before: QemuFlow| {
            let believed = |flow: &QemuFlow| {
                flow.time as f64 * 1e-9 <= MOST_PENDING * seconds.max(1e-3)
                    && (flow.ios > 0 || flow.bytes == 0)
            };
            now.since(before).filter(believed).unwrap_or_default()
        };
        let before = self.disk.counters;
        let did = Counters {
            reads: since(now.reads, before.reads),
            writes: since(now.writes, before.writes),
        };
        let rate = self.ours.as_ref().map(|(_, rate)| *rate);
        let set = self.ours.as_ref().map(|(limits, _)| limits);
        let (own, ours) = if !disk.limits.is_ours() {
            (disk.limits.clone(), None)
        } else if self.is_unsure || set == Some(&disk.limits) {
            (self.own, Some((disk.limits.clone(), rate.unwrap_or(0.0))))
        } else {
            // Another program has set limits in the group that parda has made.
            (disk.limits.beside(&self.own), None)
        };
        let mut held = Held { disk, own, ours, is_unsure: false, did, seconds, is_free: false };
        let ios = (did.reads.ios + did.writes.ios) as f64;
        let below = |rate: f64| ios <= FREE * rate * seconds;
        held.is_free =
            !held.disk.is_filtered && rate.is_none_or(below) && below(held.own.most(held.mix()));
        held
    }

    fn original(&self, socket: &Path, id: SocketId) -> Original {
        let disk = QemuDisk { limits: self.own.clone(), ..self.disk.clone() };
        Original::of_disk((socket, id), &disk)
    }

    /// Limits to set for a rate; `None` where those in force do.
    fn change(&self, target: Target) -> Option<QemuLimits> {
        let set = self.ours.as_ref().map(|(_, rate)| *rate);
        let Some(rate) = target.rate else {
            let held = set.is_some_and(f64::is_finite);
            return held.then(|| self.own.lifted(&self.disk.name));
        };
        let near = |set: f64| (set - rate).abs() <= SAME * rate;
        let stays = !target.holds && set.is_some_and(near);
        (!stays).then(|| self.own.and_rate(rate, self.mix(), &self.disk.name))
    }

    fn mix(&self) -> IoMix {
        let Counters { reads, writes } = self.did;
        let ios = (reads.ios + writes.ios).max(1) as f64;
        IoMix { reads: reads.ios as f64 / ios, bytes: (reads.bytes + writes.bytes) as f64 / ios }
    }

    fn pending(&self, latency: f64) -> f64 {
        if self.seconds <= 0.0 {
            return 0.0;
        }
        // The sum of nothing is -0.0.
        let time = self.did().fold(0.0, |time, (_, flow)| time + flow.time as f64 * 1e-9);
        let allowed = self.own.most(self.mix()) * latency;
        (time / self.seconds).min(if latency > 0.0 { allowed } else { f64::INFINITY })
    }

    /// IOs of the last period that moved data.
    pub(super) fn did(&self) -> impl Iterator<Item = (Direction, QemuFlow)> {
        let both = [(Direction::Read, self.did.reads), (Direction::Write, self.did.writes)];
        both.into_iter().filter(|(_, flow)| flow.ios > 0)
    }

    /// Whether a limit of parda holds it.
    pub(super) fn is_limited(&self) -> bool {
        self.ours.as_ref().is_some_and(|(_, rate)| rate.is_finite())
    }

    /// Whether its throttle lets more through than its share, as no IO is to wait too long.
    pub(super) fn is_at_least(&self) -> bool {
        let waits = self.pending(0.0) / LONGEST_WAIT;
        self.ours.as_ref().is_some_and(|(_, rate)| *rate > 0.0 && *rate <= waits)
    }
}
