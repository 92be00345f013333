//! What some VMs of a host have beside their shares: an objective, a limit, a reservation, a tenant.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::{Host, VmConfig, VmId, Waiting};
use crate::held::HeldBy;
use crate::limit::{AsideId, Limit};
use crate::objective::{Objective, ObjectiveState};
use crate::queue::{Cost, FlowId};
use crate::reservation::{Reservation, ReservationState};
use crate::tenant::TenantId;
use crate::units::{Instant, Span};

/// Guarantees of a VM beside its shares, apart from the VM, as few have any. Fields that each IO needs come first.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Guarantees {
    /// Its place beside the queue, if it has a limit or its tenant has one.
    pub(super) aside: Option<AsideId>,
    pub(super) objective: Option<Box<Objective>>,
    /// The law has the objective of the period that ended.
    judged: bool,
    /// Its tenant's place, if the host knows the tenant.
    pub(super) place: Option<usize>,
    pub(super) reservation: Option<Reservation>,
    pub(super) tenant: Option<TenantId>,
}

impl Guarantees {
    /// Ends the period of the objective, if there is one.
    pub(super) fn measure_objective(&mut self) -> Option<Objective> {
        self.judged = self.objective.is_some();
        self.objective.as_mut().map(|objective| objective.measure())
    }
}

impl Host {
    /// Changes what a VM has beside its shares.
    pub(super) fn guarantee(&mut self, now: Instant, id: VmId, config: &VmConfig) {
        let VmConfig { shares: _, burst: _, target, limit, reservation, tenant } = config;
        let has = target.is_some() || !limit.is_none() || *reservation > 0.0 || tenant.is_some();
        let vm = &mut self.vms[id.0];
        if !has && vm.guarantees.is_none() {
            return;
        }
        let own = vm.guarantees.get_or_insert_default();
        if own.objective.as_ref().map(|objective| objective.target()) != *target {
            own.objective = target.map(|target| Box::new(Objective::new(target)));
            own.judged = false;
        }
        own.tenant = *tenant;
        self.reserve(id, *reservation);
        self.limit(now, id, limit);
        if !has {
            self.vms[id.0].guarantees = None;
        }
    }

    fn own(&mut self, id: VmId) -> &mut Guarantees {
        self.vms[id.0].guarantees.get_or_insert_default()
    }

    /// Changes the reservation of a VM.
    fn reserve(&mut self, id: VmId, iops: f64) {
        match &mut self.own(id).reservation {
            Some(reservation) if iops > 0.0 => reservation.set(iops),
            reservation => {
                *reservation = (iops > 0.0).then(|| Reservation::new(iops));
                self.vms[id.0].slice.floor = 0.0;
                self.reserved.retain(|Reverse((_, vm))| *vm != id.0);
                self.watch(id.0);
            }
        }
    }

    /// Changes the limit of a VM.
    fn limit(&mut self, now: Instant, id: VmId, limit: &Limit) {
        if !limit.is_none() || self.own(id).aside.is_some() {
            let (aside, shares) = (self.aside(id), f64::from(self.vms[id.0].shares.0));
            self.limits.set_own(now, aside, shares, limit);
        }
        self.place(now, id);
    }

    /// The place of a VM beside the queue, which it has from now on.
    fn aside(&mut self, id: VmId) -> AsideId {
        let shares = f64::from(self.vms[id.0].shares.0);
        let own = self.vms[id.0].guarantees.get_or_insert_default();
        *own.aside.get_or_insert_with(|| self.limits.enter(id.0, shares))
    }

    /// Puts a VM under its tenant's limit, or takes it out of that. A VM without any limit has no place beside the queue.
    fn place(&mut self, now: Instant, id: VmId) {
        let place = self.own(id).tenant.and_then(|tenant| self.tenants.place(tenant));
        self.own(id).place = place;
        let shared = place.and_then(|place| self.tenants.limiter(place));
        if shared.is_some() {
            self.aside(id);
        }
        let Some(aside) = self.own(id).aside else { return };
        self.limits.share(now, aside, shared);
        if !self.limits.concern(aside) {
            self.own(id).aside = None;
            for waiting in self.limits.leave(now, aside) {
                self.enqueue(now, id, waiting);
            }
        }
    }

