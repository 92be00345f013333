//! The way of an IO through its host.

use alloc::vec::Vec;

use super::{Host, Outstanding, Rule, VmId, Waiting};
use crate::held::HeldBy;
use crate::io::{Heard, Io};
use crate::latency::Direction;
use crate::limit;
use crate::mechanism::{Mechanism, on};
use crate::queue::{Cost, FlowId};
use crate::units::{Instant, Span, larger};

/// An IO that is outstanding at the array. Used again after it completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoId(pub usize);

/// Result of an IO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The array did it.
    Done,
    /// The IO failed. Failures are often quick, so their latency is not taken for the array's.
    Failed,
}

/// An IO to send to the array now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// To be given back to [`Host::complete`].
    pub id: IoId,
    /// The VM whose IO it is.
    pub vm: VmId,
    /// Value that the caller gave to [`Host::submit`].
    pub token: u64,
    /// It goes beyond what the host may have outstanding, as its VM was not served for
    /// [`LawConfig::hold_max`](crate::law::LawConfig::hold_max).
    pub overdue: bool,
}

/// An IO that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// The VM whose IO it was.
    pub vm: VmId,
    /// Value that the caller gave to [`Host::submit`].
    pub token: u64,
    /// The IO that was submitted.
    pub io: Io,
    /// Time held in the host's queue: ours.
    pub held: Span,
    /// Cause of that time, as it was when the IO came, or when its limit let it go.
    pub held_by: HeldBy,
    /// Time from dispatch to completion: the array's.
    pub device: Span,
}

/// Part of the largest window from which on it is full: grants are sums of fractions.
const FULL: f64 = 1.0 - 1e-6;

impl Host {
    /// How many IOs went beyond that, as their VMs were not served for
    /// [`LawConfig::hold_max`](crate::law::LawConfig::hold_max).
    #[must_use]
    pub fn overdue(&self) -> u64 {
        self.overdue
    }

    /// IOs at the array now.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// IOs that wait for their dispatch.
    #[must_use]
    pub fn held(&self) -> usize {
        self.queue.len() + self.limits.len()
    }

    /// Takes an IO of a VM. `token` comes back with its dispatch and its completion.
    pub fn submit(&mut self, now: Instant, vm: VmId, io: Io, token: u64) {
        if self.changed {
            self.share_out(now);
        }
        self.apply_limits(now);
        let state = &mut self.vms[vm.0];
        state.ios += 1;
        let waiting = Waiting { token, io, submitted: now, held_by: HeldBy::Turn };
        if let Some(own) = &state.guarantees
            && let (Some(aside), Some(way)) = (own.aside, limit::way(io))
            && !self.limits.admit(now, aside, io, way)
        {
            return self.limits.hold(now, aside, io, way, waiting);
        }
        self.enqueue(now, vm, waiting);
    }

    /// Puts an IO into the fair queue.
    #[inline]
    pub(super) fn enqueue(&mut self, now: Instant, vm: VmId, mut waiting: Waiting) {
        let cost = waiting.io.cost(self.costs);
        let slices = self.has_slices();
        let (state, flow) = (&mut self.vms[vm.0], FlowId(vm.0));
        self.granted += state.slice.add(now, cost.as_slots(), self.gate.service());
        self.pending += cost.as_slots();
        let short = state.slice.is_short();
        let fits = state.slice.pending() <= state.slice.grant() && self.slices_fit();
        self.regrant(now);
        let ahead = fits && on(Mechanism::OwnGrant) && !self.queue.waits(flow);
        if waiting.held_by != HeldBy::Limit {
            waiting.held_by = if ahead { HeldBy::Turn } else { self.held_by(short) };
        }
        if ahead {
            self.queue.push_ahead(flow, cost, waiting);
        } else {
            self.watch(vm.0);
            self.queue.push(now, flow, cost, slices, waiting);
        }
    }

    /// Some slots of a VM are pending no more.
    #[inline]
    fn unqueue(&mut self, now: Instant, vm: usize, cost: Cost) {
        self.granted += self.vms[vm].slice.take(now, cost.as_slots(), self.gate.service());
        self.pending -= cost.as_slots();
        if self.pending <= 0.0 {
            // Sums of fractions: what is left of them is rounding.
            self.granted = 0.0;
        }
    }

