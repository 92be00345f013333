//! A volume whose device is steered: VMs open it directly, and the law's window becomes the depth of
//! the kernel's queue. Measurements for the law are made here ([`Account`]), and its depths set here.

mod attached;
mod missed;
mod vms;

use std::path::Path;
use std::time::{Duration, Instant as Clock};

use parda_block::DrainedVolume;
use parda_control::depth::DepthSchedule;
use parda_control::latency::Direction;
use parda_control::{Account, Bytes, Config, Decision, Instant, Measurement, Period, Span, Window};
use parda_steer::cgroup::HostAllowance;
use parda_steer::device::Device;
use parda_steer::measure::{DeviceReading, Histogram, Method};
use parda_steer::show::show;

use crate::config::{self, Steer, Work};
use crate::enforcer::{Between, Enforcer, describe};
use crate::latency::Latency;
use crate::news::is_news;
use crate::status::{Detail, MeasuredBy, SteerStatus, VolumeStatus};
use attached::{Attached, Look};
use vms::HostVms;

pub(crate) use attached::SteerError;

/// Looks whether a device can be steered as asked. Changes nothing and measures nothing, for which an agent may need rights. Returns notes
/// on its VMs.
pub(crate) fn examine(control: Config, asked: &Steer) -> Result<Vec<String>, SteerError> {
    let sets = Period::counting_ios(control)?.decision().has_window();
    let device = Device::resolve(Path::new("/"), &asked.device)?;
    if sets {
        show(&device, asked.method, &[])?;
    }
    Ok(vms::examine(&asked.vms, device.number))
}

/// A volume whose device's queue depth is set by the law.
pub(crate) struct Steered {
    volume: String,
    steer: Steer,
    account: Account,
    schedule: DepthSchedule,
    /// The device; none while it is gone.
    device: Option<Attached>,
    vms: HostVms,
    /// IOs since the start, and how the device was measured last.
    done: SteerStatus,
    /// Fault of the device or its meter, if there is one now.
    fault: Option<String>,
    started: Clock,
    measured: Clock,
    /// Mean latency of the device in the last period.
    latency: Span,
}

impl Enforcer for Steered {
    fn measure(&mut self, _: Measurement) -> Option<Measurement> {
        let before = std::mem::replace(&mut self.measured, Clock::now());
        if self.device.is_none() {
            self.take_again();
        }
        let full = self.check(Attached::check);
        let look = self.look();
        let elapsed = self.measured.saturating_duration_since(before).into();
        let (elapsed, outstanding) = match &look {
            Some(Look { reading, .. }) => {
                self.count(reading);
                (reading.elapsed, reading.outstanding)
            }
            None => (elapsed, 0.0),
        };
        self.latency = look.as_ref().map_or(Span::ZERO, |look| vms::latency(&look.reading));
        let vms = self.vms.did(&self.volume, look.as_ref(), self.account.decision());
        Some(self.account.measure(elapsed, outstanding, vms, full))
    }

    /// Sets the depth after a measurement. Else it follows with its next change.
    fn apply(&mut self, decision: &Decision) {
        self.schedule.set_period(decision.period);
        if self.account.apply(decision) {
            self.vms.grant(self.account.grants());
            self.set();
            self.share();
        }
    }

    /// Sets another depth if one is due.
    fn between_ticks(&mut self) -> Between {
        if self.schedule.is_due(self.now()) {
            // This look is first, as a depth lowered by the kernel would not be visible afterwards.
            if let Some(full) = self.check(Attached::check_knobs) {
                return Between::Full(full);
            }
            self.set();
        }
        let wait = |next: Instant| Between::Wait(next.since(self.now()));
        self.schedule.next().map_or(Between::Nothing, wait)
    }

    fn want(&mut self, wanted: &config::Volume) {
        let Work::Steer(Steer { vms, .. }) = &wanted.work else { return };
        if self.steer.vms != *vms {
            self.steer.vms = vms.clone();
            self.vms.change(&self.volume, vms);
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
        describe(self.status(), self.vms.names(), status)
    }

    fn stop(mut self: Box<Self>, _: Duration) -> Option<DrainedVolume> {
        self.vms.stop(&self.volume);
        if let Some(device) = self.device.take() {
            device.stop(&self.volume);
        }
        // Nothing is in flight here that would have to be answered.
        Some(DrainedVolume { unanswered: 0 })
    }
}

impl Steered {
    fn status(&self) -> SteerStatus {
        let device = self.device.as_ref();
        let bounds = device.and_then(|d| d.bounds());
        let in_force = device.and_then(|d| d.in_force());
        let window = self.account.decision().window;
        let missed = self.vms.missed();
        SteerStatus {
            device: self.steer.device.display().to_string(),
            steered: device.map(|d| d.device.name.clone()),
            fault: self.fault.clone().or_else(|| self.vms.fault.clone()),
            vms_share_by: self.vms.means(),
            why_not_ebpf: device.and_then(|d| d.meter.because()).map(str::to_owned),
            depth: in_force.as_ref().map(|f| f.depth),
            least: bounds.map(|b| b.least),
            most: bounds.map(|b| b.most),
            cannot_go_lower: device.is_some_and(|d| d.cannot_hold(window))
                && !self.vms.hold_below_least(),
            drops: device.map_or(0, |d| d.drops),
            paths: in_force.map_or(Vec::new(), |f| f.paths.clone()),
            vms: self.vms.status(&self.steer),
            patterns_without_vm: missed.map_or_else(Vec::new, |missed| missed.patterns.clone()),
            vms_without_pattern: missed.map_or_else(Vec::new, |missed| missed.vms.clone()),
            ..self.done.clone()
        }
    }

