//! Metrics: paths `phase/subject/quantity` that name one number of an answer.

mod checked;
mod pattern;

use std::fmt;

use crate::answer::{Distribution, HostAnswer, PhaseAnswer, Total, VmAnswer};
use crate::shares::{Unit, host_errors, largest, vm_errors};
use crate::variant_name::is_swept;

pub(crate) use pattern::Pattern;

/// A number of an answer. The path was checked against the scenario.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Metric {
    phase: Which,
    subject: Subject,
    quantity: String,
}

/// The phase of a metric, or the phases over which an extreme is taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Which {
    Phase(String),
    /// Extreme over all phases, or over the phases of one name in all variants. The last field
    /// restricts it to one combination of a sweep.
    Extreme(Extreme, Option<String>, Option<String>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
enum Extreme {
    Largest,
    Smallest,
}

impl Extreme {
    fn of(self, values: impl Iterator<Item = f64>) -> Option<f64> {
        values.reduce(match self {
            Extreme::Largest => f64::max,
            Extreme::Smallest => f64::min,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Subject {
    kind: Kind,
    /// Of a host, a VM or a tenant; else empty.
    name: String,
    /// VMs of a tenant, once they are known.
    vms: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
enum Kind {
    Total,
    Controlled,
    Hosts,
    Vms,
    Host,
    Vm,
    Tenant,
}

/// The error of a path that has too few parts.
const SHAPE: &str = "is not a path such as `PHASE/total/iops`, `PHASE/host/NAME/iops`, `PHASE/vm/NAME/iops`, \
     `PHASE/tenant/NAME/iops`, `PHASE/hosts/max_share_error` or `PHASE/vms/max_share_error`";

type Of<T> = &'static [(&'static str, fn(&T) -> Option<f64>)];

/// Quantities of a phase's totals.
const TOTAL: Of<Total> = &[
    ("iops", |t| Some(t.iops)),
    ("mib_per_s", |t| Some(t.mib_per_s)),
    ("device_latency_ms", |t| t.device_latency_ms),
    ("mb_per_s", |t| Some(t.mib_per_s * 1.048_576)),
    ("fairness", |t| t.fairness),
    ("fairness_slots", |t| t.fairness_slots),
    ("settled_s", |t| t.settled_s),
    ("exchange_iops", |t| t.exchange_iops),
    ("exchange_part", Total::exchange_part),
];

/// Quantities of a host, except for its share error and its latency.
const HOST: Of<HostAnswer> = &[
    ("iops", |h| Some(h.iops)),
    ("mib_per_s", |h| Some(h.mib_per_s)),
    ("beta", |h| Some(h.beta)),
    ("window", |h| h.window),
    ("outstanding", |h| Some(h.outstanding)),
    ("settled_s", |h| h.settled_s),
];

/// Quantities of a VM, except for its share error and its latencies.
const VM: Of<VmAnswer> = &[("iops", |v| Some(v.iops)), ("mib_per_s", |v| Some(v.mib_per_s))];

/// Statistics of a distribution, written after its name and a slash; the mean by default.
const STATISTIC: Of<Distribution> = &[
    ("mean", |d| Some(d.mean)),
    ("stddev", |d| Some(d.stddev)),
    ("p50", |d| Some(d.p50)),
    ("p99", |d| Some(d.p99)),
    ("max", |d| Some(d.max)),
];

const SHARE_ERROR: &str = "share_error";
const MAX_SHARE_ERROR: &str = "max_share_error";
const SLOTS_ERROR: &str = "slots_error";
const MAX_SLOTS_ERROR: &str = "max_slots_error";
const DEVICE_LATENCY: &str = "device_latency_ms";
const LATENCY: &str = "latency_ms";
const HELD: &str = "held_ms";

/// Label of a quantity for people, and its unit.
#[must_use]
pub fn label(quantity: &str) -> (&str, &'static str) {
    match quantity {
        "iops" => ("Throughput", "IOPS"),
        "mib_per_s" => ("Throughput", "MiB/s"),
        "mb_per_s" => ("Throughput", "MB/s"),
        "device_latency_ms" => ("Device latency", "ms"),
        "latency_ms" => ("Latency of VMs", "ms"),
        "held_ms" => ("Time held by the host", "ms"),
        "fairness" => ("Fairness", "Jain's index"),
        "fairness_slots" => ("Fairness of outstanding IOs", "Jain's index"),
        "settled_s" => ("Windows settled after", "s"),
        "exchange_iops" => ("IOs of the exchange", "IOPS"),
        "exchange_part" => ("The exchange's IOs", "as a part of all"),
        "beta" => ("β", "slots"),
        "latency_threshold_ms" => ("latency threshold", "ms"),
        "window" => ("Window", "slots"),
        "outstanding" => ("Outstanding at the array", "IOs"),
        "share_error" => ("Off its share", "as a part of it"),
        "max_share_error" => ("Farthest off its share", "as a part of it"),
        "slots_error" => ("Off its share of outstanding IOs", "as a part of it"),
        "max_slots_error" => ("Farthest off its share of outstanding IOs", "as a part of it"),
        other => (other, ""),
    }
}

fn get<T>(table: Of<T>, name: &str, of: &T) -> Option<f64> {
    table.iter().find(|(n, _)| *n == name).and_then(|(_, get)| get(of))
}

fn names<T>(table: Of<T>) -> impl Iterator<Item = String> {
    table.iter().map(|(name, _)| (*name).to_owned())
}

fn statistics(distribution: &str) -> impl Iterator<Item = String> {
    let each = names(STATISTIC).map(move |s| format!("{distribution}/{s}"));
    std::iter::once(distribution.to_owned()).chain(each)
}

fn distribution(path: &str, name: &str, of: Option<&Distribution>) -> Option<f64> {
    let statistic = match path.strip_prefix(name)? {
        "" => "mean",
        rest => rest.strip_prefix('/')?,
    };
    get(STATISTIC, statistic, of?)
}

impl Subject {
    fn new(kind: Kind, name: &str) -> Subject {
        Subject { kind, name: name.to_owned(), vms: Vec::new() }
    }

    /// Subject and quantity of a path without its phase.
    fn parse(rest: &str) -> Result<(Subject, String), String> {
        let (kind, rest) = rest.split_once('/').ok_or(SHAPE)?;
        let kind: Kind = kind.parse().map_err(|_| SHAPE)?;
        let (name, quantity) = match kind {
            Kind::Host | Kind::Vm | Kind::Tenant => rest.split_once('/').ok_or(SHAPE)?,
            _ => ("", rest),
        };
        Ok((Subject::new(kind, name), quantity.to_owned()))
    }
}

impl Kind {
    /// Every quantity of this kind of subject.
    fn quantities(self) -> Vec<String> {
        let errors = [SHARE_ERROR, SLOTS_ERROR].map(str::to_owned);
        match self {
            Kind::Total | Kind::Controlled => names(TOTAL).collect(),
            Kind::Hosts | Kind::Vms => [MAX_SHARE_ERROR, MAX_SLOTS_ERROR].map(str::to_owned).into(),
            Kind::Host => names(HOST).chain(errors).chain(statistics(DEVICE_LATENCY)).collect(),
            Kind::Tenant => names(VM).collect(),
            Kind::Vm => {
                let latencies = [LATENCY, HELD].into_iter().flat_map(statistics);
                names(VM).chain(errors).chain(latencies).collect()
            }
        }
    }
}

impl Metric {
    /// A quantity of a host in a phase, which are not checked.
    #[must_use]
    pub fn of_host(phase: String, host: &str, quantity: &str) -> Metric {
        let subject = Subject::new(Kind::Host, host);
        Metric { phase: Which::Phase(phase), subject, quantity: quantity.to_owned() }
    }

    /// The same metric by the shorter of its names: a distribution stands for its mean.
    #[must_use]
    pub fn shortened(&self) -> Metric {
        let quantity = self.quantity.strip_suffix("/mean").unwrap_or(&self.quantity).to_owned();
        Metric { quantity, ..self.clone() }
    }

    /// Value of the metric in these phases. `None` if there is none, such as a latency without IO or a
    /// share error without a saturated claimant.
    #[must_use]
    pub fn value(&self, phases: &[PhaseAnswer]) -> Option<f64> {
        let mut phases = phases.iter().filter(|p| self.phase.is(&p.name, p.own_name()));
        match self.phase {
            Which::Phase(_) => phases.next().and_then(|phase| self.value_in(phase)),
            Which::Extreme(extreme, ..) => {
                extreme.of(phases.filter_map(|phase| self.value_in(phase)))
            }
        }
    }

    /// Label of the metric for people, and its unit.
    #[must_use]
    pub fn label(&self) -> (String, &'static str) {
        let (name, statistic) = match self.quantity.split_once('/') {
            Some((name, statistic)) => (name, Some(statistic)),
            None => (self.quantity.as_str(), None),
        };
        let (label, unit) = label(name);
        let statistic = match statistic {
            Some("stddev") => ", standard deviation",
            Some("p50") => ", median",
            Some("p99") => ", 99th percentile",
            Some("max") => ", largest",
            _ => "",
        };
        (format!("{label}{statistic}"), unit)
    }

    fn value_in(&self, phase: &PhaseAnswer) -> Option<f64> {
        let quantity = self.quantity.as_str();
        let unit = [SLOTS_ERROR, MAX_SLOTS_ERROR].contains(&quantity).then_some(Unit::Slots);
        let is_error = [SHARE_ERROR, SLOTS_ERROR].contains(&quantity);
        let Subject { kind, name, vms: own } = &self.subject;
        match kind {
            Kind::Total => get(TOTAL, quantity, &phase.total),
            Kind::Controlled => get(TOTAL, quantity, &phase.controlled()),
            Kind::Hosts => largest(host_errors(&phase.hosts, unit).into_values()),
            Kind::Vms => largest(vm_errors(&phase.hosts, unit).into_values()),
            Kind::Host if is_error => host_errors(&phase.hosts, unit).get(name.as_str()).copied(),
            Kind::Vm if is_error => vm_errors(&phase.hosts, unit).get(name.as_str()).copied(),
            Kind::Host => {
                let host = phase.hosts.iter().find(|h| h.name == *name)?;
                get(HOST, quantity, host).or_else(|| {
                    distribution(quantity, DEVICE_LATENCY, host.device_latency_ms.as_ref())
                })
            }
            Kind::Tenant => {
                let vms = phase.hosts.iter().flat_map(|h| &h.vms);
                let own = vms.filter(|vm| own.contains(&vm.name));
                Some(own.filter_map(|vm| get(VM, quantity, vm)).sum())
            }
            Kind::Vm => {
                let mut vms = phase.hosts.iter().flat_map(|h| &h.vms);
                let vm = vms.find(|v| v.name == *name)?;
                get(VM, quantity, vm)
                    .or_else(|| distribution(quantity, LATENCY, vm.latency_ms.as_ref()))
                    .or_else(|| distribution(quantity, HELD, vm.held_ms.as_ref()))
            }
        }
    }
}

/// Distinct names for a message, shortened if there are many.
pub(crate) fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const MOST: usize = 12;
    let mut once: Vec<&str> = Vec::new();
    let mut more = 0;
    for name in names {
        if !once.contains(&name) {
            if once.len() < MOST { once.push(name) } else { more += 1 }
        }
    }
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", once.join(", "))
}

impl Which {
    fn parse(text: &str) -> Which {
        let (first, rest) = match text.split_once('.') {
            Some((first, rest)) => (first, Some(rest)),
            None => (text, None),
        };
        match first.parse() {
            Ok(extreme) => Which::Extreme(extreme, rest.map(str::to_owned), None),
            Err(_) => Which::Phase(text.to_owned()),
        }
    }

    /// Whether this is the phase of this name in the answer and in the scenario.
    fn is(&self, name: &str, own: &str) -> bool {
        match self {
            Which::Phase(phase) => phase == name,
            Which::Extreme(_, phase, combination) => {
                let variant = name.strip_suffix(own).and_then(|v| v.strip_suffix('.'));
                phase.as_ref().is_none_or(|phase| phase == own)
                    && combination.as_ref().is_none_or(|c| variant.is_some_and(|v| is_swept(v, c)))
            }
        }
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Which::Phase(phase) => f.write_str(phase),
            Which::Extreme(extreme, phase, combination) => {
                write!(f, "{extreme}")?;
                phase.as_ref().map_or(Ok(()), |phase| write!(f, ".{phase}"))?;
                combination.as_ref().map_or(Ok(()), |combination| write!(f, " ({combination})"))
            }
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Metric { phase, subject: Subject { kind, name, .. }, quantity } = self;
        match name.as_str() {
            "" => write!(f, "{phase}/{kind}/{quantity}"),
            name => write!(f, "{phase}/{kind}/{name}/{quantity}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_names_every_quantity_and_plots_know_its_unit() {
        let manual = include_str!("../../../docs/scenarios.md");
        for kind in [Kind::Total, Kind::Controlled, Kind::Hosts, Kind::Vms, Kind::Host, Kind::Vm] {
            for quantity in kind.quantities() {
                let named = match quantity.split_once('/') {
                    None => format!("`{quantity}`"),
                    Some((_, statistic)) => format!("`…/{statistic}`"),
                };
                assert!(manual.contains(&named), "{named}");
                let name = quantity.split_once('/').map_or(quantity.as_str(), |(name, _)| name);
                assert_ne!(label(name).1, "", "{name} has no unit in plots");
            }
        }
    }
}
