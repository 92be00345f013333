//! Paths that name one number of an answer: `phase/subject/quantity`.

use std::fmt;

use crate::answer::{Distribution, HostAnswer, PhaseAnswer, Total, VmAnswer};
use crate::shares::{host_errors, largest, vm_errors};

/// A number of an answer, known to exist in its scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metric {
    phase: String,
    subject: Subject,
    quantity: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    Total,
    Hosts,
    Vms,
    Host(String),
    Vm(String),
}

/// The names that paths may use.
#[derive(Clone, Debug)]
pub struct Names<'a> {
    /// Of phases.
    pub phases: Vec<&'a str>,
    /// Of hosts.
    pub hosts: Vec<&'a str>,
    /// Of VMs.
    pub vms: Vec<&'a str>,
}

/// A path that names nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetricError {
    /// It does not have the parts of a path.
    #[error(
        "is not a path such as `PHASE/total/iops`, `PHASE/host/NAME/iops`, `PHASE/vm/NAME/iops`, \
         `PHASE/hosts/max_share_error` or `PHASE/vms/max_share_error`"
    )]
    Shape,
    /// One of its parts is unknown.
    #[error("there is no {kind} `{name}`; there is {known}")]
    Unknown {
        /// What the part is.
        kind: &'static str,
        /// What it says.
        name: String,
        /// What it could say.
        known: String,
    },
}

type Of<T> = &'static [(&'static str, fn(&T) -> Option<f64>)];

/// Quantities of a phase.
const TOTAL: Of<Total> = &[
    ("iops", |t| Some(t.iops)),
    ("mib_per_s", |t| Some(t.mib_per_s)),
    ("device_latency_ms", |t| t.device_latency_ms),
    ("fairness", |t| t.fairness),
];

/// Quantities of a host, beside its share error and its latency.
const HOST: Of<HostAnswer> = &[
    ("iops", |h| Some(h.iops)),
    ("mib_per_s", |h| Some(h.mib_per_s)),
    ("beta", |h| Some(h.beta)),
    ("window", |h| h.window),
    ("outstanding", |h| Some(h.outstanding)),
];

/// Quantities of a VM, beside its share error and its latencies.
const VM: Of<VmAnswer> = &[("iops", |v| Some(v.iops)), ("mib_per_s", |v| Some(v.mib_per_s))];

/// What a distribution is asked for, after its name and a slash; its mean, if nothing.
const STATISTIC: Of<Distribution> = &[
    ("mean", |d| Some(d.mean)),
    ("stddev", |d| Some(d.stddev)),
    ("p50", |d| Some(d.p50)),
    ("p99", |d| Some(d.p99)),
    ("max", |d| Some(d.max)),
];

const SHARE_ERROR: &str = "share_error";
const MAX_SHARE_ERROR: &str = "max_share_error";
const DEVICE_LATENCY: &str = "device_latency_ms";
const LATENCY: &str = "latency_ms";
const HELD: &str = "held_ms";

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
    /// Every quantity that it has.
    fn quantities(&self) -> Vec<String> {
        let own = |name: &str| std::iter::once(name.to_owned());
        match self {
            Subject::Total => names(TOTAL).collect(),
            Subject::Hosts | Subject::Vms => own(MAX_SHARE_ERROR).collect(),
            Subject::Host(_) => {
                names(HOST).chain(own(SHARE_ERROR)).chain(statistics(DEVICE_LATENCY)).collect()
            }
            Subject::Vm(_) => names(VM)
                .chain(own(SHARE_ERROR))
                .chain(statistics(LATENCY))
                .chain(statistics(HELD))
                .collect(),
        }
    }
}

