//! The control thread of a volume. Once per period it receives the reports of the other hosts, ticks the law, and publishes its own report.
//! Everything here may block and may fail without any IO noticing.

mod link;

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};

use parda_awake::Instant as Clock;
use parda_config::TenantName;
use parda_control::{Config, Governed, Instant, PeriodClock, Report, TenantPart, Totals};
use parda_exchange::{HostName, Identity, Liveness};

use crate::config;
use crate::idle_probe::IdleProber;
use crate::last_tick::LastTick;
use crate::law::{Heard, Law};
use crate::locked::locked;
use crate::outsider;
use crate::settings::{self, Said};
use crate::status::exchange;
use crate::threshold;
use link::Link;

/// Periods after which a window at its least is worth a word. Long enough for any other load on the
/// array to pass.
const WARN_AFTER_PERIODS: u32 = 10;

/// Order from another thread to the control thread.
#[derive(Debug)]
pub(crate) enum Order {
    /// This is the law from now on.
    Law(Box<Config>),
    /// These are the tenants from now on.
    Tenants(Vec<TenantName>),
    /// Leave these hosts out, and no others.
    Ignore(Vec<HostName>),
    /// The configuration was read again: an exchange that was replaced is meant to be used.
    Reloaded,
    /// Say goodbye and end.
    Stop,
}

/// The control thread's state.
pub(crate) struct Control {
    volume: String,
    law: Arc<Law>,
    idle_prober: Option<IdleProber>,
    host: HostName,
    /// The way to the other hosts, if there is an exchange.
    link: Option<Link>,
    config: Config,
    tenants: Vec<TenantName>,
    /// Last warning about thresholds of other hosts, so that it is logged once.
    concern: Option<&'static str>,
    /// Warnings about settings in which live hosts differ, so that each is logged once.
    settings: settings::Watch,
    /// Messages about load that is not under control, so that each is logged once.
    outsiders: outsider::Watch,
    /// Number of periods running with the window at its minimum and the latency above the threshold.
    squeezed: u32,
    orders: Receiver<Order>,
    last_tick: Arc<Mutex<LastTick>>,
    clock: PeriodClock,
    epoch: Clock,
}

impl Control {
    pub(crate) fn new(
        me: &Identity,
        volume: &config::Volume,
        law: Arc<Law>,
        orders: Receiver<Order>,
        last_tick: Arc<Mutex<LastTick>>,
    ) -> Control {
        let idle_probe = volume.idle_probe.clone();
        let idle_prober = idle_probe
            .map(|idle_probe| IdleProber::new(&volume.name, idle_probe, Arc::clone(&law)));
        let member = volume.pool.as_ref().map_or(&me.host, |pool| &pool.member);
        let me = Identity { host: member.clone(), incarnation: me.incarnation };
        let link = volume.exchange.as_ref().map(|exchange| Link::new(&me, volume, exchange));
        let phase = link.as_ref().map_or(0.0, |_| me.host.id().phase());
        Control {
            volume: volume.name.clone(),
            law,
            idle_prober,
            host: me.host,
            link,
            config: volume.law.clone(),
            tenants: volume.tenants.iter().map(|tenant| tenant.name).collect(),
            outsiders: outsider::Watch::default(),
            squeezed: 0,
            concern: None,
            settings: settings::Watch::default(),
            orders,
            last_tick,
            clock: PeriodClock::new(Instant(0), volume.law.law.period, phase),
            epoch: Clock::now(),
        }
    }

