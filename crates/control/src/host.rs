//! One host at one volume: its VMs' IOs in, the order and the time of their dispatch out.
//!
//! The caller owns the IOs and the clock. It tells the host what arrives ([`Host::submit`]), asks
//! what may go now ([`Host::next_dispatch`], until it answers `None`), and says what came back
//! ([`Host::complete`]). Once per period it calls [`Host::tick`] with what the exchange shows and
//! publishes the report that it gets. When nothing else happens, [`Host::next_wakeup`] says when
//! to ask again.

mod guarantees;

use alloc::boxed::Box;
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use slab::Slab;

use self::guarantees::Guarantees;
use crate::cluster::{Report, Source, View};
use crate::config::{Config, ConfigError};
use crate::forecast::Outlook;
use crate::gate::Gate;
use crate::governor::{Governor, Measured, VmDemand};
use crate::held::HeldBy;
use crate::integral::Integral;
use crate::io::{Costs, Heard, Io};
use crate::latency::{Direction, Meter};
use crate::law::LawConfig;
use crate::limit::{self, Limit, Limits};
use crate::mechanism::{Mechanism, on};
use crate::objective::Price;
use crate::queue::{Cost, FairQueue, FlowId};
use crate::settings::Settings;
use crate::slices::{Slice, SliceBounds};
use crate::tenant::{Member, TenantId, TenantPart, Tenants};
use crate::threshold::Estimate;
use crate::units::{Instant, Shares, Span, Window, larger, smaller};

/// A VM of this host. The id of one that was removed is used again, as soon as none of its IOs is
/// held or outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VmId(pub usize);

/// An IO that is outstanding at the array. Used again after it completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IoId(pub usize);

/// How an IO ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The array did it.
    Done,
    /// It failed. Failures are often quick, so their latency is not taken for the array's.
    Failed,
}

/// An IO to send to the array now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// To be given back to [`Host::complete`].
    pub id: IoId,
    /// The VM whose IO it is.
    pub vm: VmId,
    /// What the caller gave to [`Host::submit`].
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
    /// What the caller gave to [`Host::submit`].
    pub token: u64,
    /// The IO that was submitted.
    pub io: Io,
    /// Time held in the host's queue: ours.
    pub held: Span,
    /// Cause of that time, as it was when the IO came.
    pub held_by: HeldBy,
    /// Time from dispatch to completion: the array's.
    pub device: Span,
}

/// A VM's part in its host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VmConfig {
    /// Its weight against all other VMs at the volume, on any host. 1 to [`VmConfig::MAX_SHARES`].
    pub shares: Shares,
    /// Slots it may gather while idle and spend ahead of its neighbours as one batch.
    pub burst: f64,
    /// What its IOs are to take at the array at most, in the mean
    /// ([`crate::objective`]).
    pub target: Option<Span>,
    /// The most that it does ([`crate::limit`]).
    pub limit: Limit,
    /// IO/s that it has whatever its shares ([`crate::reservation`]); 0 for none.
    pub reservation: f64,
    /// The tenant whose VM it is ([`crate::tenant`]).
    pub tenant: Option<TenantId>,
}

/// What a VM may take now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VmPart {
    /// Shares in force of the VM.
    pub shares: Shares,
    /// Slots that it may have outstanding. `None` where nothing bounds each VM.
    pub slice: Option<f64>,
    /// Its IOs that are held.
    pub held: usize,
    /// Those of them that its limit or its tenant's holds back.
    pub limited: usize,
}

impl VmConfig {
    /// More shares than this would leave the smallest VM nothing to count with.
    pub const MAX_SHARES: u32 = 1_000_000;

    /// A VM of these shares, without burst, objective, limit and reservation.
    #[must_use]
    pub fn of(shares: Shares) -> VmConfig {
        VmConfig {
            shares,
            burst: 0.0,
            target: None,
            limit: Limit::default(),
            reservation: 0.0,
            tenant: None,
        }
    }
}

