//! Tenants whose VMs a host has: their limiters, and their accounts of a period.

use alloc::vec::Vec;

use super::{Host, VmId};
use crate::decision::TenantPeriod;
use crate::limit::{Limit, SharedId};
use crate::tenant::TenantId;
use crate::units::{Instant, Span};

/// A tenant on a host.
#[derive(Debug)]
pub(super) struct HostTenant {
    limit: Limit,
    limiter: Option<SharedId>,
    /// IOs and load of the period that goes on.
    period: TenantPeriod,
}

impl HostTenant {
    /// What holds its VMs to its limit, if it has one.
    pub(super) fn limiter(&self) -> Option<SharedId> {
        self.limiter
    }

    /// An IO of one of its VMs is done. `load`: slots · time at the array, in seconds.
    #[inline]
    pub(super) fn add(&mut self, load: f64) {
        self.period.ios += 1;
        self.period.load += load;
    }
}

impl Host {
    /// The place of a tenant, here and in the decision.
    pub(super) fn tenant_place(&self, id: TenantId) -> Option<usize> {
        self.tenants.iter().position(|tenant| tenant.period.id == id)
    }

    /// Ends the period of each tenant.
    pub(super) fn measure_tenants(
        &mut self,
        now: Instant,
        elapsed: Span,
        into: &mut Vec<TenantPeriod>,
    ) {
        into.clear();
        for tenant in &mut self.tenants {
            let begun = TenantPeriod { id: tenant.period.id, ..TenantPeriod::default() };
            let mut period = core::mem::replace(&mut tenant.period, begun);
            if let Some(limiter) = tenant.limiter {
                (period.done, period.held) = self.limits.roll(now, limiter, elapsed);
            }
            into.push(period);
        }
    }

    /// Takes over the tenants of the decision, and their limits.
    pub(super) fn apply_tenants(&mut self, now: Instant) {
        let terms = &self.decision.tenants;
        let same = terms.len() == self.tenants.len()
            && (self.tenants.iter().zip(terms))
                .all(|(own, terms)| (own.period.id, own.limit) == (terms.id, terms.limit));
        if same {
            for (own, terms) in self.tenants.iter().zip(terms) {
                own.limiter.iter().for_each(|it| self.limits.divide(now, *it, terms.part));
            }
            return;
        }
        let mut before = core::mem::take(&mut self.tenants);
        for terms in terms {
            let kept = before.iter().position(|own| own.period.id == terms.id);
            let kept = kept.map(|at| before.swap_remove(at));
            let period = TenantPeriod { id: terms.id, ..TenantPeriod::default() };
            let (limiter, period) = kept.map_or((None, period), |own| (own.limiter, own.period));
            let limiter = match terms.limit.is_none() {
                true => {
                    limiter.into_iter().for_each(|gone| self.limits.remove(now, gone));
                    None
                }
                false => {
                    let limiter = limiter.unwrap_or_else(|| self.limits.add());
                    self.limits.set(now, limiter, &terms.limit);
                    self.limits.divide(now, limiter, terms.part);
                    Some(limiter)
                }
            };
            self.tenants.push(HostTenant { limit: terms.limit, limiter, period });
        }
        let gone = before.iter().filter_map(HostTenant::limiter);
        gone.for_each(|limiter| self.limits.remove(now, limiter));
        let members = self.vms.iter_mut().filter_map(|(id, vm)| {
            vm.guarantees.as_mut()?.place = None;
            (!vm.removed).then_some(VmId(id))
        });
        let members: Vec<_> = members.collect();
        members.into_iter().for_each(|id| self.place(now, id));
    }
}