    /// Takes a VM from its limits. What these held back goes with the next dispatch.
    pub(super) fn free(&mut self, now: Instant, id: VmId) {
        if let Some(aside) = self.guarantees(id).and_then(|own| own.aside) {
            self.limits.set_own(now, aside, 0.0, &Limit::default());
            self.limits.share(now, aside, None);
        }
    }

    /// Takes over the tenants of the decision.
    pub(super) fn apply_tenants(&mut self, now: Instant) {
        if !self.tenants.apply(now, &self.decision.tenants, &mut self.limits) {
            return;
        }
        let members = self.vms.iter_mut().filter_map(|(id, vm)| {
            vm.guarantees.as_mut()?.place = None;
            (!vm.removed).then_some(VmId(id))
        });
        let members: Vec<_> = members.collect();
        members.into_iter().for_each(|id| self.place(now, id));
    }

    /// Takes over what the law made of the objectives that it was given last.
    pub(super) fn apply_objectives(&mut self) {
        for (id, objective) in &self.decision.objectives {
            let own = self.vms.get_mut(id.0).and_then(|vm| vm.guarantees.as_mut());
            // The VM of the id may be another one since.
            let Some(own) = own.filter(|own| own.judged) else { continue };
            own.judged = false;
            own.objective.iter_mut().for_each(|own| own.apply(objective));
        }
    }

    /// Queues what limits held back until now.
    #[inline]
    pub(super) fn apply_limits(&mut self, now: Instant) {
        if self.limits.is_due(now) {
            self.apply_due_limits(now);
        }
    }

    #[cold]
    fn apply_due_limits(&mut self, now: Instant) {
        let mut limits = core::mem::take(&mut self.limits);
        limits.open(now, |vm, mut waiting, bound| {
            waiting.held_by = if bound { HeldBy::Limit } else { HeldBy::Turn };
            self.enqueue(now, VmId(vm), waiting);
        });
        self.limits = limits;
    }

    /// Looks for the time at which the next IO of a VM is due by its reservation, if it has one.
    #[inline]
    pub(super) fn watch(&mut self, vm: usize) {
        let Some(own) = &mut self.vms[vm].guarantees else { return };
        if let Some(reservation) = &mut own.reservation
            && !core::mem::replace(&mut reservation.watched, true)
        {
            self.reserved.push(Reverse((reservation.due(), vm)));
        }
    }

    /// Takes the IO out of the queue that is due by its VM's reservation, if one is.
    pub(super) fn next_reserved(&mut self, now: Instant) -> Option<(FlowId, Cost, Waiting)> {
        while let Some(&Reverse((at, vm))) = self.reserved.peek()
            && at <= now
        {
            self.reserved.pop();
            let flow = FlowId(vm);
            let own = self.vms.get_mut(vm).and_then(|vm| vm.guarantees.as_mut());
            let Some(reservation) = own.and_then(|own| own.reservation.as_mut()) else { continue };
            let due = reservation.due();
            reservation.watched = self.queue.waits(flow);
            if !reservation.watched {
                continue;
            }
            let next = if due <= now { self.queue.pop_of(now, flow) } else { None };
            // Another IO of it waits, or else the next look ends this.
            self.reserved.push(Reverse((if next.is_some() { now + Span(1) } else { due }, vm)));
            if let Some((cost, waiting)) = next {
                return Some((flow, cost, waiting));
            }
        }
        None
    }

    pub(super) fn guarantees(&self, vm: VmId) -> Option<&Guarantees> {
        self.vms.get(vm.0)?.guarantees.as_deref()
    }

    /// How a VM's reservation stands, if it has one.
    #[must_use]
    pub fn reservation(&self, vm: VmId) -> Option<ReservationState> {
        Some(self.guarantees(vm)?.reservation.as_ref()?.standing())
    }

    /// How a VM's latency objective stands, if it has one.
    #[must_use]
    pub fn standing(&self, vm: VmId) -> Option<ObjectiveState> {
        let objective = self.guarantees(vm)?.objective.as_ref()?;
        Some(objective.standing(self.decision.room.threshold))
    }
}