/// Part of the largest window from which on it is full: grants are sums of fractions.
const FULL: f64 = 1.0 - 1e-6;

#[derive(Debug)]
struct Waiting {
    token: u64,
    io: Io,
    submitted: Instant,
    held_by: HeldBy,
}

#[derive(Debug)]
struct Outstanding {
    vm: VmId,
    token: u64,
    io: Io,
    cost: Cost,
    submitted: Instant,
    held_by: HeldBy,
    dispatched: Instant,
}

/// What each IO needs comes first and takes two lines of the processor's cache.
#[derive(Debug)]
#[repr(C, align(64))]
struct Vm {
    /// What it has beside its shares, if anything.
    guarantees: Option<Box<Guarantees>>,
    /// Its IOs that are not done: held and outstanding.
    ios: usize,
    /// What it has at the array, in slots.
    at_array: f64,
    /// Slots that it completed in this period.
    done: f64,
    shares: Shares,
    /// It takes no more IOs and has no part in the window; gone when the last one is done.
    removed: bool,
    /// What it may have outstanding.
    slice: Slice,
}

impl Vm {
    /// Whether an IO of this cost may go by what the VM itself is granted.
    fn has_room(&self, cost: Cost) -> bool {
        self.at_array + cost.as_slots() <= self.slice.grant()
    }
}

/// How what a host may have outstanding is found.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    /// Everything that comes.
    Free,
    /// One window for all of its VMs.
    Window(f64),
    /// The sum of what its VMs are granted, within bounds.
    Slices { least: f64, most: f64 },
}

/// Periods without a call after which a host is taken to have hung: the latency of an IO that completed meanwhile
/// would end when the host looked, not when the array was done.
const HUNG: u64 = 3;

/// Bounds of a VM's slice before the first are computed.
const NOTHING: SliceBounds = SliceBounds { window_per_share: 0.0, fair: 0.0, bind: true };

/// A host at one volume. See the module's documentation.
#[derive(Debug)]
pub struct Host {
    governor: Governor,
    vms: Slab<Vm>,
    /// What they wanted in the last period. Kept for its memory.
    demands: Vec<VmDemand>,
    queue: FairQueue<Waiting>,
    limits: Limits<Waiting>,
    tenants: Tenants,
    /// What the other hosts said of tenants, for the next tick.
    heard: Option<Vec<TenantPart>>,
    /// VMs with a reservation and waiting IOs, and when their next one is due, or earlier.
    reserved: BinaryHeap<Reverse<(Instant, usize)>>,
    /// What waits is charged by these costs.
    costs: Option<Costs>,
    gate: Gate,
    rule: Rule,
    /// The VMs are not those any more that their slices were found for.
    changed: bool,
    /// What all VMs have pending, and what they are granted together.
    pending: f64,
    granted: f64,
    outstanding: Slab<Outstanding>,
    /// What is outstanding, in slots.
    at_array: Integral,
    meter: Meter,
    ticked: Instant,
    /// How long without a call it takes to have hung.
    hung_after: Span,
    /// When it was called last, and when it was called first after it hung.
    called: Instant,
    resumed: Instant,
    /// IOs that went because their VMs were not served for too long.
    overdue: u64,
}

/// Held time from which an IO goes without its turn.
fn patience(law: &LawConfig) -> Span {
    if on(Mechanism::HoldMax) { law.hold_max } else { Span::from_secs(1e6) }
}

