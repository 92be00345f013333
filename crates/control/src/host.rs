//! One host at one volume: its VMs' IOs in, the order and the time of their dispatch out.
//!
//! The caller owns the IOs and the clock. It tells the host what arrives ([`Host::submit`]), asks
//! what may go now ([`Host::next_dispatch`], until it answers `None`), and says what came back
//! ([`Host::complete`]). Once per period it calls [`Host::measure`] for the law
//! ([`Period`](crate::period::Period)), and [`Host::apply`] with what the law decides. Until then the
//! host works by the decision before, also for VMs that come meanwhile. When nothing else happens,
//! [`Host::next_wakeup`] says when to ask again.

mod guarantees;
mod io;
mod part;
mod tenants;
mod vms;

use alloc::boxed::Box;
use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use slab::Slab;

use self::guarantees::Guarantees;
pub use self::io::{Completed, Dispatch, IoId, Outcome};
pub use self::part::{VmConfig, VmId, VmPart};
use self::tenants::HostTenants;
use crate::decision::{Decision, Measurement};
use crate::gate::Gate;
use crate::governor::VmDemand;
use crate::held::HeldBy;
use crate::integral::Integral;
use crate::io::{Costs, Io};
use crate::latency::Meter;
use crate::limit::Limits;
use crate::queue::{Cost, FairQueue, FlowId};
use crate::slices::Slice;
use crate::units::{Instant, Shares, Window, larger, smaller};

#[derive(Debug)]
struct Waiting {
    token: u64,
    io: Io,
    submitted: Instant,
    held_by: HeldBy,
}

/// In a line of the processor's cache: that of an IO which was at the array for long is fetched once.
#[derive(Debug)]
#[repr(align(64))]
struct Outstanding {
    vm: VmId,
    token: u64,
    io: Io,
    cost: Cost,
    submitted: Instant,
    held_by: HeldBy,
    dispatched: Instant,
}

/// State of a VM. Fields that each IO needs come first, in two cache lines.
#[derive(Debug)]
#[repr(C, align(64))]
struct Vm {
    /// Guarantees beside its shares, if it has any.
    guarantees: Option<Box<Guarantees>>,
    /// Its IOs that are not done: held and outstanding.
    ios: usize,
    /// Outstanding IOs of the VM at the array, in slots.
    at_array: f64,
    /// Slots that it completed in this period.
    done: f64,
    shares: Shares,
    /// The VM takes no more IOs and has no part in the window; gone after its last IO.
    removed: bool,
    /// Slice of the VM, and its grant.
    slice: Slice,
}

impl Vm {
    /// Whether an IO of this cost may go by what the VM itself is granted.
    fn has_room(&self, cost: Cost) -> bool {
        self.at_array + cost.as_slots() <= self.slice.grant()
    }
}

/// Rule for the outstanding IOs of a host.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    /// Everything that comes.
    Free,
    /// One window for all of its VMs.
    Window(f64),
    /// The sum of what its VMs are granted, within bounds.
    Slices { least: f64, most: f64 },
}

/// A host at one volume. See the module's documentation.
#[derive(Debug)]
pub struct Host {
    /// Terms by which it works.
    decision: Decision,
    vms: Slab<Vm>,
    queue: FairQueue<Waiting>,
    limits: Limits<Waiting>,
    tenants: HostTenants,
    /// VMs with a reservation and waiting IOs, and when their next one is due, or earlier.
    reserved: BinaryHeap<Reverse<(Instant, usize)>>,
    /// What waits is charged by these costs.
    costs: Option<Costs>,
    gate: Gate,
    rule: Rule,
    /// The VMs are not those any more that their slices were found for.
    changed: bool,
    /// VMs came or went in this period.
    vms_changed: bool,
    /// What all VMs have pending, and what they are granted together.
    pending: f64,
    granted: f64,
    outstanding: Slab<Outstanding>,
    /// Outstanding IOs, in slots.
    at_array: Integral,
    meter: Meter,
    measured: Instant,
    /// When a period or an IO ended last.
    called: Instant,
    /// IOs that went because their VMs were not served for too long.
    overdue: u64,
}

impl Host {
    /// A host without VMs.
    #[must_use]
    pub fn new(now: Instant, decision: &Decision) -> Host {
        let mut host = Host {
            decision: decision.clone(),
            vms: Slab::new(),
            queue: FairQueue::default(),
            limits: Limits::default(),
            tenants: HostTenants::default(),
            reserved: BinaryHeap::new(),
            costs: decision.costs,
            gate: Gate::new(now),
            rule: Rule::Free,
            changed: true,
            vms_changed: false,
            pending: 0.0,
            granted: 0.0,
            outstanding: Slab::new(),
            at_array: Integral::new(now),
            meter: Meter::new(decision.size_model, decision.reference_size),
            measured: now,
            called: now,
            overdue: 0,
        };
        host.limits.act(decision.acts);
        host.apply(now, decision);
        host
    }

