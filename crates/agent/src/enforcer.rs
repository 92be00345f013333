//! Enforcement of a volume's window: in our own ring, in the kernel's queue, or by QEMU's throttles.

use std::time::Duration;

use parda_block::{Drained, Heard, Said};
use parda_control::law::Mode;
use parda_control::{Costs, Instant};

use crate::config::{self, Work};
use crate::outsider;
use crate::served::{Served, Shared};
use crate::settings::SettingsStatus;
use crate::shown::Shown;
use crate::start_error::StartError;
use crate::status::exchange::compare;
use crate::status::{Detail, VolumeStatus};
use crate::steered::Steered;
use crate::throttled::Throttled;

/// A volume's enforcer. The control thread ticks it; the main thread changes it; the status thread
/// asks it.
pub(crate) enum Enforcer {
    /// Disks that are served over NBD.
    Ring(Served),
    /// A device that VMs open directly.
    Kernel(Box<Steered>),
    /// Disks that QEMUs open themselves.
    Qemu(Box<Throttled>),
}

impl Enforcer {
    /// `settled` is called when all that it is to serve was tried once.
    pub(crate) fn start(
        config: &config::Volume,
        shared: &Shared,
        settled: impl FnOnce() + Send + 'static,
    ) -> Result<Enforcer, StartError> {
        Ok(match &config.work {
            Work::Serve(_) => Enforcer::Ring(Served::start(config, shared, settled)?),
            Work::Steer(steer) => {
                let steered = Steered::start(config, steer)?;
                settled();
                Enforcer::Kernel(Box::new(steered))
            }
            Work::Qemu(qemu) => {
                let throttled = Throttled::start(config, qemu)?;
                settled();
                Enforcer::Qemu(Box::new(throttled))
            }
        })
    }

    /// Ends a period, at `now`. `heard`: what the other hosts said; `None` if the exchange is silent. `None`
    /// while there is no ring.
    pub(crate) fn tick(&self, now: Instant, heard: Option<Heard>) -> Option<Said> {
        match self {
            Enforcer::Ring(served) => served.ring()?.tick(heard).ok(),
            Enforcer::Kernel(steered) => Some(steered.tick(now, heard)),
            Enforcer::Qemu(throttled) => Some(throttled.tick(heard)),
        }
    }

    /// Does what is due between two ticks. Returns when something is due again before the next tick, if anything is.
    pub(crate) fn between_ticks(&self, now: Instant) -> Option<Instant> {
        match self {
            Enforcer::Ring(_) | Enforcer::Qemu(_) => None,
            Enforcer::Kernel(steered) => steered.between_ticks(now),
        }
    }

    /// Takes over from `new` into what is in force what may change while it runs.
    pub(crate) fn reload(&self, in_force: &mut config::Volume, new: &config::Volume) {
        match self {
            Enforcer::Ring(served) => served.reload(in_force, new),
            Enforcer::Kernel(steered) => steered.reload(in_force, new),
            Enforcer::Qemu(throttled) => throttled.reload(in_force, new),
        }
    }

    /// State of the volume, as the status and the API show it.
    pub(crate) fn status(
        &self,
        config: &config::Volume,
        shown: Shown,
        detail: Detail,
    ) -> VolumeStatus {
        let mut status = base(config, shown);
        match self {
            Enforcer::Ring(served) => served.describe(&mut status, config, detail),
            Enforcer::Kernel(steered) => steered.describe(&mut status, config),
            Enforcer::Qemu(throttled) => throttled.describe(&mut status, config),
        }
        status
    }

    /// How many IOs were done or are under way, if this host serves them. `None` once it has ended.
    pub(crate) fn served(&self) -> Option<u64> {
        match self {
            Enforcer::Ring(served) => {
                let stats = served.ring()?.stats().ok()?;
                let total = stats.total();
                let done = total.reads.ios + total.writes.ios + total.others.ios + total.errors;
                Some(done + (stats.outstanding + stats.held) as u64)
            }
            Enforcer::Kernel(_) | Enforcer::Qemu(_) => None,
        }
    }

    /// Ends it. `None` if it was not running any more.
    pub(crate) fn stop(self, within: Duration) -> Option<Drained> {
        match self {
            Enforcer::Ring(served) => served.stop(within),
            Enforcer::Kernel(steered) => steered.stop(),
            Enforcer::Qemu(throttled) => throttled.stop(),
        }
    }
}

/// Fields of the status that are the same for served and steered volumes.
pub(crate) fn base(config: &config::Volume, shown: Shown) -> VolumeStatus {
    let Shown { ticks, report, mut own, mut exchange, differ } = shown;
    compare(own.iter_mut().chain(exchange.iter_mut().flat_map(|exchange| &mut exchange.peers)));
    let law = &config.law.control.law;
    // A number is in force at once, what is found is what the last tick found.
    let found = report.filter(|_| config.law.control.moves().is_some());
    let threshold = found.map_or(law.threshold, |report| report.threshold);
    let follows = matches!(law.mode, Mode::Parda | Mode::Published { .. });
    VolumeStatus {
        name: config.name.clone(),
        pool: config.pool.as_ref().map(|pool| pool.name.clone()),
        mode: law.mode.name(),
        latency_threshold_ms: threshold.secs() * 1e3,
        outsider: report.and_then(|report| outsider::status(&report.finding)),
        settings: Some(SettingsStatus::new(config.law.control.settings(), differ)),
        source: report.map(|r| r.source).unwrap_or_default(),
        window_max: (follows && config.law.control.costs.is_none_or(|costs| costs == Costs::IOPS))
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
