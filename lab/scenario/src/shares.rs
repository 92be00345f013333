//! Fairness of a phase: judged VMs, Jain's index, and share errors.
//!
//! Two groups of VMs are judged: *saturated* VMs, which demand more than they get, and VMs with more per share than the
//! saturated ones. The throughput of a VM that demands less than its share shows only its demand. A host is judged by the
//! sum over its judged VMs.

use std::collections::BTreeMap;

pub use crate::answer::Unit;
use crate::answer::{Distribution, HostAnswer, VmAnswer};

/// Least fraction of a saturated VM's latency that is held time.
pub const HELD_PART: f64 = 0.1;

/// Whether an open loop lacks IOs: has fewer than the `asked` ones of its rate, by more than chance. Three deviations of a
/// Poisson process are chance.
#[must_use]
pub fn lacks(ios: u64, asked: f64) -> bool {
    (ios as f64) < asked - 3.0 * asked.sqrt()
}

/// Whether a VM was saturated throughout a phase. Its client must have run through the whole phase
/// ([`Scenario::runs_throughout`](crate::Scenario::runs_throughout)), an open loop [`lacks`] IOs, and:
///
/// - If the host has a window, at least [`HELD_PART`] of the VM's mean latency must be held time. A
///   VM that is hardly ever held gets all that it asks for.
/// - If the host has no window (`window` is `None`), no IO is held. Every client that keeps IOs waiting at the array
///   counts. An open loop does not keep IOs waiting by itself, so [`HostCount`](crate::count::HostCount) never asks for
///   one in this case.
#[must_use]
pub fn saturated(
    ran_throughout: bool,
    window: Option<f64>,
    latency: Option<&Distribution>,
    held: Option<&Distribution>,
) -> bool {
    let held_enough =
        || latency.zip(held).is_some_and(|(all, held)| held.mean >= HELD_PART * all.mean);
    ran_throughout && (window.is_none() || held_enough())
}

/// Jain's index (Σx)² / (n · Σx²): 1 if all are equal, 1/n if one has everything. `None` if `x` is empty or all zero.
#[must_use]
pub fn jain(x: &[f64]) -> Option<f64> {
    let (sum, squares) = x.iter().fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
    (squares > 0.0).then(|| sum * sum / (x.len() as f64 * squares))
}

impl Unit {
    fn of(self, vm: &VmAnswer) -> f64 {
        match self {
            Unit::Ios => vm.iops,
            Unit::Bytes => vm.mib_per_s,
            Unit::Cost => vm.slots_per_s.unwrap_or(0.0),
            Unit::Slots => {
                let mean = |times: &Option<Distribution>| times.map_or(0.0, |d| d.mean);
                // Little's law.
                vm.iops * (mean(&vm.latency_ms) - mean(&vm.held_ms)).max(0.0) / 1e3
            }
        }
    }
}

/// Unit that shares divide among these hosts: the unit of the hosts with most of the shares, as in the law. With equal
/// shares, IOPS come first, then bytes.
fn unit<'a>(hosts: impl IntoIterator<Item = &'a HostAnswer>) -> Unit {
    let mut votes = [(Unit::Cost, 0), (Unit::Bytes, 0), (Unit::Ios, 0)];
    for host in hosts.into_iter().filter(|host| !host.outside) {
        let vote = votes.iter_mut().find(|(unit, _)| *unit == host.unit);
        vote.into_iter().for_each(|(_, votes)| *votes += u64::from(host.shares));
    }
    // At equal votes `max_by_key` returns the last.
    votes.into_iter().max_by_key(|(_, votes)| *votes).map_or(Unit::Ios, |(unit, _)| unit)
}

/// Throughput of a host or VM in the unit that is divided, and the shares that it has for it.
struct Claim<'a> {
    name: &'a str,
    got: f64,
    shares: f64,
}

impl<'a> Claim<'a> {
    fn of(name: &'a str, vms: impl Iterator<Item = &'a VmAnswer> + Clone, unit: Unit) -> Claim<'a> {
        Claim {
            name,
            got: vms.clone().map(|vm| unit.of(vm)).sum(),
            shares: vms.map(|vm| f64::from(vm.shares)).sum(),
        }
    }
}

/// Rule for judged VMs: saturated ones, and those with more per share than the saturated ones. Surplus above its share
/// counts even for a VM that did not demand it all.
struct ShareLevel {
    unit: Unit,
    /// Throughput per share of the saturated VMs. `None` without any: then no VM lacks throughput.
    level: Option<f64>,
}