impl Host {
    /// A host without VMs.
    ///
    /// # Errors
    /// A parameter that cannot work.
    pub fn new(now: Instant, config: Config) -> Result<Host, ConfigError> {
        let meter = Meter::new(config.size_model, config.reference_size);
        let mut queue = FairQueue::default();
        queue.set_patience(patience(&config.law));
        let governor = Governor::new(config)?;
        let mut limits = Limits::default();
        limits.act(!governor.observes());
        Ok(Host {
            vms: Slab::new(),
            demands: Vec::new(),
            queue,
            limits,
            tenants: Tenants::default(),
            heard: None,
            reserved: BinaryHeap::new(),
            costs: governor.settings().costs,
            gate: Gate::new(now),
            rule: Rule::Free,
            changed: true,
            pending: 0.0,
            granted: 0.0,
            outstanding: Slab::new(),
            at_array: Integral::new(now),
            meter,
            governor,
            ticked: now,
            hung_after: Span(u64::MAX),
            called: now,
            resumed: now,
            overdue: 0,
        })
    }

    /// Adds a VM, which has no IOs yet.
    pub fn add_vm(&mut self, now: Instant, vm: VmConfig) -> VmId {
        let FlowId(flow) = self.queue.add_flow(vm.shares, Cost::slots(vm.burst));
        let slice = Slice::new(now, vm.shares, vm.burst, NOTHING);
        let id = self.vms.insert(Vm {
            shares: vm.shares,
            ios: 0,
            at_array: 0.0,
            removed: false,
            slice,
            guarantees: None,
            done: 0.0,
        });
        self.guarantee(now, VmId(id), &vm);
        // Both are added and removed together, so that both ids are the same.
        debug_assert_eq!(id, flow);
        self.governor.vms_changed();
        self.changed = true;
        VmId(id)
    }

    /// Removes a VM. Its shares count no more from now on. What it has held is still dispatched in
    /// its turn, what it has outstanding still completes, and its id is not used again before all of
    /// that is done. Until then it may submit what follows on that, and nothing afterwards. `false`
    /// if there is no such VM.
    pub fn remove_vm(&mut self, id: VmId) -> bool {
        let Some(vm) = self.vms.get_mut(id.0).filter(|vm| !vm.removed) else { return false };
        vm.removed = true;
        // Its last IOs are not to take as long as a limit may say.
        self.free(self.called, id);
        self.governor.vms_changed();
        self.changed = true;
        self.bury(id);
        true
    }

    /// Forgets a VM that was removed, once nothing of it is left.
    fn bury(&mut self, id: VmId) {
        if let Some(vm) = self.vms.get(id.0).filter(|vm| vm.removed && vm.ios == 0) {
            if let Some(aside) = vm.guarantees.as_ref().and_then(|own| own.aside) {
                self.limits.leave(self.called, aside).for_each(drop);
            }
            self.vms.remove(id.0);
            self.queue.remove_flow(FlowId(id.0));
        }
    }

    /// The VMs, in the order in which [`Outlook`] has them.
    pub fn vms(&self) -> impl Iterator<Item = VmId> {
        self.vms.iter().filter(|(_, vm)| !vm.removed).map(|(id, _)| VmId(id))
    }

    /// Changes a VM's part, from its next dispatch on. `false` if there is no such VM.
    pub fn set_vm(&mut self, now: Instant, id: VmId, config: VmConfig) -> bool {
        let Some(vm) = self.vms.get_mut(id.0).filter(|vm| !vm.removed) else { return false };
        vm.shares = config.shares;
        vm.slice.set_burst(config.burst);
        self.changed = true;
        self.queue.set_burst(FlowId(id.0), Cost::slots(config.burst));
        self.guarantee(now, id, &config);
        true
    }

    /// Takes from a VM the credit that it gathered while idle: its client has just begun, here or after it moved from another
    /// host, on which it may have spent its credit. `false` if there is no such VM.
    pub fn forget_credit(&mut self, now: Instant, id: VmId) -> bool {
        let Some(vm) = self.vms.get_mut(id.0).filter(|vm| !vm.removed) else { return false };
        vm.slice.forget_credit(now);
        self.queue.forget_credit(FlowId(id.0));
        true
    }

