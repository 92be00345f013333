//! Enforcement of a volume's window: in our own ring, in the kernel's queue, or by QEMU's throttles.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use parda_block::{Drained, Heard, Said};
use parda_config::tenants;
use parda_control::law::Mode;
use parda_control::{Config, ConfigError, Costs, Instant, KernelHost, Tenant, TenantId, View};

use crate::config::{self, Work};
use crate::last_tick::LastTick;
use crate::locked::locked;
use crate::outlook::OutlookStatus;
use crate::outside::Outside;
use crate::outsider;
use crate::served::{Served, Shared, tenant};
use crate::settings::SettingsStatus;
use crate::start_error::{StartError, no_thread};
use crate::status::exchange::compare;
use crate::status::{Detail, ObjectiveStatus, VolumeStatus};
use crate::steered::Steered;
use crate::threshold::ThresholdStatus;
use crate::throttled::Throttled;

/// A volume's enforcer. The control thread ticks it; the main thread changes it; the status thread
/// asks it.
pub(crate) enum Enforcer {
    /// Disks that are served over NBD.
    Ring(Served),
    /// A device that VMs open directly, or disks that QEMUs open themselves.
    Outside(Mutex<Box<dyn Outside>>),
}

impl Enforcer {
    /// `settled` is called when all that it is to serve was tried once.
    pub(crate) fn start(
        config: &config::Volume,
        shared: &Shared,
        settled: impl FnOnce() + Send + 'static,
    ) -> Result<Enforcer, StartError> {
        let host = || -> Result<_, StartError> {
            let mut host = KernelHost::new(config.law.clone())?;
            host.set_tenants(&tenants(&config.tenants));
            Ok(host)
        };
        let outside: Box<dyn Outside> = match &config.work {
            Work::Serve(_) => {
                return Ok(Enforcer::Ring(Served::start(config, shared, settled)?));
            }
            Work::Steer(steer) => Box::new(Steered::start(&config.name, steer, host()?)?),
            Work::Qemu(qemu) => {
                let throttled = Throttled::start(&config.name, qemu, host()?);
                Box::new(throttled.map_err(no_thread)?)
            }
        };
        settled();
        Ok(Enforcer::Outside(Mutex::new(outside)))
    }

    /// Ends a period, at `now`. `heard`: what the other hosts said; `None` if the exchange is silent. `None`
    /// while there is no ring.
    pub(crate) fn tick(&self, now: Instant, heard: Option<Heard>) -> Option<Said> {
        match self {
            Enforcer::Ring(served) => served.board.ring()?.tick(heard).ok(),
            Enforcer::Outside(outside) => {
                let mut outside = locked(outside);
                let (totals, tenants) = heard.unzip();
                outside.host().hear_tenants(tenants);
                let report = outside.tick(now, totals.map_or(View::Silent, View::Peers));
                Some((report, outside.host().tenant_parts().collect()))
            }
        }
    }

    /// Does what is due between two ticks. Returns when something is due again before the next tick, if anything is.
    pub(crate) fn between_ticks(&self, now: Instant) -> Option<Instant> {
        match self {
            Enforcer::Ring(_) => None,
            Enforcer::Outside(outside) => locked(outside).between_ticks(now),
        }
    }

    /// Takes over what may change while it runs. `before`: what is in force.
    pub(crate) fn reload(&self, before: &config::Volume, new: &config::Volume) {
        let volume = &before.name;
        if new.law != before.law {
            match self.set_law(new.law.clone()) {
                Some(Ok(())) => {
                    let changes = new.law_changes(before);
                    tracing::info!(volume, event = "control_changed", "control changed: {changes}");
                }
                Some(Err(error)) => tracing::error!(volume, "control not changed: {error}"),
                // A ring takes it when it is started again.
                None => tracing::info!(volume, "control changes later"),
            }
        }
        if new.tenants != before.tenants && self.set_tenants(tenants(&new.tenants)) {
            tracing::info!(volume, event = "tenants_changed", "tenants changed");
        }
        match self {
            Enforcer::Ring(served) => served.want(new),
            Enforcer::Outside(outside) => {
                if let Some(vms) = locked(outside).set_vms(&new.work) {
                    tracing::info!(volume, %vms, event = "shares_changed", "shares changed");
                }
            }
        }
    }