impl ShareLevel {
    fn among<'a>(
        hosts: impl IntoIterator<Item = &'a HostAnswer> + Clone,
        in_unit: Option<Unit>,
    ) -> ShareLevel {
        let unit = in_unit.unwrap_or_else(|| unit(hosts.clone()));
        let vms = hosts.into_iter().flat_map(|host| &host.vms).filter(|vm| vm.saturated);
        let vms: Vec<&VmAnswer> = vms.collect();
        let Claim { got, shares, .. } = Claim::of("", vms.iter().copied(), unit);
        ShareLevel { unit, level: (shares > 0.0).then(|| got / shares) }
    }

    fn is(&self, vm: &VmAnswer) -> bool {
        let more = |level: f64| self.unit.of(vm) > level * f64::from(vm.shares);
        vm.saturated || (vm.ran && self.level.is_some_and(more))
    }

    fn vms<'a>(&self, host: &'a HostAnswer) -> impl Iterator<Item = &'a VmAnswer> + Clone {
        host.vms.iter().filter(|vm| self.is(vm)).collect::<Vec<_>>().into_iter()
    }

    fn host<'a>(&self, host: &'a HostAnswer) -> Option<Claim<'a>> {
        let claim = Claim::of(&host.name, self.vms(host), self.unit);
        Some(claim).filter(|claim| claim.shares > 0.0)
    }

    fn vm<'a>(&self, host: &'a HostAnswer) -> impl Iterator<Item = Claim<'a>> {
        self.vms(host).map(|vm| Claim::of(&vm.name, std::iter::once(vm), self.unit))
    }
}

/// Jain's index over the throughput per share of the hosts' judged VMs. The unit is `unit`, or else the one that shares
/// divide.
#[must_use]
pub fn fairness<'a>(
    hosts: impl IntoIterator<Item = &'a HostAnswer> + Clone,
    unit: Option<Unit>,
) -> Option<f64> {
    let judged = ShareLevel::among(hosts.clone(), unit);
    let claims = hosts.into_iter().filter_map(|host| judged.host(host));
    jain(&claims.map(|claim| claim.got / claim.shares).collect::<Vec<_>>())
}

/// Ratio of each claim's throughput to its fair part; 1 is exact. The fair part divides the throughput of all claims by
/// shares.
fn parts(claims: Vec<Claim<'_>>) -> BTreeMap<&str, f64> {
    let got: f64 = claims.iter().map(|c| c.got).sum();
    let shares: f64 = claims.iter().map(|c| c.shares).sum();
    let part = |c: Claim<'_>| (c.got / got) / (c.shares / shares);
    if got > 0.0 {
        claims.into_iter().map(|c| (c.name, part(c))).collect()
    } else {
        BTreeMap::new()
    }
}

/// Throughput of each judged host over its fair part, in the unit that shares divide or in `unit`.
#[must_use]
pub fn host_parts(hosts: &[HostAnswer], unit: Option<Unit>) -> BTreeMap<&str, f64> {
    let judged = ShareLevel::among(hosts, unit);
    parts(hosts.iter().filter_map(|host| judged.host(host)).collect())
}

/// Throughput of each judged VM over its fair part, in the unit that shares divide or in `unit`.
#[must_use]
pub fn vm_parts(hosts: &[HostAnswer], unit: Option<Unit>) -> BTreeMap<&str, f64> {
    let judged = ShareLevel::among(hosts, unit);
    parts(hosts.iter().flat_map(|host| judged.vm(host)).collect())
}

/// Share error of each judged host: its deviation from its fair part as a fraction, 0.07 for 7 %.
#[must_use]
pub fn host_errors(hosts: &[HostAnswer], unit: Option<Unit>) -> BTreeMap<&str, f64> {
    host_parts(hosts, unit).into_iter().map(|(name, part)| (name, (part - 1.0).abs())).collect()
}

/// Share error of each judged VM, as a fraction of its fair part.
#[must_use]
pub fn vm_errors(hosts: &[HostAnswer], unit: Option<Unit>) -> BTreeMap<&str, f64> {
    vm_parts(hosts, unit).into_iter().map(|(name, part)| (name, (part - 1.0).abs())).collect()
}

/// The largest of these errors. `None` if there are none.
#[must_use]
pub fn largest(errors: impl Iterator<Item = f64>) -> Option<f64> {
    errors.reduce(f64::max)
}