    /// What a VM may take now. `None` if there is no such VM.
    #[must_use]
    pub fn part(&self, id: VmId) -> Option<VmPart> {
        let vm = self.vms.get(id.0).filter(|vm| !vm.removed)?;
        let slice = matches!(self.rule, Rule::Slices { .. }).then(|| vm.slice.slice());
        let limited = self.waits_aside(id);
        let held = self.queue.waiting(FlowId(id.0)) + limited;
        Some(VmPart { shares: vm.shares, slice, held, limited })
    }

    /// Changes the parameters. What is outstanding stays so.
    ///
    /// # Errors
    /// A parameter that cannot work; nothing is changed then.
    pub fn set_config(&mut self, now: Instant, config: Config) -> Result<(), ConfigError> {
        self.governor.set_config(config)?;
        let Config { size_model, reference_size, .. } = *self.governor.config();
        self.meter.scale(size_model, reference_size);
        let patience = patience(&self.config().law);
        self.queue.set_patience(patience);
        self.limits.act(!self.governor.observes());
        self.charge_anew(now);
        self.share_out(now);
        Ok(())
    }

    /// Charges what waits by the slots in force, if these are others now: an IO of many slots of before might fit into no window of now.
    fn charge_anew(&mut self, now: Instant) {
        let costs = self.governor.settings().costs;
        if self.costs == costs {
            return;
        }
        self.costs = costs;
        let (vms, service) = (&mut self.vms, self.gate.service());
        self.queue.charge_anew(|flow, before, waiting| {
            let cost = waiting.io.cost(costs);
            let slice = &mut vms[flow.0].slice;
            slice.take(now, before.as_slots(), service);
            slice.add(now, cost.as_slots(), service);
            cost
        });
    }

    /// Computes how many slots each VM, and the host, may have outstanding.
    fn share_out(&mut self, now: Instant) {
        self.changed = false;
        let room = self.governor.room();
        self.tenants.share_out(self.governor.window_per_share(), &room);
        let mut shares = 0.0;
        for (id, vm) in self.vms.iter_mut().filter(|(_, vm)| !vm.removed) {
            let own = f64::from(vm.shares.0);
            let place = vm.guarantees.as_ref().and_then(|own| own.place);
            let (counts, awake) = place.map_or((own, own), |place| self.tenants.weigh(place, own));
            vm.slice.set_shares(counts, awake);
            self.queue.set_weight(FlowId(id), counts);
            shares += awake;
        }
        let bounds = self.governor.slice_bounds(shares);
        let window = self.governor.window().0;
        let (least, most) = self.governor.bounds();
        self.rule = match (window.is_infinite(), bounds.bind) {
            (true, _) => Rule::Free,
            (false, true) => Rule::Slices { least, most },
            (false, false) => Rule::Window(window),
        };
        (self.pending, self.granted) = (0.0, 0.0);
        let mut weights = 0.0;
        for (_, vm) in &mut self.vms {
            if let Some(own) = vm.guarantees.as_mut().filter(|_| !vm.removed)
                && let Some(reservation) = &mut own.reservation
            {
                reservation.scale(room.scale);
                vm.slice.set_floor(reservation.floor().slots(&room));
            }
            vm.slice.set(now, bounds);
            weights += if vm.removed { 0.0 } else { vm.slice.weight() };
            self.pending += vm.slice.pending();
            self.granted += vm.slice.grant();
        }
        let full = match self.rule {
            Rule::Free => f64::INFINITY,
            Rule::Window(window) => window,
            Rule::Slices { least, most } => (bounds.window_per_share * weights).clamp(least, most),
        };
        self.gate.set_full(now, full, self.governor.threshold());
        self.regrant(now);
    }

    /// Tells the gate what the host may have outstanding.
    fn regrant(&mut self, now: Instant) {
        let grant = match self.rule {
            Rule::Free => f64::INFINITY,
            Rule::Window(window) => smaller(self.pending, window),
            Rule::Slices { least, most } => {
                smaller(larger(self.granted, smaller(least, self.pending)), most)
            }
        };
        self.gate.set_grant(now, grant);
    }