    /// Takes hold of the device and begins to measure it.
    pub(crate) fn start(
        volume: &str,
        steer: &Steer,
        decision: &Decision,
    ) -> Result<Steered, SteerError> {
        let device = Attached::start(volume, steer, decision.has_window())?;
        let now = Clock::now();
        Ok(Steered {
            volume: volume.to_owned(),
            steer: steer.clone(),
            account: Account::new(decision),
            schedule: DepthSchedule::new(decision.period),
            device: Some(device),
            vms: HostVms::start(volume, &steer.vms),
            done: SteerStatus::default(),
            fault: None,
            started: now,
            measured: now,
            latency: Span::ZERO,
        })
    }

    fn now(&self) -> Instant {
        Instant(0) + self.started.elapsed().into()
    }

    /// Splits the window over the VMs.
    fn share(&mut self) {
        let (window, latency) = (self.account.decision().window, self.latency);
        let device = self.device.as_ref();
        let bounds = device.and_then(Attached::bounds);
        let allowed = bounds.map(|bounds| HostAllowance { window, latency, least: bounds.least });
        self.vms.set(&self.volume, &self.steer, device.map(|device| &device.device), allowed);
    }

    /// Activity of the device since the last look; `None` if the device is gone.
    fn look(&mut self) -> Option<Look> {
        let looked = self.device.as_mut()?.look();
        looked.map_err(|error| self.lose(&error)).ok()
    }

    /// Checks that all settings are as they were set. Returns the depth to which the kernel lowered it, if the array reported that it is
    /// full.
    fn check(
        &mut self,
        look: fn(&mut Attached, &str) -> Result<Option<u32>, SteerError>,
    ) -> Option<Window> {
        let looked = look(self.device.as_mut()?, &self.volume);
        let lowered = looked.map_err(|error| self.lose(&error)).ok()?;
        lowered.map(|depth| Window(f64::from(depth)))
    }

    fn count(&mut self, reading: &DeviceReading) {
        let done = &mut self.done;
        for class in &reading.classes {
            self.account.record(class.direction, class.ios, Bytes(class.bytes), class.latency);
            done.count(class.direction, class.ios, class.bytes, &Latency::default());
        }
        done.count(Direction::Read, 0, 0, &latency(&reading.reads));
        done.count(Direction::Write, 0, 0, &latency(&reading.writes));
        done.requeues += reading.requeues;
        done.pending = reading.pending;
        (done.measured_by, done.latency_error) = match reading.method {
            Method::Ebpf => (Some(MeasuredBy::Ebpf), None),
            Method::Little { error } => (Some(MeasuredBy::Little), Some(error)),
        };
    }

    /// Sets the next depth that the window asks for.
    fn set(&mut self) {
        let now = self.now();
        let set =
            (self.device.as_mut()).map(|device| device.set(now, &mut self.schedule, &self.account));
        match set {
            Some(Ok(())) => return self.fault = None,
            Some(Err(error)) => self.lose(&error),
            None => {}
        }
        // There is no queue to set a depth at.
        self.schedule.changed(now, false);
    }

    /// The device is gone, or does not let us. Each tick looks for the device again.
    fn lose(&mut self, error: &SteerError) {
        self.device = None;
        self.vms.set(&self.volume, &self.steer, None, None);
        self.say(error);
    }

    /// Logs a fault once, not once per period.
    fn say(&mut self, error: &SteerError) {
        let fault = error.to_string();
        if is_news(&mut self.fault, &fault) {
            tracing::error!(
                volume = self.volume,
                event = "device_lost",
                "{fault}; nothing is set until it works again, IO goes on"
            );
        }
    }

    fn take_again(&mut self) {
        match Attached::start(&self.volume, &self.steer, self.account.decision().has_window()) {
            Ok(device) => {
                self.device = Some(device);
                tracing::info!(
                    volume = self.volume,
                    event = "device_back",
                    "the device is there again"
                );
            }
            Err(error) => self.say(&error),
        }
    }
}

/// As it travels: each bucket by its middle.
fn latency(histogram: &Histogram) -> Latency {
    Latency { buckets: histogram.buckets().map(|(middle, ios)| (middle.0, ios)).collect() }
}