    /// Ticks by another law from now on. `None` while there is no ring.
    fn set_law(&self, law: Config) -> Option<Result<(), ConfigError>> {
        match self {
            Enforcer::Ring(served) => Some(served.board.ring()?.set_control(law).ok()?.map(drop)),
            Enforcer::Outside(outside) => Some(locked(outside).host().set_config(law)),
        }
    }

    /// Has other tenants from now on. False while there is no ring, which takes them when it is started again.
    fn set_tenants(&self, tenants: Vec<(TenantId, Tenant)>) -> bool {
        match self {
            Enforcer::Ring(served) => {
                served.board.ring().map(|ring| ring.set_tenants(tenants)).is_some()
            }
            Enforcer::Outside(outside) => {
                locked(outside).host().set_tenants(&tenants);
                true
            }
        }
    }

    /// State of the volume, as the status and the API show it.
    pub(crate) fn status(
        &self,
        config: &config::Volume,
        last: LastTick,
        detail: Detail,
    ) -> VolumeStatus {
        let mut status = base(config, last);
        match self {
            Enforcer::Ring(served) => served.board.describe(&mut status, config, detail),
            Enforcer::Outside(outside) => describe(&mut **locked(outside), &mut status, config),
        }
        status
    }

    /// How many IOs were done or are under way, if this host serves them. `None` once it has ended.
    pub(crate) fn served(&self) -> Option<u64> {
        let Enforcer::Ring(served) = self else { return None };
        let stats = served.board.ring()?.stats().ok()?;
        let total = stats.total();
        let done = total.reads.ios + total.writes.ios + total.others.ios + total.errors;
        Some(done + (stats.outstanding + stats.held) as u64)
    }

    /// Ends it. `None` if it was not running any more.
    pub(crate) fn stop(self, within: Duration) -> Option<Drained> {
        match self {
            Enforcer::Ring(served) => served.stop(within),
            Enforcer::Outside(outside) => {
                outside.into_inner().unwrap_or_else(PoisonError::into_inner).stop();
                // Nothing is in flight here that would have to be answered.
                Some(Drained { unanswered: 0 })
            }
        }
    }
}

/// Fields of the status of a volume whose IOs do not pass through the agent.
fn describe(outside: &mut dyn Outside, status: &mut VolumeStatus, config: &config::Volume) {
    let (vms, steer) = (outside.vms(), outside.status());
    let host = outside.host();
    let governor = host.governor();
    let tenants = config.tenants.iter().zip(host.tenants());
    status.tenants = tenants.map(|(settings, state)| tenant(settings, &state)).collect();
    status.cluster_latency_ms = governor.latency().map(|l| l * 1e3);
    status.window = Some(governor.window().0).filter(|w| w.is_finite());
    status.outlook = governor.outlook().and_then(|o| OutlookStatus::new(o, &vms));
    status.threshold =
        governor.estimate().map(|e| ThresholdStatus::new(&e, config.probed.as_ref()));
    status.latency_threshold_ms = governor.threshold().secs() * 1e3;
    let peers = status.exchange.as_ref().map_or(&[][..], |exchange| &exchange.peers);
    let cost = governor.objective_price();
    status.objective = cost.map(|cost| ObjectiveStatus::new(&cost, &[], peers));
    let settings = governor.settings();
    status.settings =
        status.settings.take().map(|shown| SettingsStatus::new(settings, shown.differ));
    status.shares = vms.iter().fold(0, |sum, (_, shares)| sum.saturating_add(*shares));
    status.held = (steer.pending - status.outstanding).max(0.0) as u64;
    status.steer = Some(steer);
}

/// Fields of the status that are the same for served and steered volumes.
pub(crate) fn base(config: &config::Volume, last: LastTick) -> VolumeStatus {
    let LastTick { ticks, report, mut own, mut exchange, differ } = last;
    compare(own.iter_mut().chain(exchange.iter_mut().flat_map(|exchange| &mut exchange.peers)));
    let law = &config.law.law;
    // A number is in force at once, what is found is what the last tick found.
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