    /// Ticks until the stop message arrives.
    pub(crate) fn run(mut self) {
        loop {
            let change = self.law.between_ticks();
            let next = self.clock.next().since(self.now());
            let wait = change.map_or(next, |change| change.min(next));
            match self.orders.recv_timeout(wait.into()) {
                Ok(Order::Law(law)) => {
                    self.clock.set_period(self.now(), law.law.period);
                    self.config = *law;
                }
                Ok(Order::Tenants(names)) => self.tenants = names,
                Ok(Order::Ignore(hosts)) => {
                    self.link.iter_mut().for_each(|link| link.ignore(hosts.clone()));
                }
                Ok(Order::Reloaded) => self.link.iter_mut().for_each(Link::reload),
                Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if self.clock.is_due(self.now()) => {
                    self.clock.begin();
                    self.tick();
                    self.clock.end(self.now());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        self.leave();
    }

    fn now(&self) -> Instant {
        Instant(u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Runs one period: exchange read, law ticked, report published.
    fn tick(&mut self) {
        let now = self.now();
        let heard = match &mut self.link {
            Some(link) => link.hear(self.config.law.period, now),
            None => Some(Heard::default()),
        };
        let totals = heard.as_ref().map(|(totals, _)| *totals);
        // Without a ring there is nothing to govern, and nothing to publish.
        let Some((report, tenants)) = self.law.tick(heard) else { return };
        let heard = totals;
        tracing::debug!(
            volume = self.volume, window = report.window.0, outstanding = report.outstanding,
            active = report.active, source = ?report.source, "tick"
        );
        if let Some(link) = &mut self.link {
            link.pace(&mut self.clock, now, heard.as_ref(), &report);
            link.say(&self.clock, (report, tenants.clone()), false);
        }
        let peers = heard.map_or(0.0, |peers| peers.governed.outstanding);
        self.watch_threshold(&report, peers + report.outstanding);
        self.outsiders.look(&self.volume, &report.finding);
        self.compare_thresholds(&report, heard.as_ref());
        self.compare_settings(&report, &tenants);
        if let Some(prober) = &mut self.idle_prober {
            prober.period(&report, heard.as_ref());
        }
        self.show(report);
    }

    /// Logs once that the threshold is lower than any window can bring the latency. `outstanding`: of all hosts.
    fn watch_threshold(&mut self, report: &Report, outstanding: f64) {
        let (law, threshold) = (&self.config.law, report.threshold);
        let latency = report.interval.heard(law.signal).mean();
        let least = report
            .in_force()
            .is_some_and(|window| window <= law.window_min || outstanding <= 1.5 * law.cluster_min);
        self.squeezed = match latency {
            Some(latency) if least && latency > threshold.secs() => self.squeezed + 1,
            // The least of windows may leave a period without an IO.
            None if least => return,
            _ => 0,
        };
        if self.squeezed == WARN_AFTER_PERIODS {
            tracing::warn!(
                volume = self.volume,
                window = report.window.0,
                latency_ms = latency.unwrap_or_default() * 1e3,
                latency_threshold_ms = threshold.secs() * 1e3,
                event = "threshold_missed",
                "the windows are at their least and the latency still above the threshold: \
                 raise latency_threshold, or see what else loads the array"
            );
        }
    }

    /// Logs once that thresholds of other hosts conflict with this one's.
    fn compare_thresholds(&mut self, report: &Report, others: Option<&Totals>) {
        let Some(others) = others.filter(|_| report.governed == Governed::Yes) else { return };
        let concern = threshold::concern(self.config.auto.is_some(), others);
        if concern != self.concern
            && let Some(concern) = concern
        {
            tracing::warn!(volume = self.volume, "{concern}");
        }
        self.concern = concern;
    }

    /// Logs once in which settings live hosts differ that they must have alike, and once that they do no more.
    fn compare_settings(&mut self, report: &Report, tenants: &[TenantPart]) {
        let now = self.now();
        // Settings can only be compared with hosts whose reports arrive.
        let Some(link) = self.link.as_ref().filter(|link| !link.failing) else { return };
        let period = Some(self.config.law.period);
        let own = Said { host: self.host.as_str(), period, report, tenants };
        let peers = link.peers.all(now).filter(|peer| peer.liveness == Liveness::Live);
        let others = peers.map(|peer| {
            let parda_exchange::Message { from, body, .. } = peer.message;
            // A host that meets less often than configured does not publish its configured period.
            let period = Some(body.period).filter(|_| !body.slowed);
            let (report, tenants) = (&body.report, body.tenants.as_slice());
            Said { host: from.host.as_str(), period, report, tenants }
        });
        let hosts: Vec<_> = std::iter::once(own).chain(others).collect();
        let tenants = settings::compare_tenants(&hosts, &self.tenants);
        let differ = settings::compare(&hosts).into_iter().chain(tenants).collect();
        let (new, over) = self.settings.period(differ);
        for difference in new {
            tracing::warn!(
                volume = self.volume,
                event = "settings_differ",
                "{difference}: make the configurations alike"
            );
        }
        if over {
            tracing::info!(
                volume = self.volume,
                event = "settings_alike",
                "all live hosts have the same settings now"
            );
        }
    }

    fn leave(&mut self) {
        if let Some(prober) = &mut self.idle_prober {
            prober.end();
        }
        let last = locked(&self.last_tick).report;
        if let (Some(link), Some(report)) = (&mut self.link, last) {
            link.say(&self.clock, (report, Vec::new()), true);
        }
    }

    fn show(&self, report: Report) {
        let now = self.now();
        let mut last_tick = locked(&self.last_tick);
        last_tick.ticks += 1;
        last_tick.report = Some(report);
        last_tick.own = Some(exchange::own(&self.host, &report));
        last_tick.differ = self.settings.said.clone();
        last_tick.exchange = self.link.as_ref().map(|link| link.status(now, &self.clock));
    }
}
