//! Fairness of a phase: which VMs are judged, Jain's index, and share errors.
//!
//! Only *saturated* VMs are judged. A VM that wants less than its share gets what it wants, which
//! says nothing about fairness. A host is judged by the sum over its saturated VMs.

use std::collections::BTreeMap;

use crate::answer::{Distribution, HostAnswer, VmAnswer};

/// Least fraction of a saturated VM's latency that is held time.
pub const HELD_PART: f64 = 0.1;

/// Whether a VM was backlogged throughout a phase. Its client must have run through the whole phase
/// ([`Scenario::runs_throughout`](crate::Scenario::runs_throughout)), and:
///
/// - If the host has a window, at least [`HELD_PART`] of the VM's mean latency must be held time. A
///   VM that is hardly ever held gets all that it asks for.
/// - If the host has no window (`window` is `None`), no IO is held, and every client that keeps IOs
///   waiting at the array counts. An open loop does not keep IOs waiting by itself, so
///   [`HostCount`](crate::count::HostCount) never asks for one in this case.
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

/// Throughput of a host or VM, and the shares that it has for it.
struct Claim<'a> {
    name: &'a str,
    iops: f64,
    shares: f64,
}

fn saturated_vms(host: &HostAnswer) -> impl Iterator<Item = &VmAnswer> {
    host.vms.iter().filter(|vm| vm.saturated)
}

fn vm_claims(hosts: &[HostAnswer]) -> Vec<Claim<'_>> {
    fn claim(vm: &VmAnswer) -> Claim<'_> {
        Claim { name: &vm.name, iops: vm.iops, shares: f64::from(vm.shares) }
    }
    hosts.iter().flat_map(saturated_vms).map(claim).collect()
}

fn host_claims<'a>(hosts: impl IntoIterator<Item = &'a HostAnswer>) -> Vec<Claim<'a>> {
    fn claim(host: &HostAnswer) -> Claim<'_> {
        Claim {
            name: &host.name,
            iops: saturated_vms(host).map(|vm| vm.iops).sum(),
            shares: saturated_vms(host).map(|vm| f64::from(vm.shares)).sum(),
        }
    }
    hosts.into_iter().map(claim).filter(|claim| claim.shares > 0.0).collect()
}

/// Jain's index over IOPS per share of the hosts' saturated VMs.
#[must_use]
pub fn fairness<'a>(hosts: impl IntoIterator<Item = &'a HostAnswer>) -> Option<f64> {
    let per_share: Vec<f64> = host_claims(hosts).iter().map(|c| c.iops / c.shares).collect();
    jain(&per_share)
}

/// Throughput of each claim over its fair part, where the fair part divides the throughput of all
/// claims by shares. 1 is exact.
fn parts(claims: Vec<Claim<'_>>) -> BTreeMap<&str, f64> {
    let iops: f64 = claims.iter().map(|c| c.iops).sum();
    let shares: f64 = claims.iter().map(|c| c.shares).sum();
    let part = |c: Claim<'_>| (c.iops / iops) / (c.shares / shares);
    if iops > 0.0 {
        claims.into_iter().map(|c| (c.name, part(c))).collect()
    } else {
        BTreeMap::new()
    }
}

/// Throughput of each saturated host over its fair part.
#[must_use]
pub fn host_parts(hosts: &[HostAnswer]) -> BTreeMap<&str, f64> {
    parts(host_claims(hosts))
}

/// Throughput of each saturated VM over its fair part.
#[must_use]
pub fn vm_parts(hosts: &[HostAnswer]) -> BTreeMap<&str, f64> {
    parts(vm_claims(hosts))
}

/// Share error of each saturated host: its deviation from its fair part as a fraction, 0.07 for 7
/// %.
#[must_use]
pub fn host_errors(hosts: &[HostAnswer]) -> BTreeMap<&str, f64> {
    host_parts(hosts).into_iter().map(|(name, part)| (name, (part - 1.0).abs())).collect()
}

/// Share error of each saturated VM, as a fraction of its fair part.
#[must_use]
pub fn vm_errors(hosts: &[HostAnswer]) -> BTreeMap<&str, f64> {
    vm_parts(hosts).into_iter().map(|(name, part)| (name, (part - 1.0).abs())).collect()
}

pub(crate) fn largest(errors: impl Iterator<Item = f64>) -> Option<f64> {
    errors.reduce(f64::max)
}
