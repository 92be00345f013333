//! Settings that all hosts of a volume must have alike: values in force, and hosts whose configuration differs.

use std::collections::BTreeMap;
use std::time::Duration;

use parda_config::TenantName;
use parda_control::latency::Signal;
use parda_control::{
    Ballot, Charge, Costs, Governed, Report, Settings, Span, TenantId, TenantPart, Tuning,
};
use serde::{Deserialize, Serialize};

/// Periods may differ by this factor: what hosts count is divided by their own. Beyond it the slower
/// ones see too little of what the faster ones do.
const PERIODS: u64 = 4;

/// Periods for which a difference must last before it is logged. While a change is rolled out host by host, hosts differ for a moment.
const LASTS: u32 = 3;

/// Values in force of the settings that all hosts must have alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SettingsStatus {
    /// Quantity that shares divide, as the configuration spells it: `outstanding`, `iops`, `bytes`, or a cost.
    pub fairness: String,
    /// The same; `None` where shares divide outstanding IOs.
    pub costs: Option<Costs>,
    /// Which IOs' latency drives the window.
    pub signal: Signal,
    /// Settings in which live hosts differ.
    #[serde(default)]
    pub differ: Vec<Difference>,
}

impl SettingsStatus {
    pub(crate) fn new(settings: Settings, differ: Vec<Difference>) -> SettingsStatus {
        SettingsStatus {
            fairness: fairness(settings.costs),
            costs: settings.costs,
            signal: settings.signal,
            differ,
        }
    }
}

/// A setting that differs among live hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// Its key in the configuration.
    pub setting: String,
    /// Value in force on all hosts. `None` if each host keeps its own.
    pub in_force: Option<String>,
    /// Value in this host's configuration.
    pub own: String,
    /// Hosts by the value in their configuration, this host among them.
    pub told: Vec<Told>,
}

/// Hosts that have the same value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Told {
    /// Value as the configuration spells it.
    pub value: String,
    /// Their names, in order.
    pub hosts: Vec<String>,
    /// Sum of their shares, which is the number of votes for the value.
    pub shares: u64,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} is not the same on all hosts:", self.setting)?;
        for (i, Told { value, hosts, shares }) in self.told.iter().enumerate() {
            let and = if i == 0 { "" } else { ";" };
            write!(f, "{and} {value} on {} ({shares} shares)", hosts.join(", "))?;
        }
        match &self.in_force {
            Some(value) => write!(f, ". {value} is in force on all of them, by shares"),
            None => write!(f, ". Each host keeps its own"),
        }
    }
}

/// Report of a live host.
pub(crate) struct Said<'a> {
    pub(crate) host: &'a str,
    /// Period in its configuration, if known.
    pub(crate) period: Option<Span>,
    pub(crate) report: &'a Report,
    /// Its parts in the tenants.
    pub(crate) tenants: &'a [TenantPart],
}

/// A setting in which hosts differ, if they do. `of`: the value that a host has configured, if it publishes one.
fn difference<'a>(
    (setting, in_force): (String, Option<String>),
    own: &Said<'a>,
    hosts: impl Iterator<Item = &'a Said<'a>>,
    of: impl Fn(&Said<'_>) -> Option<String>,
) -> Option<Difference> {
    let own = of(own)?;
    let mut told: BTreeMap<String, (Vec<String>, u64)> = BTreeMap::new();
    for said in hosts {
        let Some(value) = of(said) else { continue };
        let (hosts, shares) = told.entry(value).or_default();
        hosts.push(said.host.to_owned());
        *shares += u64::from(said.report.shares.0);
    }
    let told = told.into_iter().map(|(value, (mut hosts, shares))| {
        hosts.sort();
        Told { value, hosts, shares }
    });
    let told: Vec<Told> = told.collect();
    (told.len() > 1).then_some(Difference { setting, in_force, own, told })
}

/// Tenants of the first host whose settings differ on other hosts. Hosts compare a hash of these settings.
pub(crate) fn compare_tenants(hosts: &[Said<'_>], names: &[TenantName]) -> Vec<Difference> {
    let Some(own) = hosts.first() else { return Vec::new() };
    let differ = |name: &TenantName| {
        let id = TenantId::of(name);
        let terms = |said: &Said<'_>| {
            let mut parts = said.tenants.iter();
            parts.find(|part| part.id == id).map(|part| part.terms).filter(|terms| *terms > 0)
        };
        let here = terms(own)?;
        let value = |same: bool| if same { "as here" } else { "otherwise" }.to_owned();
        let of = |said: &Said<'_>| terms(said).map(|terms| value(terms == here));
        difference((format!("tenant {name}"), None), own, hosts.iter(), of)
    };
    names.iter().filter_map(differ).collect()
}

