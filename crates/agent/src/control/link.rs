//! Link to the other hosts of a volume: its exchange, and their known state.

use std::collections::BTreeMap;

use parda_control::belief::Judging;
use parda_control::governor::SILENT;
use parda_control::{Instant, PeriodClock, Report, Span, Totals};
use parda_exchange::udp::OneWay;
use parda_exchange::{Exchange, HostName, Identity, Peers, Publication, Standing};

use crate::config::{self, Volume};
use crate::exchange::{Local, open};
use crate::law::{Heard, Said};
use crate::news::Lasting;
use crate::slowed;
use crate::status::{ExchangeStatus, exchange::peer};

/// Fault of the exchange while another live host has this host's name.
const DUPLICATE: &str = "another live host has this host's name, so neither counts the other's shares and load: \
                         give each a `host` of its own and restart it";

/// Rounds without any other host after which silence is a fault, where others are expected. Hosts that start together need some rounds.
const SILENCE: u64 = 8;

/// The other hosts, and the way to them. A fault of the exchange keeps no IO from being served.
pub(super) struct Link {
    volume: String,
    me: Identity,
    /// Name under which the volume's hosts meet.
    meets_as: String,
    config: config::Exchange,
    /// None while it cannot be set up, which is tried again in each period.
    exchange: Option<Box<dyn Exchange>>,
    pub(super) peers: Peers,
    judging: Judging,
    fault: Option<String>,
    lasting: Lasting,
    /// Reason why no other host is heard, where others are expected.
    silence: Option<String>,
    /// Hosts that are heard and do not hear this one, each of which is logged once.
    one_way: Vec<OneWay>,
    /// The exchange failed in this period, in reading, in writing, or both.
    pub(super) failing: bool,
    failures: u64,
    /// Periods in which another live host had this host's name.
    duplicates: u64,
    /// The last such host, which is logged once.
    twin: Option<Identity>,
    /// Hosts that are not believed, with the reason, each of which is logged once.
    doubted: BTreeMap<String, String>,
    /// Hosts that are left out.
    ignored: Vec<HostName>,
    /// Messages about the rhythm of the rounds, so that each is logged once.
    slowed: slowed::Watch,
}

impl Link {
    pub(super) fn new(me: &Identity, volume: &Volume, config: &config::Exchange) -> Link {
        let mut link = Link {
            volume: volume.name.clone(),
            me: me.clone(),
            meets_as: volume.meets_as().to_owned(),
            config: config.clone(),
            exchange: None,
            peers: Peers::new(me.host.id()),
            judging: Judging::default(),
            fault: None,
            lasting: Lasting::default(),
            silence: None,
            one_way: Vec::new(),
            failing: false,
            failures: 0,
            duplicates: 0,
            twin: None,
            doubted: BTreeMap::new(),
            ignored: Vec::new(),
            slowed: slowed::Watch::default(),
        };
        link.ignore(volume.ignored());
        link.open(volume.law.law.period);
        link
    }

    /// Leaves these hosts out, and no others.
    pub(super) fn ignore(&mut self, hosts: Vec<HostName>) {
        self.peers.ignore(hosts.iter().map(HostName::id));
        self.ignored = hosts;
    }

    /// Logs once for each doubted host, with the reason.
    fn name_doubts(&mut self, now: Instant) {
        // Most hosts are not in doubt: no status is made for these.
        let hosts = self.peers.all(now).filter(|host| host.doubt.is_some() || host.several);
        let hosts = hosts.map(|host| peer(&host));
        let doubted: BTreeMap<_, _> =
            hosts.filter_map(|host| Some((host.name, host.doubt?))).collect();
        let volume = &self.volume;
        for (host, why) in &doubted {
            if self.doubted.get(host) != Some(why) {
                tracing::warn!(
                    volume,
                    event = "host_doubted",
                    "{host} is not believed: {why}. What it says counts for less; look at it, or leave it out: \
                     parda exchange ignore {host}"
                );
            }
        }
        for host in self.doubted.keys().filter(|host| !doubted.contains_key(*host)) {
            tracing::info!(volume, event = "host_believed", "{host} is believed again");
        }
        self.doubted = doubted;
    }

    /// Logs once that no host is heard, though others are expected, and each host that does not hear this one. Returns whether others are
    /// expected and none is known.
    fn name_silence(&mut self, now: Instant) -> bool {
        let Some(exchange) = &self.exchange else { return false };
        let (volume, silence) = (&self.volume, exchange.silence());
        let alone = silence.is_some() && self.peers.all(now).next().is_none();
        let why = silence.filter(|silence| silence.rounds >= SILENCE).map(|silence| silence.why);
        match (&self.silence, &why) {
            // The status has what is known of the cause later. Addresses in it may be forged, and change.
            (None, Some(why)) => {
                tracing::error!(volume, event = "nobody_heard", "{why}; IO goes on");
            }
            (Some(_), None) => {
                tracing::info!(volume, event = "somebody_heard", "other hosts are heard now");
            }
            _ => {}
        }
        self.silence = why;
        let one_way = one_way_of(&exchange.standing());
        let has = |hosts: &[OneWay], host: &str| hosts.iter().any(|other| other.host == host);
        for host in one_way.iter().filter(|of| !has(&self.one_way, &of.host)) {
            tracing::warn!(volume, host = host.host, event = "host_one_way", "{host}");
        }
        for OneWay { host, .. } in self.one_way.iter().filter(|of| !has(&one_way, &of.host)) {
            let over = "it hears this host now, or is silent";
            tracing::info!(volume, host, event = "host_one_way_over", "host {host}: {over}");
        }
        self.one_way = one_way;
        alone
    }

