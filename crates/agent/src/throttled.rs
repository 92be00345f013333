//! A volume whose disks QEMU opens itself: the law's window becomes limits of QEMU's own throttles. Measurements
//! for the law come over QMP ([`Account`]), and limits go there.
//!
//! QEMU counts the wait for its throttle as latency. The array's latency therefore comes from disks that are not held, and from the agent's
//! own reads ([`probe`]).

mod probe;
mod seat;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant as Clock};

use parda_api::{Limit, PatternWithoutVm};
use parda_block::DrainedVolume;
use parda_control::latency::Direction;
use parda_control::{Account, Bytes, Decision, Measurement, Span, VmPeriod, Window};
use parda_steer::cgroup::{Want, level};
use parda_steer::qemu::{QemuFlow, each, sockets};

use crate::config::{self, Qemu, Work};
use crate::enforcer::{Enforcer, describe};
use crate::latency::Latency;
use crate::status::{
    Detail, MeasuredBy, QemuStatus, SettingsFrom, SteerStatus, SteeredVmStatus, VolumeStatus,
};
use probe::{Probe, Reads};
use seat::{Held, Seat, Target, Vm};

/// Weight of a period in the mean latency by which a window becomes a rate.
const NEW: f64 = 0.3;

/// A volume whose VMs are held by QEMU's throttles.
pub(crate) struct Throttled {
    volume: String,
    qemu: Qemu,
    account: Account,
    /// QEMUs by their sockets.
    seats: BTreeMap<PathBuf, Seat>,
    probe: Option<Probe>,
    /// Mean latency of the array, in seconds.
    latency: Option<f64>,
    /// IOs since the start. The time of a disk's IOs is its own mean over a period. While the disk was held, the array's mean replaces it.
    done: SteerStatus,
    /// Names of the configuration that no QEMU has. `None` before the first look at them.
    unused: Option<Vec<PatternWithoutVm>>,
    /// Why the sockets cannot be found.
    fault: Option<String>,
    measured: Clock,
    /// Length of the last period.
    elapsed: Span,
}

impl Enforcer for Throttled {
    /// Reads the measurements of the disks of all QEMUs.
    fn measure(&mut self, _: Measurement) -> Option<Measurement> {
        let before = std::mem::replace(&mut self.measured, Clock::now());
        let elapsed: Span = self.measured.saturating_duration_since(before).into();
        self.elapsed = elapsed;
        self.look();
        let outstanding = self.count(elapsed.secs());
        let latency = self.latency.unwrap_or(0.0);
        let known = self.seats.values().filter_map(|seat| seat.vm.as_ref());
        let vms: Vec<VmPeriod> = known.map(|vm| vm.did(latency)).collect();
        Some(self.account.measure(elapsed, outstanding, vms, None))
    }

    /// Sets limits after a measurement. Else they follow with the next one.
    fn apply(&mut self, decision: &Decision) {
        if !self.account.apply(decision) {
            return;
        }
        let known = self.seats.values_mut().filter_map(|seat| seat.vm.as_mut());
        known.zip(self.account.grants()).for_each(|(vm, grant)| vm.grant = *grant);
        if let Some(new) = decision.room.latency.filter(|latency| *latency > 0.0) {
            self.latency = Some(self.latency.map_or(new, |old| old + NEW * (new - old)));
        }
        if decision.has_window() {
            self.set(decision.window, self.elapsed.secs());
        } else {
            self.release();
        }
    }

    fn want(&mut self, wanted: &config::Volume) {
        let Work::Qemu(Qemu { vms, .. }) = &wanted.work else { return };
        if self.qemu.vms != *vms {
            self.qemu.vms = vms.clone();
            self.unused = None;
            let volume = &self.volume;
            tracing::info!(volume, %vms, event = "shares_changed", "shares changed");
        }
    }

    fn state(
        &mut self,
        status: &mut VolumeStatus,
        _: &config::Volume,
        _: Detail,
    ) -> Vec<(String, u32)> {
        let known = self.seats.values().filter_map(|seat| seat.vm.as_ref());
        let vms: Vec<_> = known.map(|vm| (vm.name.clone(), vm.settings.shares().0)).collect();
        describe(self.status(), vms, status)
    }

