//! A volume whose device is steered: VMs open it directly, and the law's window becomes the depth of
//! the kernel's queue. The law is that of the ring ([`KernelHost`]); its measurements are made here, and its
//! depths set here.

mod attached;
pub(crate) mod describe;
mod done;
mod vms;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant as Clock;

use parda_block::{Drained, Heard, Said};
use parda_config::tenants;
use parda_control::{Bytes, Config, Instant, KernelHost, QueueMeans, Report, Span, View};
use parda_steer::cgroup::Allowance;
use parda_steer::measure::Reading;

use crate::config::{self, Steer, Work};
use crate::status::VolumeStatus;
use attached::{Attached, Look};
use done::Done;
use vms::HostVms;

pub use attached::SteerError;

/// Looks whether a device can be steered as asked. Changes nothing and measures nothing, for which an agent may need rights.
pub(crate) fn examine(control: Config, period: Span, asked: &Steer) -> Result<(), SteerError> {
    let sets = KernelHost::new(control, period)?.sets_depths();
    attached::examine(asked, sets)
}

/// Takes over another law and other tenants while it runs.
pub(crate) fn reload_law(
    host: &mut KernelHost,
    in_force: &mut config::Volume,
    new: &config::Volume,
) {
    if new.tenants != in_force.tenants {
        host.set_tenants(&tenants(&new.tenants));
        in_force.tenants.clone_from(&new.tenants);
        tracing::info!(volume = in_force.name, event = "tenants_changed", "tenants changed");
    }
    if new.law == in_force.law {
        return;
    }
    match host.set_config(new.law.control.clone(), new.law.period.into()) {
        Ok(()) => {
            let changes = new.law_changes(in_force);
            tracing::info!(
                volume = in_force.name,
                event = "control_changed",
                "control changed: {changes}"
            );
            (in_force.control, in_force.law) = (new.control.clone(), new.law.clone());
            in_force.probed = new.probed.clone();
        }
        Err(error) => tracing::error!(volume = in_force.name, "control not changed: {error}"),
    }
}

/// A volume whose device's queue depth is set by the law.
pub(crate) struct Steered(Mutex<State>);

struct State {
    volume: String,
    steer: Steer,
    host: KernelHost,
    /// The device; none while it is gone.
    device: Option<Attached>,
    vms: HostVms,
    done: Done,
    /// Fault of the device or its meter, if there is one now.
    fault: Option<String>,
    ticked: Clock,
}

impl Steered {
    /// Takes hold of the device and begins to measure it.
    pub(crate) fn start(config: &config::Volume, steer: &Steer) -> Result<Steered, SteerError> {
        let control = &config.law.control;
        let mut host = KernelHost::new(control.clone(), config.law.period.into())?;
        host.set_tenants(&tenants(&config.tenants));
        let device = Attached::start(&config.name, steer, host.sets_depths())?;
        Ok(Steered(Mutex::new(State {
            volume: config.name.clone(),
            steer: steer.clone(),
            host,
            device: Some(device),
            vms: HostVms::start(&config.name, &steer.vms),
            done: Done::default(),
            fault: None,
            ticked: Clock::now(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a period: measures the device, ticks the law, sets the depth.
    pub(crate) fn tick(&self, now: Instant, heard: Option<Heard>) -> Said {
        let mut state = self.state();
        let (totals, tenants) = heard.unzip();
        state.host.hear_tenants(tenants);
        let report = state.tick(now, totals.map_or(View::Silent, View::Peers));
        (report, state.host.tenant_parts().collect())
    }

    /// Sets another depth if one is due. Returns when the next one is due before the next tick, if one is.
    pub(crate) fn between_ticks(&self, now: Instant) -> Option<Instant> {
        self.state().between_ticks(now)
    }

    /// The law and the shares may change while it runs.
    pub(crate) fn reload(&self, in_force: &mut config::Volume, new: &config::Volume) {
        let mut state = self.state();
        let Work::Steer(wanted) = &new.work else { return };
        reload_law(&mut state.host, in_force, new);
        let Work::Steer(steer) = &mut in_force.work else { return };
        if wanted.vms != steer.vms {
            tracing::info!(
                volume = in_force.name, vms = %wanted.vms, event = "shares_changed",
                "shares changed"
            );
            steer.vms = wanted.vms.clone();
            state.steer.vms = wanted.vms.clone();
            state.vms.change(&in_force.name, &wanted.vms);
        }
    }

    pub(crate) fn describe(&self, status: &mut VolumeStatus, config: &config::Volume) {
        self.state().describe(status, config);
    }

    /// Puts back what was there before. Nothing is in flight here that would have to be answered.
    pub(crate) fn stop(self) -> Option<Drained> {
        let state = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        state.vms.stop(&state.volume);
        if let Some(device) = state.device {
            device.stop(&state.volume);
        }
        Some(Drained { unanswered: 0 })
    }
}

impl State {
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

    /// Splits the window over the VMs. `latency`: of the device, in the period that ended.
    fn share(&mut self, latency: Span) {
        let window = self.host.governor().window();
        let allowed = self.device.as_ref().and_then(|device| {
            let least = device.bounds()?.least;
            Some((device.device(), Allowance { window, latency, least }))
        });
        self.vms.set(&self.volume, &self.steer, allowed);
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
        for class in &reading.classes {
            self.host.record(class.direction, class.ios, Bytes(class.bytes), class.latency);
        }
        self.done.add(reading);
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

    fn between_ticks(&mut self, now: Instant) -> Option<Instant> {
        if self.host.change_is_due(now) {
            // First, as what the kernel lowered by itself would not be seen any more.
            self.check(Attached::check_knobs);
            self.set(now);
        }
        self.host.next_change()
    }

    /// The device is gone, or does not let us. It is looked for again at each tick.
    fn lose(&mut self, error: &SteerError) {
        self.device = None;
        self.vms.set(&self.volume, &self.steer, None);
        self.say(error);
    }

    /// Says once what is wrong, not once per period.
    fn say(&mut self, error: &SteerError) {
        let fault = error.to_string();
        if self.fault.as_ref() != Some(&fault) {
            tracing::error!(
                volume = self.volume,
                event = "device_lost",
                "{fault}; nothing is set until it works again, IO goes on"
            );
            self.fault = Some(fault);
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