impl Metric {
    /// The number that a path names.
    ///
    /// # Errors
    /// It names none in a scenario with these names.
    pub fn parse(path: &str, names: &Names<'_>) -> Result<Metric, MetricError> {
        let (phase, rest) = path.split_once('/').ok_or(MetricError::Shape)?;
        known("phase", phase, &names.phases)?;
        let (subject, quantity) = rest.split_once('/').ok_or(MetricError::Shape)?;
        let named = || quantity.split_once('/').ok_or(MetricError::Shape);
        let (subject, quantity) = match subject {
            "total" => (Subject::Total, quantity),
            "hosts" => (Subject::Hosts, quantity),
            "vms" => (Subject::Vms, quantity),
            "host" => {
                let (name, quantity) = named()?;
                known("host", name, &names.hosts)?;
                (Subject::Host(name.to_owned()), quantity)
            }
            "vm" => {
                let (name, quantity) = named()?;
                known("VM", name, &names.vms)?;
                (Subject::Vm(name.to_owned()), quantity)
            }
            _ => return Err(MetricError::Shape),
        };
        let all = subject.quantities();
        known("quantity", quantity, &all.iter().map(String::as_str).collect::<Vec<_>>())?;
        Ok(Metric { phase: phase.to_owned(), subject, quantity: quantity.to_owned() })
    }

    /// Its value, if these phases have it: a latency without IO, or a share that nobody was
    /// saturated to claim, has none.
    #[must_use]
    pub fn value(&self, phases: &[PhaseAnswer]) -> Option<f64> {
        let phase = phases.iter().find(|p| p.name == self.phase)?;
        let quantity = self.quantity.as_str();
        match &self.subject {
            Subject::Total => get(TOTAL, quantity, &phase.total),
            Subject::Hosts => largest(host_errors(&phase.hosts).into_values()),
            Subject::Vms => largest(vm_errors(&phase.hosts).into_values()),
            Subject::Host(name) if quantity == SHARE_ERROR => {
                host_errors(&phase.hosts).get(name.as_str()).copied()
            }
            Subject::Vm(name) if quantity == SHARE_ERROR => {
                vm_errors(&phase.hosts).get(name.as_str()).copied()
            }
            Subject::Host(name) => {
                let host = phase.hosts.iter().find(|h| h.name == *name)?;
                get(HOST, quantity, host).or_else(|| {
                    distribution(quantity, DEVICE_LATENCY, host.device_latency_ms.as_ref())
                })
            }
            Subject::Vm(name) => {
                let mut vms = phase.hosts.iter().flat_map(|h| &h.vms);
                let vm = vms.find(|v| v.name == *name)?;
                get(VM, quantity, vm)
                    .or_else(|| distribution(quantity, LATENCY, vm.latency_ms.as_ref()))
                    .or_else(|| distribution(quantity, HELD, vm.held_ms.as_ref()))
            }
        }
    }
}

fn known(kind: &'static str, name: &str, known: &[&str]) -> Result<(), MetricError> {
    if known.contains(&name) {
        return Ok(());
    }
    Err(MetricError::Unknown { kind, name: name.to_owned(), known: known.join(", ") })
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Metric { phase, subject, quantity } = self;
        match subject {
            Subject::Total => write!(f, "{phase}/total/{quantity}"),
            Subject::Hosts => write!(f, "{phase}/hosts/{quantity}"),
            Subject::Vms => write!(f, "{phase}/vms/{quantity}"),
            Subject::Host(name) => write!(f, "{phase}/host/{name}/{quantity}"),
            Subject::Vm(name) => write!(f, "{phase}/vm/{name}/{quantity}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_names_every_quantity() {
        let manual = include_str!("../../../docs/scenarios.md");
        let name = || "a".to_owned();
        for subject in [
            Subject::Total,
            Subject::Hosts,
            Subject::Vms,
            Subject::Host(name()),
            Subject::Vm(name()),
        ] {
            for quantity in subject.quantities() {
                let named = match quantity.split_once('/') {
                    None => format!("`{quantity}`"),
                    Some((_, statistic)) => format!("`…/{statistic}`"),
                };
                assert!(manual.contains(&named), "{named}");
            }
        }
    }
}