    fn stop(mut self: Box<Self>, _: Duration) -> Option<DrainedVolume> {
        self.release();
        // Nothing is in flight here that would have to be answered.
        Some(DrainedVolume { unanswered: 0 })
    }
}

impl Throttled {
    fn status(&self) -> SteerStatus {
        let latency = self.latency.unwrap_or(0.0);
        let known =
            || self.seats.iter().filter_map(|(socket, seat)| Some((socket, seat.vm.as_ref()?)));
        let pending = known().map(|(_, vm)| vm.pending(latency)).sum::<f64>();
        let disks = || known().flat_map(|(_, vm)| vm.disks.values());
        let silent = || self.seats.values().filter_map(|seat| seat.fault.as_ref());
        let probe = self.probe.as_ref().and_then(|probe| probe.fault());
        let fault = probe.or(self.fault.clone()).or_else(|| silent().next().cloned());
        let qemu = QemuStatus {
            silent: silent().count(),
            disks: disks().count(),
            held: disks().filter(|disk| disk.is_limited()).count(),
        };
        let vm = |(socket, vm): (&PathBuf, &Vm)| SteeredVmStatus {
            name: vm.name.clone(),
            cgroup: socket.display().to_string(),
            settings_from: SettingsFrom::new(),
            settings: vm.settings,
            shares: vm.settings.shares().0,
            limited_by: match vm.is_at_most(latency) {
                true => Some(Limit::Configured),
                false => (vm.by_shares.is_some() && vm.disks.values().any(Held::is_limited))
                    .then_some(Limit::Slice),
            },
            bounds_of_others: None,
            held_by_others: false,
            ios: vm.ios,
            bytes: vm.bytes,
            pending: vm.pending(latency),
        };
        SteerStatus {
            device: self.qemu.sockets.display().to_string(),
            steered: Some("QEMU".to_owned()),
            fault,
            measured_by: Some(MeasuredBy::Qemu),
            cannot_go_lower: disks().any(|disk| disk.is_at_least()),
            pending,
            vms: known().map(vm).collect(),
            patterns_without_vm: self.unused.clone().unwrap_or_default(),
            qemu: Some(qemu),
            ..self.done.clone()
        }
    }

    /// Restores the previous limits of all QEMUs.
    fn release(&mut self) {
        let (volume, qemu) = (&self.volume, &self.qemu);
        each(self.seats.iter_mut().collect(), |(socket, seat)| seat.release(volume, socket, qemu));
    }

    pub(crate) fn start(volume: &str, qemu: &Qemu, decision: &Decision) -> io::Result<Throttled> {
        let probe = qemu.probe.clone().map(|place| Probe::start(volume, place));
        Ok(Throttled {
            volume: volume.to_owned(),
            qemu: qemu.clone(),
            account: Account::new(decision),
            seats: BTreeMap::new(),
            probe: probe.transpose()?,
            latency: None,
            unused: None,
            done: SteerStatus::default(),
            fault: None,
            measured: Clock::now(),
            elapsed: Span::ZERO,
        })
    }

    /// Takes over the list of QEMUs, and the measurements of their disks.
    fn look(&mut self) {
        match sockets(&self.qemu.sockets) {
            Ok(found) => {
                self.fault = None;
                self.seats.retain(|socket, seat| {
                    let stays = found.contains(socket);
                    if !stays {
                        seat.leave(&self.volume, socket);
                    }
                    stays
                });
                for socket in found {
                    self.seats.entry(socket).or_default();
                }
            }
            Err(error) => self.fault = Some(format!("{}: {error}", self.qemu.sockets.display())),
        }
        let acts = self.account.decision().has_window();
        let (volume, qemu) = (&self.volume, &self.qemu);
        each(self.seats.iter_mut().collect(), |(socket, seat)| {
            seat.look(volume, socket, qemu, acts);
        });
        self.look_for_unused();
    }