    /// The IO to send to the array now, if one may go. To be asked until it answers `None`,
    /// after every submission and completion, at every wake-up and tick.
    pub fn next_dispatch(&mut self, now: Instant) -> Option<Dispatch> {
        self.apply_limits(now);
        let (flow, cost, waiting, overdue) = self.next(now)?;
        Some(self.dispatch(now, flow, cost, waiting, overdue))
    }

    /// Takes the IO out of the queue that may go now, and says whether it is overdue.
    #[inline]
    fn next(&mut self, now: Instant) -> Option<(FlowId, Cost, Waiting, bool)> {
        // What a neighbour has beyond its own grant, as one large IO or from before grants shrank, is not for this VM to wait for.
        if let Some((flow, cost, waiting)) = self.queue.pop_ahead() {
            return Some((flow, cost, waiting, false));
        }
        if self.gate.has_room() {
            if !self.reserved.is_empty()
                && let Some((flow, cost, waiting)) = self.next_reserved(now)
            {
                return Some((flow, cost, waiting, false));
            }
            let (slices, vms, gate) = (self.has_slices(), &self.vms, &mut self.gate);
            let may = |flow: FlowId, cost: Cost| {
                let own = on(Mechanism::OwnGrant) && slices;
                gate.admits(now, cost) || (own && vms[flow.0].has_room(cost))
            };
            if let Some((flow, cost, waiting)) = self.queue.pop_if(now, may) {
                return Some((flow, cost, waiting, false));
            }
        }
        // Also where nobody waits for a turn: what was due is then forgotten, or `next_wakeup` would name a time that is past.
        let flow = self.queue.overdue(now)?;
        let (cost, waiting) = self.queue.pop_of(now, flow)?;
        Some((flow, cost, waiting, true))
    }

    /// Whether slices bound what may be outstanding.
    fn has_slices(&self) -> bool {
        matches!(self.rule, Rule::Slices { .. })
    }

    /// Whether all grants together are within the most that the host may have outstanding. Where they are not, that bound and
    /// not the slices is what VMs share, in SFQ's order.
    fn slices_fit(&self) -> bool {
        matches!(self.rule, Rule::Slices { most, .. } if self.granted <= most)
    }

    /// Cause for which an IO of a VM waits for its turn now. `short`: the VM wants more than its slice.
    fn held_by(&self, short: bool) -> HeldBy {
        match self.rule {
            Rule::Free => HeldBy::Turn,
            Rule::Window(_) => HeldBy::Window,
            Rule::Slices { most, .. } if self.granted >= FULL * most => HeldBy::Window,
            Rule::Slices { .. } if short => HeldBy::Share,
            Rule::Slices { .. } => HeldBy::Turn,
        }
    }

    /// Counts an IO as outstanding.
    #[inline]
    fn dispatch(
        &mut self,
        now: Instant,
        FlowId(vm): FlowId,
        cost: Cost,
        waiting: Waiting,
        overdue: bool,
    ) -> Dispatch {
        self.overdue += u64::from(overdue);
        let Waiting { token, io, submitted, held_by } = waiting;
        let vm = VmId(vm);
        self.gate.dispatched(now, cost);
        self.at_array.add(now, cost.as_slots());
        self.vms[vm.0].at_array += cost.as_slots();
        let entry = Outstanding { vm, token, io, cost, submitted, held_by, dispatched: now };
        let id = IoId(self.outstanding.insert(entry));
        if let Some(own) = &mut self.vms[vm.0].guarantees {
            own.reservation.iter_mut().for_each(|reservation| reservation.take(now));
            own.aside.iter().for_each(|aside| self.limits.take(now, *aside, io));
        }
        Dispatch { id, vm, token, overdue }
    }

