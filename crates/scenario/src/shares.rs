//! How well a phase kept to the shares: who is judged, Jain's index, and the error of each.
//!
//! Only *saturated* VMs are judged: who wants less than its share gets what it wants, and says
//! nothing about fairness. A host is judged by its saturated VMs, together.

use std::collections::BTreeMap;

use crate::answer::{Distribution, HostAnswer, VmAnswer};

/// The part of its latency for which a saturated VM's IO is held by its host.
pub const HELD_PART: f64 = 0.1;

/// Whether a VM always had more to do than it got. Its client must have worked through the whole
/// phase ([`Scenario::runs_throughout`](crate::Scenario::runs_throughout)), and
///
/// - where its host has a window, at least [`HELD_PART`] of its mean latency must be time held in
///   the host's queue: a VM that is hardly ever held has all it asks for;
/// - where its host has none (`window` is `None`) nothing is ever held: every client that keeps
///   IOs waiting at the array counts. An open loop does not do so by itself, so that there
///   [`HostCount`](crate::count::HostCount) never asks for one.
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

/// Jain's index (Σx)² / (n · Σx²): 1 when all are equal, 1/n when one has all. `None` without any
/// `x`, or when all are zero.
#[must_use]
pub fn jain(x: &[f64]) -> Option<f64> {
    let (sum, squares) = x.iter().fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
    (squares > 0.0).then(|| sum * sum / (x.len() as f64 * squares))
}

/// What somebody got, and the shares for which they got it.
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

/// The fair part of each: what it got over what its shares entitle it to, of all that those judged
/// got together. 1 is just right.
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

/// What each saturated host got over what its shares entitle it to.
#[must_use]
pub fn host_parts(hosts: &[HostAnswer]) -> BTreeMap<&str, f64> {
    parts(host_claims(hosts))
}

/// What each saturated VM got over what its shares entitle it to.
#[must_use]
pub fn vm_parts(hosts: &[HostAnswer]) -> BTreeMap<&str, f64> {
    parts(vm_claims(hosts))
}

/// By what part of its share each saturated host is off it, either way: 0.07 is 7 %.
#[must_use]
pub fn host_errors(hosts: &[HostAnswer]) -> BTreeMap<&str, f64> {
    host_parts(hosts).into_iter().map(|(name, part)| (name, (part - 1.0).abs())).collect()
}

/// By what part of its share each saturated VM is off it, either way.
#[must_use]
pub fn vm_errors(hosts: &[HostAnswer]) -> BTreeMap<&str, f64> {
    vm_parts(hosts).into_iter().map(|(name, part)| (name, (part - 1.0).abs())).collect()
}

pub(crate) fn largest(errors: impl Iterator<Item = f64>) -> Option<f64> {
    errors.reduce(f64::max)
}