    /// Looks for names that no QEMU has. They are logged once: of a VM that goes later the log has that it went.
    fn look_for_unused(&mut self) {
        let names = self.seats.iter().filter_map(|(socket, seat)| {
            let stem = socket.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            Some([seat.vm.as_ref()?.name.clone(), stem])
        });
        let names: Vec<_> = names.collect();
        let unused = self.qemu.vms.unused(&names).map(|name| PatternWithoutVm {
            vm: name.to_owned(),
            cgroup: self.qemu.sockets.display().to_string(),
            why: "has no QEMU of that name".to_owned(),
        });
        let unused: Vec<_> = unused.collect();
        if self.unused.is_none() {
            for pattern in &unused {
                tracing::warn!(volume = self.volume, event = "pattern_without_vm", "{pattern}");
            }
        }
        self.unused = Some(unused);
    }

    /// Takes the IOs of the period into the law's measurements. Returns the mean of the IOs outstanding at the array.
    fn count(&mut self, seconds: f64) -> f64 {
        let Reads { ios, bytes, latency } =
            self.probe.as_ref().map(Probe::take).unwrap_or_default();
        self.account.record(Direction::Read, ios, Bytes(bytes), latency);
        let all = self.seats.values().flat_map(Seat::disks);
        let (free, held): (Vec<_>, Vec<_>) = all.partition(|disk| disk.is_free);
        let flows = |disks: &[&Held]| disks.iter().flat_map(|disk| disk.did()).collect::<Vec<_>>();
        let (free, held) = (flows(&free), flows(&held));
        let measured = free.iter().fold((ios, latency.secs()), |(n, sum), (_, flow)| {
            (n + flow.ios, sum + Span(flow.time).secs())
        });
        let mean = (measured.0 > 0).then(|| measured.1 / measured.0 as f64);
        // If no latency was measured now, the last one serves to estimate the outstanding IOs, and is no news.
        let usual = mean.or(self.latency).unwrap_or(0.0);
        let estimated = held.iter().map(|(direction, flow)| {
            (*direction, QemuFlow { time: Span::from_secs(usual * flow.ios as f64).0, ..*flow })
        });
        let mut sum = latency.secs();
        for (direction, flow) in free.iter().copied().chain(estimated) {
            sum += Span(flow.time).secs();
            if mean.is_some() {
                self.account.record(direction, flow.ios, Bytes(flow.bytes), Span(flow.time));
            }
            self.done.count(direction, flow.ios, flow.bytes, &self::mean(&flow));
        }
        if let Some(probe) = &self.probe {
            let (ios, bytes) = held.iter().fold((0, 0), |(n, b), (_, f)| (n + f.ios, b + f.bytes));
            // While no VM is held, the VMs' own IOs suffice as measurements.
            probe.read(bytes.checked_div(ios));
        }
        if seconds > 0.0 { sum / seconds } else { 0.0 }
    }

    /// Splits the window over the VMs and their disks, as limits on their rates (Little's law).
    fn set(&mut self, Window(window): Window, period: f64) {
        let Some(latency) = self.latency else { return };
        let known = || self.seats.values().filter_map(|seat| seat.vm.as_ref());
        let wants: Vec<Want> = known()
            .map(|vm| {
                let rate = (vm.pending(latency) / latency).min(vm.most());
                Want { shares: vm.grant.shares, rate }
            })
            .collect();
        let level = level(&wants, window / latency);
        for vm in self.seats.values_mut().filter_map(|seat| seat.vm.as_mut()) {
            vm.by_shares = level.map(|level| level * vm.grant.shares);
        }
        let targets = |seat: &Seat| match &seat.vm {
            Some(vm) if vm.by_shares.is_some() || vm.most().is_finite() => {
                vm.targets(vm.by_shares.unwrap_or(f64::INFINITY), latency, period)
            }
            Some(vm) => vm.disks.keys().map(|id| (id.clone(), Target::default())).collect(),
            None => Vec::new(),
        };
        let all = self.seats.iter_mut().map(|(socket, seat)| (socket, targets(seat), seat));
        let volume = &self.volume;
        each(all.collect(), |(socket, targets, seat)| seat.set(volume, socket, targets));
    }
}

/// Mean time of IOs, in a bucket of an eighth.
fn mean(flow: &QemuFlow) -> Latency {
    let mean = flow.time.checked_div(flow.ios).unwrap_or(0);
    let fine = mean.checked_ilog2().unwrap_or(0).saturating_sub(4);
    Latency { buckets: vec![(mean >> fine << fine, flow.ios)] }
}