/// Settings in which the hosts differ. The first host is this one.
pub(crate) fn compare(hosts: &[Said<'_>]) -> Vec<Difference> {
    let Some(own) = hosts.first() else { return Vec::new() };
    let voters = || hosts.iter().filter(|said| votes(said, own));
    let mut ballot = Ballot::default();
    voters().for_each(|said| said.report.vote(&mut ballot));
    let won = ballot.settings();
    let settings = |of: fn(Settings) -> String| move |said: &Said<'_>| said.report.settings.map(of);
    let fairness = |settings: Settings| fairness(settings.costs);
    let signal = |settings: Settings| settings.signal.to_string();
    let number = |said: &Said<'_>| {
        (said.report.tuning == Tuning::Pinned).then(|| time(said.report.threshold))
    };
    let periods = voters().filter_map(|said| said.period);
    let (shortest, longest) = periods
        .fold((u64::MAX, 0), |(least, most), period| (least.min(period.0), most.max(period.0)));
    let apart = longest > shortest.saturating_mul(PERIODS);
    let period = |said: &Said<'_>| said.period.filter(|_| apart).map(time);
    let threshold = ballot.threshold.winner().map(time);
    let named = |key: &str, in_force| (key.to_owned(), in_force);
    [
        difference(named("fairness", won.map(fairness)), own, voters(), settings(fairness)),
        difference(named("signal", won.map(signal)), own, voters(), settings(signal)),
        difference(named("latency_threshold", threshold), own, voters(), number),
        difference(named("period", None), own, voters(), period),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Whether a host's vote counts for this host. Hosts under control and hosts that observe vote among themselves.
fn votes(said: &Said<'_>, own: &Said<'_>) -> bool {
    match said.report.governed {
        Governed::No => false,
        Governed::Yes => true,
        Governed::Observes => own.report.governed == Governed::Observes,
    }
}

fn fairness(costs: Option<Costs>) -> String {
    match costs {
        None => "outstanding".to_owned(),
        Some(Costs::IOPS) => "iops".to_owned(),
        Some(Costs::BYTES) => "bytes".to_owned(),
        Some(Costs { reads, writes }) => {
            // As the configuration spells it: charges are nanoseconds, of an IO beside its bytes and of a MiB.
            let of = |kind, Charge { io, mib }| {
                let (io, mib) = (f64::from(io), f64::from(mib));
                let (iops, bandwidth) = (1e9 / (io + mib / 256.0), (1e10 / mib).round() / 10.0);
                format!("iops_{kind} = {iops:.0}, bandwidth_{kind} = \"{bandwidth}MiB\"")
            };
            format!("{{ {}, {} }}", of("reads", reads), of("writes", writes))
        }
    }
}

fn time(span: Span) -> String {
    humantime::format_duration(Duration::from_nanos(span.0)).to_string()
}

/// Finds differences to log: once when they have lasted, and once when they are over.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    seen: Vec<Difference>,
    lasts: u32,
    /// In what hosts differ, and have for long enough.
    pub(crate) said: Vec<Difference>,
}

impl Watch {
    /// Ends a period. Returns the differences to log now, and whether all are over.
    pub(crate) fn period(&mut self, now: Vec<Difference>) -> (Vec<Difference>, bool) {
        self.lasts = if now == self.seen { self.lasts.saturating_add(1) } else { 1 };
        self.seen = now;
        if self.lasts < LASTS || self.seen == self.said {
            return (Vec::new(), false);
        }
        let new = self.seen.iter().filter(|one| !self.said.contains(one)).cloned().collect();
        let over = self.seen.is_empty();
        self.said.clone_from(&self.seen);
        (new, over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parda_control::{Config, Measurement, Period, Shares, View};

    fn report(shares: u32, edit: impl FnOnce(&mut Report)) -> Report {
        let mut report = Period::new(Config::default()).unwrap().tick(
            &mut Measurement::default(),
            View::Silent,
            None,
        );
        report.shares = Shares(shares);
        edit(&mut report);
        report
    }

    fn bytes(report: &mut Report) {
        report.settings = Some(Settings { costs: Some(Costs::BYTES), ..Settings::default() });
    }

    fn said<'a>(host: &'a str, report: &'a Report) -> Said<'a> {
        Said { host, period: Some(Span::from_millis(1000)), report, tenants: &[] }
    }

    #[test]
    fn a_cost_is_told_as_the_configuration_spells_it() {
        let text = "{ iops_reads = 1461, bandwidth_reads = \"63.7MiB\", iops_writes = 562, bandwidth_writes = \"176MiB\" }";
        let table: toml::Table = toml::from_str(&format!("fairness = {text}")).unwrap();
        let costs = table["fairness"].clone().try_into::<parda_config::Fairness>().unwrap().costs();
        assert_eq!(fairness(costs), text);
    }

    #[test]
    fn every_host_says_the_same_of_who_was_told_what_and_what_is_in_force() {
        let (a, b) = (report(1000, |_| ()), report(1500, bytes));
        let c = report(600, |report| report.threshold = Span::from_millis(20));
        let hosts = [("a", &a), ("b", &b), ("c", &c)];
        for turn in 0..3 {
            let mut order = hosts;
            order.rotate_left(turn);
            let order: Vec<_> = order.iter().map(|(name, report)| said(name, report)).collect();
            let texts: Vec<_> = compare(&order).iter().map(Difference::to_string).collect();
            assert_eq!(
                texts,
                [
                    "fairness is not the same on all hosts: bytes on b (1500 shares); outstanding \
                     on a, c (1600 shares). outstanding is in force on all of them, by shares",
                    "latency_threshold is not the same on all hosts: 20ms on c (600 shares); 30ms on a, \
                     b (2500 shares). 30ms is in force on all of them, by shares",
                ]
            );
        }
    }

    #[test]
    fn a_tenant_that_another_host_has_otherwise_is_named() {
        let report = report(1000, |_| ());
        let part = |name: &str, terms| TenantPart {
            id: TenantId::of(name),
            terms,
            ..TenantPart::default()
        };
        let (own, same) = ([part("gold", 3), part("old", 3)], [part("gold", 3), part("old", 0)]);
        let other = [part("gold", 4)];
        let all = [("a", &own[..]), ("b", &other), ("c", &same), ("d", &[])];
        let all = all.map(|(host, tenants)| Said { tenants, ..said(host, &report) });
        let names = ["gold", "old"].map(|name| TenantName::from(name).unwrap());
        let texts: Vec<_> =
            compare_tenants(&all, &names).iter().map(Difference::to_string).collect();
        assert_eq!(
            texts,
            [
                "tenant gold is not the same on all hosts: as here on a, c (2000 shares); otherwise on b (1000 shares). Each host \
              keeps its own"
            ]
        );
    }

    #[test]
    fn an_older_version_and_one_without_control_say_nothing() {
        let own = report(1000, |_| ());
        let older = report(9000, |report| report.settings = None);
        let off = report(9000, |report| {
            bytes(report);
            report.governed = Governed::No;
        });
        assert_eq!(compare(&[said("a", &own), said("b", &older), said("c", &off)]), []);
    }

    #[test]
    fn periods_within_reason_are_no_difference() {
        let (a, b) = (report(1000, |_| ()), report(1000, |_| ()));
        let at = |ms| Said { period: Some(Span::from_millis(ms)), ..said("b", &b) };
        assert_eq!(compare(&[said("a", &a), at(4000)]), []);
        let text = compare(&[said("a", &a), at(4100)])[0].to_string();
        assert!(text.ends_with("4s 100ms on b (1000 shares). Each host keeps its own"), "{text}");
        let slowed = Said { period: None, ..said("c", &b) };
        assert_eq!(compare(&[said("a", &a), slowed]), [], "a host that has slowed itself");
    }

    #[test]
    fn a_difference_is_said_once_when_it_has_lasted_and_so_is_its_end() {
        let (a, b) = (report(1000, |_| ()), report(1500, bytes));
        let hosts = || compare(&[said("a", &a), said("b", &b)]);
        let mut watch = Watch::default();
        for period in 0..10 {
            let (new, over) = watch.period(hosts());
            assert_eq!((new.len(), over), (usize::from(period == 2), false), "{period}");
        }
        assert_eq!(watch.said.len(), 1);
        let ends: Vec<_> = (0..6).map(|_| watch.period(Vec::new())).collect();
        assert_eq!(ends.iter().filter(|(new, over)| *over && new.is_empty()).count(), 1);
        assert_eq!(watch.said, []);
        // For a moment only.
        watch.period(hosts());
        assert_eq!(watch.period(Vec::new()), (Vec::new(), false));
    }
}
