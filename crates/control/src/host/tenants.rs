//! Tenants whose VMs a host has: their limiters, and their accounts of a period.

use alloc::vec::Vec;

use crate::decision::TenantPeriod;
use crate::limit::{Limit, Limits, SharedId};
use crate::tenant::{TenantId, TenantTerms};
use crate::units::{Instant, Span};

/// A tenant of the decision in force.
#[derive(Debug)]
struct HostTenant {
    limit: Limit,
    limiter: Option<SharedId>,
    /// IOs and load of the period that goes on.
    period: TenantPeriod,
}

impl HostTenant {
    fn new(id: TenantId) -> HostTenant {
        let (limit, limiter) = (Limit::default(), None);
        HostTenant { limit, limiter, period: TenantPeriod { id, ..TenantPeriod::default() } }
    }

    /// Sets this host's part of a limit.
    fn set<T>(&mut self, now: Instant, limit: Limit, part: f64, limits: &mut Limits<T>) {
        self.limit = limit;
        if limit.is_none() {
            self.limiter.take().into_iter().for_each(|gone| limits.remove(now, gone));
            return;
        }
        let limiter = *self.limiter.get_or_insert_with(|| limits.add());
        limits.set(now, limiter, &limit);
        limits.divide(now, limiter, part);
    }
}

/// The tenants of a host, in the order of the decision in force.
#[derive(Debug, Default)]
pub(super) struct HostTenants(Vec<HostTenant>);

impl HostTenants {
    /// The place of a tenant, here and in the decision.
    pub(super) fn place(&self, id: TenantId) -> Option<usize> {
        self.0.iter().position(|tenant| tenant.period.id == id)
    }

    /// The limiter of a tenant, if it has a limit.
    pub(super) fn limiter(&self, place: usize) -> Option<SharedId> {
        self.0[place].limiter
    }

    /// An IO of one of its VMs is done. `load`: slots · time at the array, in seconds.
    #[inline]
    pub(super) fn add(&mut self, place: usize, load: f64) {
        let period = &mut self.0[place].period;
        period.ios += 1;
        period.load += load;
    }

    /// Ends the period of each tenant.
    pub(super) fn measure<T>(
        &mut self,
        now: Instant,
        elapsed: Span,
        limits: &mut Limits<T>,
        into: &mut Vec<TenantPeriod>,
    ) {
        into.clear();
        into.extend(self.0.iter_mut().map(|tenant| {
            let begun = TenantPeriod { id: tenant.period.id, ..TenantPeriod::default() };
            let mut period = core::mem::replace(&mut tenant.period, begun);
            if let Some(limiter) = tenant.limiter {
                (period.done, period.held) = limits.roll(now, limiter, elapsed);
            }
            period
        }));
    }

    /// Takes over the tenants of a decision. Returns whether these or their limits are others: VMs are to be placed anew then.
    pub(super) fn apply<T>(
        &mut self,
        now: Instant,
        terms: &[TenantTerms],
        limits: &mut Limits<T>,
    ) -> bool {
        let is_of = |(own, terms): (&HostTenant, &TenantTerms)| {
            (own.period.id, own.limit) == (terms.id, terms.limit)
        };
        if terms.len() == self.0.len() && self.0.iter().zip(terms).all(is_of) {
            for (own, terms) in self.0.iter().zip(terms) {
                own.limiter.iter().for_each(|limiter| limits.divide(now, *limiter, terms.part));
            }
            return false;
        }
        let mut before = core::mem::take(&mut self.0);
        for terms in terms {
            let kept = before.iter().position(|own| own.period.id == terms.id);
            let kept = kept.map(|at| before.swap_remove(at));
            let mut tenant = kept.unwrap_or_else(|| HostTenant::new(terms.id));
            tenant.set(now, terms.limit, terms.part, limits);
            self.0.push(tenant);
        }
        for mut gone in before {
            gone.set(now, Limit::default(), 1.0, limits);
        }
        true
    }
}
