//! One host at one volume: its VMs' IOs in, the order and the time of their dispatch out.
//!
//! The caller owns the IOs and the clock. It tells the host what arrives ([`Host::submit`]), asks
//! what may go now ([`Host::next_dispatch`], until it answers `None`), and says what came back
//! ([`Host::complete`]). Once per period it calls [`Host::tick`] with what the exchange shows and
//! publishes the report that it gets. When nothing else happens, [`Host::next_wakeup`] says when
//! to ask again.

mod guarantees;
mod io;
mod part;
mod vms;

use alloc::boxed::Box;
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use slab::Slab;

use self::guarantees::Guarantees;
pub use self::io::{Completed, Dispatch, IoId, Outcome};
pub use self::part::{VmConfig, VmId, VmPart};
use crate::cluster::{Report, View};
use crate::config::{Config, ConfigError};
use crate::gate::Gate;
use crate::governor::{Governor, Measured, VmDemand};
use crate::held::HeldBy;
use crate::integral::Integral;
use crate::io::{Costs, Io};
use crate::latency::Meter;
use crate::law::LawConfig;
use crate::limit::Limits;
use crate::mechanism::{Mechanism, on};
use crate::queue::{Cost, FairQueue, FlowId};
use crate::slices::Slice;
use crate::tenant::{Member, Tenants};
use crate::units::{Instant, Shares, Span, Window, larger, smaller};

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
    /// When a period or an IO ended last.
    called: Instant,
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
            called: now,
            overdue: 0,
        })
    }

    /// Changes the parameters. What is outstanding stays so.
    ///
    /// # Errors
    /// A parameter that cannot work; nothing is changed then.
    pub fn set_config(&mut self, now: Instant, config: Config) -> Result<(), ConfigError> {
        self.governor.set_config(config)?;
        let Config { size_model, reference_size, .. } = *self.governor.config();
        self.meter.scale(size_model, reference_size);
        let patience = patience(&self.governor.config().law);
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
            (vm.slice.shares, vm.slice.awake) = (counts, awake);
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
                vm.slice.floor = reservation.floor().slots(&room);
            }
            vm.slice.set(now, bounds);
            weights += if vm.removed { 0.0 } else { vm.slice.weight };
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

    /// The law, for what it knows. Its window is what the host may have outstanding while all of its VMs want what they wanted in the
    /// last period.
    #[must_use]
    pub fn governor(&self) -> &Governor {
        &self.governor
    }

    /// What the host may have outstanding at this instant, in slots.
    #[must_use]
    pub fn grant(&self) -> Window {
        self.gate.grant()
    }

    /// Ends a period: finds the new window from what was measured and what the exchange shows,
    /// and says what to publish.
    pub fn tick(&mut self, now: Instant, view: View) -> Report {
        self.called = now;
        let elapsed = now.since(self.ticked);
        self.ticked = now;
        let reserved = self.account(now, elapsed);
        let measured = Measured {
            elapsed,
            interval: self.meter.roll(),
            outstanding: self.at_array.mean(now, elapsed),
            vms: &self.demands,
            reserved,
        };
        let mut report = self.governor.tick(measured, view);
        let limits = &mut self.limits;
        self.tenants.end(elapsed, report.source, |_, _, limiter| {
            limiter.map_or((0.0, 0.0), |limiter| limits.roll(now, limiter, elapsed))
        });
        for (limiter, part) in self.tenants.limiters() {
            self.limits.divide(now, limiter, part);
        }
        self.meter.learn(self.governor.lines());
        report.wants = self.wants();
        self.charge_anew(now);
        self.share_out(now);
        report
    }

    /// Ends the VMs' accounts of a period. Returns what all reservations would have outstanding if none were short, in slots.
    fn account(&mut self, now: Instant, elapsed: Span) -> f64 {
        let (room, window_per_share) = (self.governor.room(), self.governor.window_per_share());
        let (secs, nanos) = (elapsed.secs(), elapsed.0 as f64);
        let mut reserved = self.tenants.reserved(&room);
        self.tenants.begin();
        let vms = self.vms.iter_mut().filter(|(_, vm)| !vm.removed);
        self.demands.clear();
        self.demands.extend(vms.map(|(_, vm)| {
            let wanted = vm.slice.roll(now, nanos);
            let rate = Some(core::mem::take(&mut vm.done) / secs.max(1e-9));
            let shares = f64::from(vm.shares.0);
            let tenant = vm.guarantees.as_ref().and_then(|own| own.place);
            // What a tenant's VM counts with is found once a period.
            let (awake, counts) =
                tenant.map_or((shares, shares), |_| (vm.slice.awake, vm.slice.shares));
            let demand = VmDemand {
                shares: awake,
                counts,
                taken: wanted.shares,
                pending: wanted.pending,
                used: wanted.used,
                rate,
            };
            let Some(own) = &mut vm.guarantees else { return demand };
            let asked = demand.limited_part(window_per_share);
            if let Some(place) = tenant {
                let held = own.aside.is_some_and(|aside| self.limits.waiting(aside) > 0);
                self.tenants.account(
                    place,
                    &Member {
                        shares,
                        used: wanted.used / window_per_share,
                        asked,
                        active: wanted.pending > 0.0 || held,
                    },
                );
            }
            if let Some(reservation) = &mut own.reservation {
                reservation.roll(secs, demand.pending, asked);
                reserved += reservation.floor().asks(&room);
            }
            demand
        }));
        reserved
    }
}
