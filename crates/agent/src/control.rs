//! The control thread of a volume: once per period it hears the other hosts, lets the law tick at
//! the volume's enforcer, and says what came of it. Everything here may block and may fail without
//! any IO noticing.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant as Clock};

use parda_block::Heard;
use parda_config::{Resolved, TenantName};
use parda_control::{Governed, Instant, PeriodClock, Report, Span, TenantPart, Totals};
use parda_exchange::{Exchange, Identity, Liveness, Peers, Publication};

use crate::config;
use crate::enforcer::Enforcer;
use crate::exchange::Local;
use crate::idle_probe::IdleProber;
use crate::locked::locked;
use crate::news::is_news;
use crate::outsider;
use crate::settings::{self, Said};
use crate::shown::Shown;
use crate::slowed;
use crate::status::{ExchangeStatus, exchange};
use crate::threshold;

/// Periods after which a window at its least is worth a word. Long enough for any other load on the
/// array to pass.
const WARN_AFTER_PERIODS: u32 = 10;

/// Fault of the exchange while another live host has this host's name.
const DUPLICATE: &str = "another live host has this host's name, so neither counts the other's shares and load: \
                         give each a `host` of its own and restart it";

/// Order from another thread to the control thread.
#[derive(Debug)]
pub(crate) enum Order {
    /// Tick by this law from now on.
    Law(Box<Resolved>),
    /// These are the tenants from now on.
    Tenants(Vec<TenantName>),
    /// The configuration was read again: an exchange that was replaced is meant to be used.
    Reloaded,
    /// Say goodbye and end.
    Stop,
}

/// The control thread's state.
pub(crate) struct Control {
    volume: String,
    /// Name under which the volume's hosts meet.
    meets_as: String,
    enforcer: Arc<Enforcer>,
    idle_prober: Option<IdleProber>,
    me: Identity,
    /// Where the others are met, if anywhere.
    exchange: Option<config::Exchange>,
    /// None while there is no exchange, or it cannot be set up.
    link: Option<ExchangeState>,
    /// Reason why the exchange cannot be used now.
    fault: Option<String>,
    law: Resolved,
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
    shown: Arc<Mutex<Shown>>,
    clock: PeriodClock,
    epoch: Clock,
}

/// The other hosts, and the way to them.
struct ExchangeState {
    exchange: Box<dyn Exchange>,
    place: String,
    peers: Peers,
    fault: Option<String>,
    /// It failed in this period: hearing, saying, or both.
    failing: bool,
    failures: u64,
    /// Periods in which another live host had this host's name.
    duplicates: u64,
    /// The last such host, which is logged once.
    twin: Option<Identity>,
    /// Messages about the rhythm of the rounds, so that each is logged once.
    slowed: slowed::Watch,
    crowd: slowed::Crowd,
}

impl Control {
    pub(crate) fn new(
        me: &Identity,
        volume: &config::Volume,
        enforcer: Arc<Enforcer>,
        orders: Receiver<Order>,
        shown: Arc<Mutex<Shown>>,
    ) -> Control {
        let idle_probe = volume.idle_probe.clone();
        let idle_prober = idle_probe
            .map(|idle_probe| IdleProber::new(&volume.name, idle_probe, Arc::clone(&enforcer)));
        let member = volume.pool.as_ref().map_or(&me.host, |pool| &pool.member);
        let mut control = Control {
            volume: volume.name.clone(),
            meets_as: volume.meets_as().to_owned(),
            enforcer,
            idle_prober,
            me: Identity { host: member.clone(), incarnation: me.incarnation },
            exchange: volume.exchange.clone(),
            link: None,
            fault: None,
            law: volume.law.clone(),
            tenants: volume.tenants.iter().map(|tenant| tenant.name).collect(),
            outsiders: outsider::Watch::default(),
            squeezed: 0,
            concern: None,
            settings: settings::Watch::default(),
            orders,
            shown,
            clock: PeriodClock::new(Instant(0), Span::ZERO, 0.0),
            epoch: Clock::now(),
        };
        control.connect();
        let phase = control.link.as_ref().map_or(0.0, |_| control.me.host.id().phase());
        control.clock = PeriodClock::new(control.now(), control.law.period.into(), phase);
        control
    }

