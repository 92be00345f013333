//! The law of a volume with its enforcer. This state outlives the ring, which may be started again. The state also outlives the control
//! thread, which a change of the exchange replaces.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use parda_block::DrainedVolume;
use parda_config::tenants;
use parda_control::law::Mode;
use parda_control::{Costs, Measurement, Period, Report, Span, TenantPart, Totals, View};

use crate::config::{self, Work};
use crate::enforcer::{Between, Enforcer};
use crate::last_tick::LastTick;
use crate::locked::locked;
use crate::outlook::OutlookStatus;
use crate::outsider;
use crate::served::{Served, Shared, tenant};
use crate::settings::SettingsStatus;
use crate::start_error::{StartError, no_thread};
use crate::status::exchange::compare;
use crate::status::{Detail, ObjectiveStatus, VolumeStatus};
use crate::steered::Steered;
use crate::threshold::ThresholdStatus;
use crate::throttled::Throttled;

/// Reports of the other hosts: their totals, and the part of each in its tenants.
pub(crate) type Heard = (Totals, Vec<TenantPart>);

/// Record that a host publishes: its report, and its parts in tenants.
pub(crate) type Said = (Report, Vec<TenantPart>);

/// See the module's documentation. The control thread ticks it, the main thread changes it, the status thread asks it.
pub(crate) struct Law(Mutex<State>);

struct State {
    period: Period,
    enforcer: Box<dyn Enforcer>,
    /// Memory of the last measurement.
    measured: Measurement,
}

impl State {
    /// Hands the law's decision to the enforcer.
    fn apply(&mut self) {
        self.enforcer.apply(self.period.decision());
    }
}

impl Law {
    /// `settled` is called when all that the volume is to serve was tried once.
    pub(crate) fn start(
        config: &config::Volume,
        shared: &Shared,
        settled: impl FnOnce() + Send + 'static,
    ) -> Result<Law, StartError> {
        let (period, enforcer) = start(config, shared, settled)?;
        Ok(Law(Mutex::new(State { period, enforcer, measured: Measurement::default() })))
    }

    /// Ends a period. `heard`: the reports of the other hosts; `None` if the exchange is silent. `None` while there is nothing to govern.
    pub(crate) fn tick(&self, heard: Option<Heard>) -> Option<Said> {
        let state = &mut *locked(&self.0);
        let mut measured = state.enforcer.measure(std::mem::take(&mut state.measured))?;
        let (totals, tenants) = heard.unzip();
        let view = totals.map_or(View::Silent, View::Peers);
        let report = state.period.tick(&mut measured, view, tenants);
        state.apply();
        state.measured = measured;
        Some((report, state.period.tenant_parts().collect()))
    }

    /// Performs the work that is due between two ticks. Returns the time until something is due again before the next tick, if anything is.
    pub(crate) fn between_ticks(&self) -> Option<Span> {
        let state = &mut *locked(&self.0);
        loop {
            match state.enforcer.between_ticks() {
                Between::Nothing => return None,
                Between::Wait(time) => return Some(time),
                Between::Full(window) => {
                    state.period.lower_to(window);
                    state.apply();
                }
            }
        }
    }

    /// Takes over the settings that may change while it runs. `before`: the configuration in force.
    pub(crate) fn reload(&self, before: &config::Volume, new: &config::Volume) {
        let volume = &before.name;
        let state = &mut *locked(&self.0);
        if new.law != before.law {
            match state.period.set_config(new.law.clone()) {
                Ok(()) => {
                    state.apply();
                    let changes = new.law_changes(before);
                    tracing::info!(volume, event = "control_changed", "control changed: {changes}");
                }
                Err(error) => tracing::error!(volume, "control not changed: {error}"),
            }
        }
        if new.tenants != before.tenants {
            state.period.set_tenants(&tenants(&new.tenants));
            state.apply();
            tracing::info!(volume, event = "tenants_changed", "tenants changed");
        }
        state.enforcer.want(new);
    }

