//! Measured values of a phase: those of its hosts, and totals.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::host::{HostAnswer, Unit};
use crate::scenario::Phase;
use crate::shares::{fairness, largest};
use crate::variant_name::phase_name;

/// Measured values of one phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseAnswer {
    /// Name of the phase; `VARIANT.PHASE` if there are variants.
    pub name: String,
    /// The variant that was run, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// Beginning, in seconds from the beginning of the run.
    pub from: f64,
    /// End, in seconds from the beginning of the run.
    pub to: f64,
    /// Totals over all hosts.
    pub total: Total,
    /// Measured values of each host, in the order of the scenario.
    pub hosts: Vec<HostAnswer>,
}

/// Totals over some or all hosts of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Total {
    /// Completed IOs per second.
    pub iops: f64,
    /// Throughput in MiB per second.
    pub mib_per_s: f64,
    /// Mean device latency in ms, weighted by IOs. `None` without IO.
    pub device_latency_ms: Option<f64>,
    /// Jain's index over the throughput per share of the judged hosts, in the unit that shares divide;
    /// 1 is perfect. `None` if no host is judged. See [`crate::shares`].
    pub fairness: Option<f64>,
    /// Jain's index over the outstanding IOs per share of the judged hosts, which is what windows divide.
    pub fairness_slots: Option<f64>,
    /// Time until the last host's window had settled, in seconds: see [`HostAnswer::settled_s`]. `None`
    /// if no host has such a time.
    pub settled_s: Option<f64>,
    /// IOs per second that the array did for the exchange, which `iops` does not include. `None` where the
    /// engine does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange_iops: Option<f64>,
}

impl Total {
    fn of<'a>(hosts: impl Iterator<Item = &'a HostAnswer> + Clone) -> Total {
        let iops: f64 = hosts.clone().map(|h| h.iops).sum();
        let waited = |h: &HostAnswer| h.device_latency_ms.map_or(0.0, |d| d.mean * h.iops);
        let waited: f64 = hosts.clone().map(waited).sum();
        Total {
            iops,
            mib_per_s: hosts.clone().map(|h| h.mib_per_s).sum(),
            device_latency_ms: (iops > 0.0).then(|| waited / iops),
            fairness: fairness(hosts.clone(), None),
            fairness_slots: fairness(hosts.clone(), Some(Unit::Slots)),
            settled_s: largest(hosts.filter_map(|h| h.settled_s)),
            exchange_iops: None,
        }
    }

    /// Fraction of all IOs of the array that were the exchange's.
    #[must_use]
    pub fn exchange_part(&self) -> Option<f64> {
        let exchange = self.exchange_iops?;
        let all = exchange + self.iops;
        (all > 0.0).then(|| exchange / all)
    }
}

impl PhaseAnswer {
    /// A phase, with totals computed from its hosts.
    #[must_use]
    pub fn new(phase: &Phase, hosts: Vec<HostAnswer>) -> PhaseAnswer {
        let secs = Duration::as_secs_f64;
        PhaseAnswer {
            name: phase.name.clone(),
            variant: None,
            from: secs(&phase.from),
            to: secs(&phase.to),
            total: Total::of(hosts.iter()),
            hosts,
        }
    }

    /// This phase with the IOs per second that the array completed for the exchange.
    #[must_use]
    pub fn with_exchange(mut self, iops: f64) -> PhaseAnswer {
        self.total.exchange_iops = Some(iops);
        self
    }

    /// This phase as one of a variant: its name is prefixed by `variant`.
    #[must_use]
    pub fn of_variant(self, variant: &str) -> PhaseAnswer {
        let name = phase_name(Some(variant), &self.name);
        PhaseAnswer { name, variant: Some(variant.to_owned()), ..self }
    }

    /// Name of the phase without that of the variant.
    #[must_use]
    pub fn own_name(&self) -> &str {
        let variant = self.variant.as_deref().and_then(|variant| self.name.strip_prefix(variant));
        variant.and_then(|rest| rest.strip_prefix('.')).unwrap_or(&self.name)
    }

    /// Totals over the hosts under control.
    #[must_use]
    pub fn controlled(&self) -> Total {
        Total::of(self.hosts.iter().filter(|host| !host.outside))
    }
}