    /// Sets up the exchange, if there is one and it is not. Whatever is wrong with it keeps no IO
    /// from being served: it is tried again in each period.
    fn connect(&mut self) {
        let (None, Some(exchange)) = (&self.link, &self.exchange) else { return };
        match ExchangeState::new(&self.me, &self.meets_as, exchange, self.law.period) {
            Ok(link) => {
                if self.fault.take().is_some() {
                    tracing::info!(
                        volume = self.volume,
                        event = "exchange_up",
                        "the exchange can be opened now"
                    );
                }
                self.link = Some(link);
            }
            Err(fault) => {
                if is_news(&mut self.fault, &fault) {
                    tracing::error!(
                        volume = self.volume,
                        event = "exchange_down",
                        "{fault}; it is tried again, IO goes on, control falls back"
                    );
                }
            }
        }
    }

    /// Ticks until it is told to stop.
    pub(crate) fn run(mut self) {
        loop {
            let next = self.clock.next();
            let change = self.enforcer.between_ticks(self.now());
            let wake = change.map_or(next, |change| change.min(next));
            match self.orders.recv_timeout(wake.since(self.now()).into()) {
                Ok(Order::Law(law)) => {
                    self.clock.set_period(self.now(), law.period.into());
                    self.law = *law;
                }
                Ok(Order::Tenants(names)) => self.tenants = names,
                Ok(Order::Reloaded) => {
                    if let Some(link) = &mut self.link {
                        link.exchange.reload();
                    }
                }
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
        self.connect();
        let now = self.now();
        let heard = match (&mut self.link, &self.exchange) {
            (Some(link), _) => link.hear(&self.volume, now),
            (None, Some(_)) => None,
            (None, None) => Some(Heard::default()),
        };
        let totals = heard.as_ref().map(|(totals, _)| *totals);
        // The read of the exchange may have taken seconds: `now` has passed. Without a ring there is nothing to
        // govern, and nothing to publish.
        let Some((report, tenants)) = self.enforcer.tick(self.now(), heard) else { return };
        let heard = totals;
        tracing::debug!(
            volume = self.volume, window = report.window.0, outstanding = report.outstanding,
            active = report.active, source = ?report.source, "tick"
        );
        if let Some(link) = &mut self.link {
            if link.exchange.loads_array() {
                self.clock.settle(link.peers.present(now), heard.as_ref(), &report);
                link.slowed.look(&self.volume, self.clock.rhythm(), self.clock.configured());
            }
            let hosts = link.peers.present(now);
            self.clock.set_least(link.exchange.least_period(hosts));
            link.crowd.look(&self.volume, &self.clock, hosts);
            link.say(&self.volume, &self.clock, (report, tenants.clone()), false);
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

    /// Says once when the threshold is lower than any window can bring the latency. `outstanding`:
    /// of all hosts.
    fn watch_threshold(&mut self, report: &Report, outstanding: f64) {
        let (law, threshold) = (&self.law.control.law, report.threshold);
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
        let concern = threshold::concern(self.law.control.moves().is_some(), others);
        if concern != self.concern
            && let Some(concern) = concern
        {
            tracing::warn!(volume = self.volume, "{concern}");
        }
        self.concern = concern;
    }

    /// Says once in which settings live hosts differ that they must have alike, and once that they do
    /// no more.
    fn compare_settings(&mut self, report: &Report, tenants: &[TenantPart]) {
        let now = self.now();
        // What nobody hears cannot be compared.
        let Some(link) = self.link.as_ref().filter(|link| !link.failing) else { return };
        let period = Some(self.law.period.into());
        let own = Said { host: self.me.host.as_str(), period, report, tenants };
        let peers = link.peers.all(now).filter(|peer| peer.liveness == Liveness::Live);
        let others = peers.map(|peer| {
            let parda_exchange::Message { from, body, .. } = peer.message;
            // A host that meets less often than it was told does not say what that was.
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
        let last = locked(&self.shown).report;
        if let (Some(link), Some(report)) = (&mut self.link, last) {
            link.say(&self.volume, &self.clock, (report, Vec::new()), true);
        }
    }

    fn show(&self, report: Report) {
        let now = self.now();
        let mut shown = locked(&self.shown);
        shown.ticks += 1;
        shown.report = Some(report);
        shown.own = Some(exchange::own(&self.me.host, &report));
        shown.differ = self.settings.differ().to_vec();
        shown.exchange = match (&self.link, &self.exchange) {
            (Some(link), _) => Some(link.status(now, &self.clock)),
            (None, Some(exchange)) => Some(ExchangeStatus {
                place: exchange.to_string(),
                fault: self.fault.clone(),
                ..ExchangeStatus::default()
            }),
            (None, None) => None,
        };
    }
}

impl ExchangeState {
    fn new(
        me: &Identity,
        volume: &str,
        exchange: &config::Exchange,
        period: Duration,
    ) -> Result<ExchangeState, String> {
        let place = exchange.to_string();
        let host = Local { me, volume, period: Span::from(period) };
        let exchange = crate::exchange::open(exchange, &host)?;
        let peers = Peers::new(me.host.id());
        Ok(ExchangeState {
            exchange,
            place,
            peers,
            fault: None,
            failing: false,
            failures: 0,
            duplicates: 0,
            twin: None,
            slowed: slowed::Watch::default(),
            crowd: slowed::Crowd::default(),
        })
    }

    /// What the other hosts said last, added up. `None` while nothing can be said of them: the exchange
    /// fails, or shows hosts of which none has yet been seen to live.
    fn hear(&mut self, volume: &str, now: Instant) -> Option<Heard> {
        self.failing = false;
        match self.exchange.collect(now) {
            Ok(heard) => {
                for event in &heard.events {
                    if event.is_warning() {
                        tracing::warn!(volume, event = "exchange_warning", "{event}");
                    } else {
                        tracing::info!(volume, "{event}");
                    }
                }
                self.peers.observe(now, &heard.messages);
                let twin = self.peers.twin(now);
                self.duplicates += u64::from(twin.is_some());
                if let Some(twin) = twin.filter(|twin| self.twin.as_ref() != Some(*twin)) {
                    let remedy = "give every host a name of its own";
                    tracing::warn!(
                        volume,
                        event = "exchange_warning",
                        "another {twin} is live: {remedy}"
                    );
                    self.twin = Some(twin.clone());
                }
            }
            Err(error) => {
                self.fail(volume, &error);
                return None;
            }
        }
        Some((self.peers.totals(now)?, self.peers.tenants(now)))
    }

    fn say(&mut self, volume: &str, clock: &PeriodClock, said: parda_block::Said, leaving: bool) {
        let (report, tenants) = said;
        let slowed = slowed::reason(clock).is_some();
        let publication = Publication { period: clock.period(), slowed, leaving, report, tenants };
        let published = self.exchange.publish(&publication);
        self.peers.published(published.is_ok());
        match published {
            Err(error) => self.fail(volume, &error),
            Ok(()) if self.failing => {}
            // Not before both ways work: one that can be read and not written is no good.
            Ok(()) => self.mend(volume),
        }
    }

    /// Says once what is wrong, not once per period, nor for each way.
    fn fail(&mut self, volume: &str, error: &dyn std::error::Error) {
        if std::mem::replace(&mut self.failing, true) {
            return;
        }
        let fault = error.to_string();
        self.failures += 1;
        if is_news(&mut self.fault, &fault) {
            tracing::error!(
                volume,
                event = "exchange_down",
                "{fault}; IO goes on, control falls back"
            );
        }
    }

    fn mend(&mut self, volume: &str) {
        if self.fault.take().is_some() {
            tracing::info!(volume, event = "exchange_up", "the exchange works again");
        }
    }

    fn status(&self, now: Instant, clock: &PeriodClock) -> ExchangeStatus {
        let rhythm = clock.rhythm();
        // Without IOs of the array there is no rhythm but the configured one.
        let period = rhythm.period().or((!self.exchange.loads_array()).then(|| clock.period()));
        let standing = self.exchange.standing();
        let mut status = ExchangeStatus {
            place: self.place.clone(),
            fault: self.fault.clone(),
            failures: self.failures,
            duplicate_hosts: self.duplicates,
            duplicate: self.peers.twin(now).map(|_| DUPLICATE.to_owned()),
            period_s: period.map(Span::secs),
            part: rhythm.cost().map(|(_, part)| part),
            slowed: slowed::reason(clock).map(str::to_owned),
            peers: self.peers.all(now).map(|peer| exchange::peer(&peer)).collect(),
            ..ExchangeStatus::default()
        };
        status.count(&standing);
        status
    }
}