    /// Works by another decision. What is outstanding stays so.
    pub fn apply(&mut self, now: Instant, decision: &Decision) {
        self.called = now;
        if self.decision.acts != decision.acts {
            self.limits.act(decision.acts);
        }
        self.decision.clone_from(decision);
        self.meter.scale(decision.size_model, decision.reference_size);
        self.meter.learn(decision.lines);
        self.queue.set_patience(decision.hold_max);
        self.apply_tenants(now);
        self.apply_objectives();
        self.charge_anew(now);
        self.share_out(now);
    }

    /// The decision by which it works.
    #[must_use]
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Charges what waits by the slots in force, if these are others now: an IO of many slots of before might fit into no window of now.
    fn charge_anew(&mut self, now: Instant) {
        let costs = self.decision.costs;
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
        let room = self.decision.room;
        let mut shares = 0.0;
        for (_, vm) in self.vms.iter_mut().filter(|(_, vm)| !vm.removed) {
            let own = f64::from(vm.shares.0);
            let place = vm.guarantees.as_ref().and_then(|own| own.place);
            let (counts, awake) =
                place.map_or((own, own), |place| self.decision.tenants[place].weigh(own));
            (vm.slice.shares, vm.slice.awake) = (counts, awake);
            shares += awake;
        }
        let bounds = self.decision.slice_bounds(shares);
        let window = self.decision.window.0;
        let (least, most) = self.decision.bounds;
        self.rule = match (window.is_infinite(), bounds.bind) {
            (true, _) => Rule::Free,
            (false, true) => Rule::Slices { least, most },
            (false, false) => Rule::Window(window),
        };
        (self.pending, self.granted) = (0.0, 0.0);
        let mut weights = 0.0;
        for (id, vm) in &mut self.vms {
            if let Some(own) = vm.guarantees.as_mut().filter(|_| !vm.removed)
                && let Some(reservation) = &mut own.reservation
            {
                reservation.scale(room.scale);
                vm.slice.floor = reservation.floor().slots(&room);
            }
            vm.slice.set(now, bounds);
            self.queue.set_weight(FlowId(id), vm.slice.weight);
            weights += if vm.removed { 0.0 } else { vm.slice.weight };
            self.pending += vm.slice.pending();
            self.granted += vm.slice.grant();
        }
        let full = match self.rule {
            Rule::Free => f64::INFINITY,
            Rule::Window(window) => window,
            Rule::Slices { least, most } => (bounds.window_per_share * weights).clamp(least, most),
        };
        self.gate.set_full(now, full, self.decision.threshold);
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

    /// Slots that the host may have outstanding at this instant.
    #[must_use]
    pub fn grant(&self) -> Window {
        self.gate.grant()
    }

    /// Ends a period: writes what was measured `into` a measurement, whose memory is used again.
    pub fn measure(&mut self, now: Instant, into: &mut Measurement) {
        self.called = now;
        let elapsed = now.since(self.measured);
        self.measured = now;
        let (secs, nanos) = (elapsed.secs(), elapsed.0 as f64);
        let Host { decision, limits, .. } = self;
        let (room, window_per_share) = (decision.room, decision.window_per_share);
        into.vms.clear();
        into.objectives.clear();
        for (id, vm) in self.vms.iter_mut().filter(|(_, vm)| !vm.removed) {
            let wanted = vm.slice.roll(now, nanos);
            let shares = f64::from(vm.shares.0);
            let mut demand = VmDemand {
                own: vm.shares,
                shares,
                counts: shares,
                taken: wanted.shares,
                pending: wanted.pending,
                used: wanted.used,
                rate: Some(core::mem::take(&mut vm.done) / secs.max(1e-9)),
                ..VmDemand::default()
            };
            if let Some(own) = &mut vm.guarantees {
                if own.place.is_some() {
                    // What a tenant's VM counts with is found once a period.
                    (demand.shares, demand.counts) = (vm.slice.awake, vm.slice.shares);
                    let held = own.aside.is_some_and(|aside| limits.waiting(aside) > 0);
                    (demand.tenant, demand.active) = (own.tenant, wanted.pending > 0.0 || held);
                }
                if let Some(reservation) = &mut own.reservation {
                    let asked = demand.limited_part(window_per_share);
                    reservation.roll(secs, demand.pending, asked);
                    demand.reserved = reservation.floor().asks(&room);
                }
                if let Some(objective) = own.measure_objective() {
                    into.objectives.push((VmId(id), objective));
                }
            }
            into.vms.push(demand);
        }
        into.elapsed = elapsed;
        into.interval = self.meter.roll();
        into.outstanding = self.at_array.mean(now, elapsed);
        into.vms_changed = core::mem::take(&mut self.vms_changed);
        into.full = None;
        self.tenants.measure(now, elapsed, &mut self.limits, &mut into.tenants);
    }
}