    /// The exchange, which is set up if it is not. None if it cannot be.
    fn open(&mut self, period: Span) -> Option<&mut Box<dyn Exchange>> {
        if self.exchange.is_none() {
            let host = Local { me: &self.me, volume: &self.meets_as, period };
            match open(&self.config, &host) {
                Ok(exchange) => self.exchange = Some(exchange),
                Err(fault) => self.fail(&fault),
            }
        }
        self.exchange.as_mut()
    }

    /// Sum of the last reports of the other hosts. `None` while nothing is known of them. Then the exchange fails, shows only hosts not yet
    /// seen alive, or shows none though others are expected.
    pub(super) fn hear(&mut self, period: Span, now: Instant) -> Option<Heard> {
        self.failing = false;
        match self.open(period)?.collect(now) {
            Ok(heard) => {
                let volume = &self.volume;
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
                let totals = self.peers.totals(now, &mut self.judging);
                self.name_doubts(now);
                if self.name_silence(now) {
                    return None;
                }
                Some((totals?, self.peers.tenants(now)))
            }
            Err(error) => {
                self.fail(&error.to_string());
                None
            }
        }
    }

    /// Finds the time of the next round, which is later where rounds would load the array or etcd too much.
    pub(super) fn pace(
        &mut self,
        clock: &mut PeriodClock,
        now: Instant,
        heard: Option<&Totals>,
        report: &Report,
    ) {
        let Some(exchange) = &self.exchange else { return };
        let hosts = self.peers.present(now);
        if exchange.loads_array() {
            clock.settle(hosts, heard, report);
        }
        clock.set_least(exchange.least_period(hosts));
        self.slowed.look(&self.volume, clock, hosts);
    }

    /// Publishes this host's report.
    pub(super) fn say(&mut self, clock: &PeriodClock, said: Said, leaving: bool) {
        let Some(exchange) = &mut self.exchange else { return };
        let (report, tenants) = said;
        self.peers.says(&report);
        let slowed = slowed::reason(clock).is_some();
        let publication = Publication { period: clock.period(), slowed, leaving, report, tenants };
        let published = exchange.publish(&publication);
        self.peers.published(published.is_ok());
        match published {
            Err(error) => self.fail(&error.to_string()),
            Ok(()) if self.failing => {}
            // Only once both directions work: an exchange that can be read and not written is useless.
            Ok(()) => {
                self.fault = None;
                if self.lasting.ends() {
                    let volume = &self.volume;
                    tracing::info!(volume, event = "exchange_up", "the exchange works again");
                }
            }
        }
    }

    /// Logs a fault once, not per period or direction, and not a single late answer.
    fn fail(&mut self, fault: &str) {
        if std::mem::replace(&mut self.failing, true) {
            return;
        }
        self.failures += 1;
        self.fault = Some(fault.to_owned());
        let tolerated = if self.exchange.is_some() { SILENT } else { 0 };
        if self.lasting.fails(fault, tolerated) {
            tracing::error!(
                volume = self.volume,
                event = "exchange_down",
                "{fault}; IO goes on, control falls back"
            );
        }
    }

    /// The configuration was read again.
    pub(super) fn reload(&mut self) {
        if let Some(exchange) = &mut self.exchange {
            exchange.reload();
        }
    }

    pub(super) fn status(&self, now: Instant, clock: &PeriodClock) -> ExchangeStatus {
        let rhythm = clock.rhythm();
        let mut status = ExchangeStatus {
            place: self.config.to_string(),
            fault: self.fault.clone(),
            silence: self.silence.clone(),
            failures: self.failures,
            duplicate_hosts: self.duplicates,
            duplicate: self.peers.twin(now).map(|_| DUPLICATE.to_owned()),
            period_s: rhythm.period().map(Span::secs),
            part: rhythm.cost().map(|(_, part)| part),
            slowed: slowed::reason(clock).map(str::to_owned),
            peers: self.peers.all(now).map(|host| peer(&host)).collect(),
            leaves_out: self.ignored.iter().map(ToString::to_string).collect(),
            ..ExchangeStatus::default()
        };
        if let Some(exchange) = &self.exchange {
            // Without IOs of the array there is no rhythm but the configured one.
            let period = (!exchange.loads_array()).then(|| clock.period().secs());
            status.period_s = status.period_s.or(period);
            status.count(exchange.standing());
        }
        status
    }
}

/// Hosts of a transport over UDP that are heard and do not hear this one.
fn one_way_of(standing: &Standing) -> Vec<OneWay> {
    match standing {
        Standing::Datagrams(udp) => udp.one_way.clone(),
        Standing::Both(both) => one_way_of(&both.first),
        Standing::Slots { .. } | Standing::Etcd(_) => Vec::new(),
    }
}