    /// The parameters in force.
    #[must_use]
    pub fn config(&self) -> &Config {
        self.governor.config()
    }

    /// The window in force: what the host may have outstanding while all of its VMs want what they
    /// wanted in the last period.
    #[must_use]
    pub fn window(&self) -> Window {
        self.governor.window()
    }

    /// What the host may have outstanding at this instant, in slots.
    #[must_use]
    pub fn grant(&self) -> Window {
        self.gate.grant()
    }

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
        let mut waiting = Waiting { token, io, submitted: now, held_by: HeldBy::Turn };
        if let Some(own) = &state.guarantees
            && let (Some(aside), Some(way)) = (own.aside, limit::way(io))
            && !self.limits.admit(now, aside, io, way)
        {
            waiting.held_by = HeldBy::Limit;
            return self.limits.hold(now, aside, io, way, waiting);
        }
        self.enqueue(now, vm, waiting);
    }

    /// Puts an IO into the fair queue.
    #[inline]
    fn enqueue(&mut self, now: Instant, vm: VmId, mut waiting: Waiting) {
        let cost = waiting.io.cost(self.costs);
        let slices = self.has_slices();
        let (state, flow) = (&mut self.vms[vm.0], FlowId(vm.0));
        let wants = slices && state.slice.is_short();
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
            self.queue.push_ahead(now, flow, cost, waiting);
        } else {
            self.watch(vm.0);
            self.queue.push(now, flow, cost, wants, waiting);
        }
    }

    /// Some slots of a VM are pending no more.
    #[inline]
    fn unqueue(&mut self, now: Instant, vm: usize, cost: Cost) {
        let vm_slice = &mut self.vms[vm].slice;
        let (slices, wanted) = (matches!(self.rule, Rule::Slices { .. }), vm_slice.is_short());
        self.granted += vm_slice.take(now, cost.as_slots(), self.gate.service());
        self.pending -= cost.as_slots();
        if slices && wanted && !vm_slice.is_short() {
            self.queue.rests(FlowId(vm), cost);
        }
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
        let room = self.gate.admits_own();
        if let Some(ahead) = self.queue.pop_ahead(now, room) {
            return Some(ahead);
        }
        if room
            && !self.reserved.is_empty()
            && let Some((flow, cost, waiting)) = self.next_reserved(now)
        {
            return Some((flow, cost, waiting, false));
        }
        let (slices, vms, gate) = (self.has_slices(), &self.vms, &mut self.gate);
        let may = |flow: FlowId, cost: Cost| {
            gate.admits(now, cost)
                || (room && on(Mechanism::OwnGrant) && slices && vms[flow.0].has_room(cost))
        };
        if let Some((flow, cost, waiting)) = self.queue.pop_if(now, may) {
            return Some((flow, cost, waiting, false));
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
        self.notice(now);
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
        let seen = outcome == Outcome::Done && done.dispatched >= self.resumed;
        let costs = self.costs;
        let usual = self.governor.config().reference_size;
        let heard = if seen { done.io.heard(device, costs, usual) } else { None };
        match heard {
            Some(Heard::Data(direction)) => {
                self.meter.add(direction, done.io.bytes, device);
                if let Some(own) = &mut vm.guarantees {
                    let held = done.dispatched.since(done.submitted);
                    own.reservation.iter_mut().for_each(|it| it.add(device, slots));
                    own.objective.iter_mut().for_each(|it| it.add(held, device));
                    own.place
                        .iter()
                        .for_each(|place| self.tenants.add(*place, 1, device.secs() * slots));
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

    /// Notices that it was not called for so long that it must have hung.
    fn notice(&mut self, now: Instant) {
        if now.since(self.called) > self.hung_after && on(Mechanism::Hung) {
            self.resumed = now;
        }
        self.called = now;
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

    /// Ends a period: finds the new window from what was measured and what the exchange shows,
    /// and says what to publish.
    pub fn tick(&mut self, now: Instant, view: View) -> Report {
        self.notice(now);
        let elapsed = now.since(self.ticked);
        self.ticked = now;
        let nanos = elapsed.0 as f64;
        self.demands.clear();
        let window_per_share = self.governor.window_per_share();
        let room = self.governor.room();
        let mut reserved = self.tenants.reserved(&room);
        self.tenants.begin();
        let vms = self.vms.iter_mut().filter(|(_, vm)| !vm.removed);
        self.demands.extend(vms.map(|(_, vm)| {
            let wanted = vm.slice.roll(now, nanos);
            let rate = Some(core::mem::take(&mut vm.done) / elapsed.secs().max(1e-9));
            let shares = f64::from(vm.shares.0);
            let tenant = vm.guarantees.as_ref().and_then(|own| own.place);
            // What a tenant's VM counts with is found once a period.
            let (awake, counts) =
                tenant.map_or((shares, shares), |_| (vm.slice.awake(), vm.slice.shares()));
            let demand = VmDemand {
                shares: awake,
                counts,
                taken: wanted.shares,
                pending: wanted.pending,
                used: wanted.used,
                rate,
            };
            let Some(own) = &mut vm.guarantees else { return demand };
            if let Some(place) = tenant {
                let held = own.aside.is_some_and(|aside| self.limits.waiting(aside) > 0);
                let used = wanted.used / window_per_share;
                self.tenants.account(
                    place,
                    &Member {
                        shares,
                        used: if used.is_finite() { used } else { 0.0 },
                        wants: demand.is_limited(),
                        active: wanted.pending > 0.0 || held,
                    },
                );
            }
            if let Some(reservation) = &mut own.reservation {
                let asked = demand.limited_part(window_per_share);
                reservation.roll(elapsed.secs(), demand.pending, asked);
                reserved += reservation.floor().asks(&room);
            }
            demand
        }));
        let measured = Measured {
            elapsed,
            interval: self.meter.roll(),
            outstanding: self.at_array.mean(now, elapsed),
            vms: &self.demands,
            reserved,
        };
        let mut report = self.governor.tick(measured, view);
        // Where most are not heard, what the others said last stays.
        let heard = self.heard.take().filter(|_| report.source != Source::LastGood);
        self.tenants.hear(heard.as_deref());
        let limits = &mut self.limits;
        self.tenants.end(elapsed, |_, _, limiter| {
            limiter.map_or((0.0, 0.0), |limiter| limits.roll(now, limiter, elapsed))
        });
        for (limiter, part) in self.tenants.limiters() {
            self.limits.divide(now, limiter, part);
        }
        self.meter.learn(self.governor.lines());
        report.wants = self.wants();
        if self.resumed < now {
            self.hung_after = Span(elapsed.0.saturating_mul(HUNG));
        }
        self.charge_anew(now);
        self.share_out(now);
        report
    }

    /// What the objective costs that is in force, if one is.
    #[must_use]
    pub fn objective_price(&self) -> Option<Price> {
        self.governor.objective_price()
    }

    /// What would have been done, if the law only observes.
    #[must_use]
    pub fn outlook(&self) -> Option<&Outlook> {
        self.governor.outlook()
    }

    /// What is known of the threshold, if it is found while working.
    #[must_use]
    pub fn estimate(&self) -> Option<Estimate> {
        self.governor.estimate()
    }

    /// The threshold in force.
    #[must_use]
    pub fn threshold(&self) -> Span {
        self.governor.threshold()
    }

    /// L, the latency that the window rests on, in seconds: CAL(t).
    #[must_use]
    pub fn latency(&self) -> Option<f64> {
        self.governor.latency()
    }

    /// What is in force of the settings that all hosts must have alike.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.governor.settings()
    }
}
