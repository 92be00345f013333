//! A volume whose device is steered: VMs open it directly, and the law's window becomes the depth of
//! the kernel's queue. The law is that of the ring ([`KernelHost`]); its measurements are made here, and its
//! depths set here.

mod attached;
mod missed;
mod vms;

use std::path::Path;
use std::time::Instant as Clock;

use parda_control::latency::Direction;
use parda_control::{Bytes, Config, Instant, KernelHost, QueueMeans, Report, Span, View};
use parda_steer::cgroup::Allowance;
use parda_steer::device::Device;
use parda_steer::measure::{Histogram, Method, Reading};
use parda_steer::show::show;

use crate::config::{Steer, Work};
use crate::latency::Latency;
use crate::news::is_news;
use crate::outside::Outside;
use crate::status::{MeasuredBy, SteerStatus};
use attached::{Attached, Look};
use vms::HostVms;

pub(crate) use attached::SteerError;

/// Looks whether a device can be steered as asked. Changes nothing and measures nothing, for which an agent may need rights. Returns notes
/// on its VMs.
pub(crate) fn examine(control: Config, asked: &Steer) -> Result<Vec<String>, SteerError> {
    let sets = KernelHost::new(control)?.sets_depths();
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
    host: KernelHost,
    /// The device; none while it is gone.
    device: Option<Attached>,
    vms: HostVms,
    /// IOs since the start, and how the device was measured last.
    done: SteerStatus,
    /// Fault of the device or its meter, if there is one now.
    fault: Option<String>,
    ticked: Clock,
}

impl Outside for Steered {
    fn host(&mut self) -> &mut KernelHost {
        &mut self.host
    }

    /// Measures the device, ticks the law, sets the depth.
    fn tick(&mut self, now: Instant, view: View) -> Report {
        let before = std::mem::replace(&mut self.ticked, Clock::now());
        if self.device.is_none() {
            self.take_again();
        }
        let look = self.look();
        let elapsed = self.ticked.saturating_duration_since(before).into();
        let (elapsed, outstanding) = match &look {
            Some(Look { reading, .. }) => {
                self.count(reading);
                (reading.elapsed, reading.outstanding)
            }
            None => (elapsed, 0.0),
        };
        let reading = look.as_ref().map(|look| &look.reading);
        let vms = self.vms.did(&self.volume, look.as_ref(), &self.host);
        let report = self.host.tick(QueueMeans { elapsed, outstanding, vms: &vms }, view);
        self.vms.grant(self.host.grants());
        self.set(now);
        self.share(reading.map_or(Span::ZERO, vms::latency));
        report
    }

    /// Sets another depth if one is due.
    fn between_ticks(&mut self, now: Instant) -> Option<Instant> {
        if self.host.change_is_due(now) {
            // First, as what the kernel lowered by itself would not be seen any more.
            self.check(Attached::check_knobs);
            self.set(now);
        }
        self.host.next_change()
    }

    fn set_vms(&mut self, wanted: &Work) -> Option<String> {
        let Work::Steer(Steer { vms, .. }) = wanted else { return None };
        (self.steer.vms != *vms).then(|| {
            self.steer.vms = vms.clone();
            self.vms.change(&self.volume, vms);
            vms.to_string()
        })
    }

    fn vms(&self) -> Vec<(String, u32)> {
        self.vms.names()
    }

    fn status(&self) -> SteerStatus {
        let device = self.device.as_ref();
        let bounds = device.and_then(|d| d.bounds());
        let in_force = device.and_then(|d| d.in_force());
        let window = self.host.governor().window();
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

    fn stop(&mut self) {
        self.vms.stop(&self.volume);
        if let Some(device) = self.device.take() {
            device.stop(&self.volume);
        }
    }
}

impl Steered {
    /// Takes hold of the device and begins to measure it.
    pub(crate) fn start(
        volume: &str,
        steer: &Steer,
        host: KernelHost,
    ) -> Result<Steered, SteerError> {
        let device = Attached::start(volume, steer, host.sets_depths())?;
        Ok(Steered {
            volume: volume.to_owned(),
            steer: steer.clone(),
            host,
            device: Some(device),
            vms: HostVms::start(volume, &steer.vms),
            done: SteerStatus::default(),
            fault: None,
            ticked: Clock::now(),
        })
    }

    /// Splits the window over the VMs. `latency`: of the device, in the period that ended.
    fn share(&mut self, latency: Span) {
        let window = self.host.governor().window();
        let device = self.device.as_ref();
        let bounds = device.and_then(Attached::bounds);
        let allowed = bounds.map(|bounds| Allowance { window, latency, least: bounds.least });
        self.vms.set(&self.volume, &self.steer, device.map(|device| &device.device), allowed);
    }

    /// What the device did since the last look; nothing if it is gone.
    fn look(&mut self) -> Option<Look> {
        self.check(Attached::check);
        let looked = self.device.as_mut()?.look();
        looked.map_err(|error| self.lose(&error)).ok()
    }

    /// Looks whether all is as it was set.
    fn check(&mut self, look: fn(&mut Attached, &str) -> Result<Option<u32>, SteerError>) {
        let Some(device) = &mut self.device else { return };
        match look(device, &self.volume) {
            Ok(None) => {}
            // The array said that it is full.
            Ok(Some(depth)) => self.host.lowered(depth),
            Err(error) => self.lose(&error),
        }
    }

    fn count(&mut self, reading: &Reading) {
        let done = &mut self.done;
        for class in &reading.classes {
            self.host.record(class.direction, class.ios, Bytes(class.bytes), class.latency);
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
    fn set(&mut self, now: Instant) {
        let Some(device) = &mut self.device else { return self.host.pause(now) };
        match device.set(now, &mut self.host) {
            Ok(()) => self.fault = None,
            Err(error) => {
                self.lose(&error);
                self.host.pause(now);
            }
        }
    }

    /// The device is gone, or does not let us. It is looked for again at each tick.
    fn lose(&mut self, error: &SteerError) {
        self.device = None;
        self.vms.set(&self.volume, &self.steer, None, None);
        self.say(error);
    }

    /// Says once what is wrong, not once per period.
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
        match Attached::start(&self.volume, &self.steer, self.host.sets_depths()) {
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