    /// Takes back those IOs of a VM that are held and whose tokens `gone` names: nobody waits for them any more. They have taken nothing,
    /// neither of the window nor of a limit. Returns their tokens. O(held IOs of the VM, and of others that need no turn).
    pub fn withdraw(
        &mut self,
        now: Instant,
        vm: VmId,
        mut gone: impl FnMut(u64) -> bool,
    ) -> Vec<u64> {
        let Some(state) = self.vms.get(vm.0) else { return Vec::new() };
        let aside = state.guarantees.as_ref().and_then(|own| own.aside);
        let mut gone = |waiting: &Waiting| gone(waiting.token);
        let mut tokens: Vec<u64> = Vec::new();
        if let Some(aside) = aside {
            let held = self.limits.withdraw(now, aside, &mut gone);
            tokens.extend(held.into_iter().map(|(_, waiting)| waiting.token));
        }
        for (cost, Waiting { token, io, .. }) in self.queue.withdraw(FlowId(vm.0), &mut gone) {
            self.unqueue(now, vm.0, cost);
            aside.into_iter().for_each(|aside| self.limits.forget(aside, io));
            tokens.push(token);
        }
        self.vms[vm.0].ios -= tokens.len();
        self.regrant(now);
        self.bury(vm);
        tokens
    }

    /// Lets those IOs of a VM into the queue at once that its limits hold back and whose tokens `which` names. The limits count them, so
    /// that what follows waits for longer.
    pub fn hasten(&mut self, now: Instant, vm: VmId, mut which: impl FnMut(u64) -> bool) {
        let aside = self.guarantees(vm).and_then(|own| own.aside);
        let Some(aside) = aside else { return };
        for (_, waiting) in self.limits.hasten(now, aside, |waiting| which(waiting.token)) {
            self.enqueue(now, vm, Waiting { held_by: HeldBy::Limit, ..waiting });
        }
    }

    /// When an IO was dispatched that is outstanding.
    #[must_use]
    pub fn dispatched(&self, id: IoId) -> Option<Instant> {
        self.outstanding.get(id.0).map(|io| io.dispatched)
    }

    /// Takes back an IO from the array, which had it from its dispatch until now. `None` if no such
    /// IO is outstanding.
    pub fn complete(&mut self, now: Instant, id: IoId, outcome: Outcome) -> Option<Completed> {
        self.complete_after(now, id, outcome, Span(u64::MAX))
    }

    /// Takes back an IO that the array had for no longer than `device`. The rest of the time since
    /// its dispatch it waited for the caller, who began it later or learned later that it was done.
    /// `None` if no such IO is outstanding.
    pub fn complete_after(
        &mut self,
        now: Instant,
        id: IoId,
        outcome: Outcome,
        device: Span,
    ) -> Option<Completed> {
        let done = self.outstanding.try_remove(id.0)?;
        self.called = now;
        let device = now.since(done.dispatched).min(device);
        let slots = done.cost.as_slots();
        self.gate.completed(now, done.cost, device);
        self.at_array.add(now, -slots);
        let vm = &mut self.vms[done.vm.0];
        vm.ios -= 1;
        vm.at_array = larger(vm.at_array - slots, 0.0);
        vm.done += slots;
        let removed = vm.removed;
        self.unqueue(now, done.vm.0, done.cost);
        let vm = &mut self.vms[done.vm.0];
        let costs = self.costs;
        let usual = self.decision.reference_size;
        let heard = match outcome {
            Outcome::Done => done.io.heard(device, costs, usual),
            Outcome::Failed => None,
        };
        match heard {
            Some(Heard::Data(direction)) => {
                self.meter.add(direction, done.io.bytes, device);
                if let Some(own) = &mut vm.guarantees {
                    let held = done.dispatched.since(done.submitted);
                    own.reservation.iter_mut().for_each(|it| it.add(device, slots));
                    own.objective.iter_mut().for_each(|it| it.add(held, device));
                    own.place
                        .iter()
                        .for_each(|place| self.tenants.add(*place, device.secs() * slots));
                }
            }
            Some(Heard::Discard(size, latency)) => {
                self.meter.add_unscaled(Direction::Write, size, latency);
            }
            None => {}
        }
        self.regrant(now);
        if removed {
            self.bury(done.vm);
        }
        Some(Completed {
            vm: done.vm,
            token: done.token,
            io: done.io,
            held: done.dispatched.since(done.submitted),
            held_by: done.held_by,
            device,
        })
    }

    /// When to ask [`next_dispatch`](Self::next_dispatch) again though nothing happened.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Instant> {
        let limits = self.limits.next().filter(|_| self.limits.len() > 0);
        if self.queue.is_empty() {
            return limits;
        }
        [limits, self.queue.next_due(), self.gate.opens_at()].into_iter().flatten().min()
    }
}