    /// State of the volume, as the status and the API show it.
    pub(crate) fn status(
        &self,
        config: &config::Volume,
        last: LastTick,
        detail: Detail,
    ) -> VolumeStatus {
        let state = &mut *locked(&self.0);
        let mut status = base(config, last);
        let vms = state.enforcer.state(&mut status, config, detail);
        let (period, governor) = (&state.period, state.period.governor());
        let tenants = config.tenants.iter().zip(period.tenants());
        status.tenants = tenants.map(|(settings, state)| tenant(settings, &state)).collect();
        status.cluster_latency_ms = governor.latency().map(|l| l * 1e3);
        status.window = Some(governor.window().0).filter(|w| w.is_finite());
        status.outlook = governor.outlook().and_then(|o| OutlookStatus::new(o, &vms));
        status.threshold =
            governor.estimate().map(|e| ThresholdStatus::new(&e, config.probed.as_ref()));
        status.latency_threshold_ms = governor.threshold().secs() * 1e3;
        let peers = status.exchange.as_ref().map_or(&[][..], |exchange| &exchange.peers);
        let cost = governor.objective_price();
        status.objective = cost.map(|cost| ObjectiveStatus::new(&cost, &status.disks, peers));
        let settings = governor.settings();
        status.settings =
            status.settings.take().map(|shown| SettingsStatus::new(settings, shown.differ));
        status
    }

    /// Number of IOs that were done or are under way: [`Enforcer::served`].
    pub(crate) fn served(&self) -> Option<u64> {
        locked(&self.0).enforcer.served()
    }

    /// Ends the enforcer. `None` if it was not running any more.
    pub(crate) fn stop(self, within: Duration) -> Option<DrainedVolume> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner).enforcer.stop(within)
    }
}

/// The enforcer of a volume's work, with the law that it is under. `settled` is called when all that it is to serve was tried once.
fn start(
    config: &config::Volume,
    shared: &Shared,
    settled: impl FnOnce() + Send + 'static,
) -> Result<(Period, Box<dyn Enforcer>), StartError> {
    // A queue of others can count nothing else.
    let law = if config.is_served() { Period::new } else { Period::counting_ios };
    let mut period = law(config.law.clone())?;
    period.set_tenants(&tenants(&config.tenants));
    let decision = period.decision();
    let enforcer: Box<dyn Enforcer> = match &config.work {
        Work::Serve(_) => {
            let served = Served::start(config, decision, shared, settled)?;
            return Ok((period, Box::new(served)));
        }
        Work::Steer(steer) => Box::new(Steered::start(&config.name, steer, decision)?),
        Work::Qemu(qemu) => {
            Box::new(Throttled::start(&config.name, qemu, decision).map_err(no_thread)?)
        }
    };
    settled();
    Ok((period, enforcer))
}

/// Fields of the status that need no enforcer.
pub(crate) fn base(config: &config::Volume, last: LastTick) -> VolumeStatus {
    let LastTick { ticks, report, mut own, mut exchange, differ } = last;
    compare(own.iter_mut().chain(exchange.iter_mut().flat_map(|exchange| &mut exchange.peers)));
    let law = &config.law.law;
    // A configured number is in force at once; an automatic one is that of the last tick.
    let found = report.filter(|_| config.law.auto.is_some());
    let threshold = found.map_or(law.threshold, |report| report.threshold);
    let follows = matches!(law.mode, Mode::Parda | Mode::Published { .. });
    VolumeStatus {
        name: config.name.clone(),
        pool: config.pool.as_ref().map(|pool| pool.name.clone()),
        mode: law.mode.name(),
        latency_threshold_ms: threshold.secs() * 1e3,
        outsider: report.and_then(|report| outsider::status(&report.finding)),
        threshold_cost: report.and_then(|report| outsider::cost(&report.finding)),
        settings: Some(SettingsStatus::new(config.law.settings(), differ)),
        source: report.map(|r| r.source).unwrap_or_default(),
        window_max: (follows && config.law.costs.is_none_or(|costs| costs == Costs::IOPS))
            .then_some(law.window_max.0),
        beta: report.map_or(0.0, |r| r.beta),
        shares: report.map_or(0, |r| r.shares.0),
        active_shares: report.map_or(0.0, |r| r.active),
        outstanding: report.map_or(0.0, |r| r.outstanding),
        ticks,
        own,
        exchange,
        ..VolumeStatus::default()
    }
}
