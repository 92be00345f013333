//! One host at one volume: its VMs' IOs in, the order and the time of their dispatch out.
//!
//! The caller owns the IOs and the clock. It tells the host what arrives ([`Host::submit`]), asks
//! what may go now ([`Host::next_dispatch`], until it answers `None`), and says what came back
//! ([`Host::complete`]). Once per period it calls [`Host::tick`] with what the exchange shows and
//! publishes the report that it gets. When nothing else happens, [`Host::next_wakeup`] says when
//! to ask again.

use alloc::vec::Vec;

use slab::Slab;

use crate::cluster::{Report, View};
use crate::config::{Config, ConfigError};
use crate::forecast::Outlook;
use crate::gate::Gate;
use crate::governor::{Governor, Measured, VmDemand, slice};
use crate::integral::Integral;
use crate::latency::{Direction, Meter};
use crate::queue::{Cost, FairQueue, FlowId};
use crate::threshold::Estimate;
use crate::units::{Bytes, Instant, Shares, Span, Window};

/// A VM of this host. The id of one that was removed is used again, as soon as none of its IOs is
/// held or outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VmId(pub usize);

/// An IO that is outstanding at the array. Used again after it completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IoId(pub usize);

/// What an IO does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoKind {
    /// Reads data.
    Read,
    /// Writes data.
    Write,
    /// Anything else (flush, trim, write zeroes): takes a slot and its place in the queue, but its
    /// latency says nothing about the load.
    Other,
}

/// An IO as the law sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// What it does.
    pub kind: IoKind,
    /// How much it moves.
    pub bytes: Bytes,
}

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
    /// Whose it is.
    pub vm: VmId,
    /// What the caller gave to [`Host::submit`].
    pub token: u64,
}

/// An IO that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// Whose it was.
    pub vm: VmId,
    /// What the caller gave to [`Host::submit`].
    pub token: u64,
    /// What it was.
    pub io: Io,
    /// Time held in the host's queue: ours.
    pub held: Span,
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
}

impl VmConfig {
    /// More shares than this would leave the smallest VM nothing to count with.
    pub const MAX_SHARES: u32 = 1_000_000;
}

#[derive(Debug)]
struct Waiting {
    token: u64,
    io: Io,
    submitted: Instant,
}

#[derive(Debug)]
struct Outstanding {
    vm: VmId,
    token: u64,
    io: Io,
    cost: Cost,
    submitted: Instant,
    dispatched: Instant,
}

#[derive(Debug)]
struct Vm {
    shares: Shares,
    /// Its IOs that are not done: held and outstanding.
    ios: usize,
    /// It takes no more IOs and has no part in the window; gone when the last one is done.
    removed: bool,
    /// Its IOs that are not done, in slots: held and outstanding.
    pending: Integral,
    /// The same, up to its slice of the window: what beyond that it would use if it could is no
    /// use of the array.
    used: Integral,
}

impl Vm {
    /// Some slots of IO come or, if negative, are done. A slice is shares times `window_per_share`.
    fn add(&mut self, now: Instant, slots: f64, window_per_share: f64) {
        self.pending.add(now, slots);
        self.used.set(now, self.pending.value().min(slice(self.shares, window_per_share)));
    }
}

/// A host at one volume. See the module's documentation.
#[derive(Debug)]
pub struct Host {
    governor: Governor,
    vms: Slab<Vm>,
    /// What they wanted in the last period. Kept for its memory.
    demands: Vec<VmDemand>,
    queue: FairQueue<Waiting>,
    gate: Gate,
    outstanding: Slab<Outstanding>,
    /// What is outstanding, in slots.
    at_array: Integral,
    meter: Meter,
    ticked: Instant,
}

impl Host {
    /// A host without VMs.
    ///
    /// # Errors
    /// A parameter that cannot work.
    pub fn new(now: Instant, config: Config) -> Result<Host, ConfigError> {
        let meter = Meter::new(config.size_model, config.reference_size);
        let governor = Governor::new(config)?;
        Ok(Host {
            vms: Slab::new(),
            demands: Vec::new(),
            queue: FairQueue::default(),
            gate: Gate::new(now, governor.window()),
            outstanding: Slab::new(),
            at_array: Integral::new(now),
            meter,
            governor,
            ticked: now,
        })
    }

    /// Adds a VM.
    pub fn add_vm(&mut self, now: Instant, vm: VmConfig) -> VmId {
        let FlowId(flow) = self.queue.add_flow(vm.shares, Cost::slots(vm.burst));
        let (pending, used) = (Integral::new(now), Integral::new(now));
        let id = self.vms.insert(Vm { shares: vm.shares, ios: 0, removed: false, pending, used });
        // Both are added and removed together, so that both ids are the same.
        debug_assert_eq!(id, flow);
        self.governor.vms_changed();
        VmId(id)
    }

    /// Removes a VM. Its shares count no more from now on. What it has held is still dispatched in
    /// its turn, what it has outstanding still completes, and its id is not used again before all of
    /// that is done. Until then it may submit what follows on that, and nothing afterwards. `false`
    /// if there is no such VM.
    pub fn remove_vm(&mut self, id: VmId) -> bool {
        let Some(vm) = self.vms.get_mut(id.0).filter(|vm| !vm.removed) else { return false };
        vm.removed = true;
        self.governor.vms_changed();
        self.bury(id);
        true
    }

    /// Forgets a VM that was removed, once nothing of it is left.
    fn bury(&mut self, id: VmId) {
        if self.vms.get(id.0).is_some_and(|vm| vm.removed && vm.ios == 0) {
            self.vms.remove(id.0);
            self.queue.remove_flow(FlowId(id.0));
        }
    }

    /// The VMs, in the order in which [`Outlook`] has them.
    pub fn vms(&self) -> impl Iterator<Item = VmId> {
        self.vms.iter().filter(|(_, vm)| !vm.removed).map(|(id, _)| VmId(id))
    }

    /// Changes a VM's part, from its next dispatch on. `false` if there is no such VM.
    pub fn set_vm(&mut self, id: VmId, config: VmConfig) -> bool {
        let Some(vm) = self.vms.get_mut(id.0).filter(|vm| !vm.removed) else { return false };
        vm.shares = config.shares;
        self.queue.set_shares(FlowId(id.0), config.shares);
        self.queue.set_burst(FlowId(id.0), Cost::slots(config.burst));
        true
    }

    /// Changes the parameters. What is outstanding stays so.
    ///
    /// # Errors
    /// A parameter that cannot work; nothing is changed then.
    pub fn set_config(&mut self, now: Instant, config: Config) -> Result<(), ConfigError> {
        self.governor.set_config(config)?;
        let Config { size_model, reference_size, .. } = *self.governor.config();
        self.meter.scale(size_model, reference_size);
        self.gate.set_window(now, self.governor.window(), !self.queue.is_empty());
        Ok(())
    }

    /// The parameters in force.
    #[must_use]
    pub fn config(&self) -> &Config {
        self.governor.config()
    }

    /// The window in force.
    #[must_use]
    pub fn window(&self) -> Window {
        self.gate.window()
    }

    /// IOs at the array now.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// IOs held now.
    #[must_use]
    pub fn held(&self) -> usize {
        self.queue.len()
    }

    /// Takes an IO of a VM. `token` comes back with its dispatch and its completion.
    pub fn submit(&mut self, now: Instant, vm: VmId, io: Io, token: u64) {
        let cost = self.cost(io);
        let per_share = self.governor.window_per_share();
        let state = &mut self.vms[vm.0];
        state.ios += 1;
        state.add(now, cost.as_slots(), per_share);
        if self.queue.is_empty() {
            // Until now nothing waited: that time is no credit.
            self.gate.set_window(now, self.governor.window(), false);
        }
        self.queue.push(FlowId(vm.0), cost, Waiting { token, io, submitted: now });
    }

    /// The IO to send to the array now, if one may go. To be asked until it answers `None`,
    /// after every submission and completion, at every wake-up and tick.
    pub fn next_dispatch(&mut self, now: Instant) -> Option<Dispatch> {
        let cost = self.queue.head_cost()?;
        if !self.gate.admits(now, cost) {
            return None;
        }
        let (FlowId(vm), cost, Waiting { token, io, submitted }) = self.queue.pop()?;
        let vm = VmId(vm);
        self.gate.dispatched(now, cost, true);
        self.at_array.add(now, cost.as_slots());
        let entry = Outstanding { vm, token, io, cost, submitted, dispatched: now };
        let id = IoId(self.outstanding.insert(entry));
        Some(Dispatch { id, vm, token })
    }

    /// Takes back an IO from the array. `None` if no such IO is outstanding.
    pub fn complete(&mut self, now: Instant, id: IoId, outcome: Outcome) -> Option<Completed> {
        let done = self.outstanding.try_remove(id.0)?;
        let device = now.since(done.dispatched);
        let slots = done.cost.as_slots();
        self.gate.completed(now, done.cost, device, !self.queue.is_empty());
        self.at_array.add(now, -slots);
        let per_share = self.governor.window_per_share();
        let vm = &mut self.vms[done.vm.0];
        vm.ios -= 1;
        vm.add(now, -slots, per_share);
        self.bury(done.vm);
        let direction = match done.io.kind {
            IoKind::Read => Some(Direction::Read),
            IoKind::Write => Some(Direction::Write),
            IoKind::Other => None,
        };
        if let (Some(direction), Outcome::Done) = (direction, outcome) {
            self.meter.add(direction, done.io.bytes, device);
        }
        Some(Completed {
            vm: done.vm,
            token: done.token,
            io: done.io,
            held: done.dispatched.since(done.submitted),
            device,
        })
    }

    /// When to ask [`next_dispatch`](Self::next_dispatch) again though nothing happened.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Instant> {
        if self.queue.is_empty() { None } else { self.gate.opens_at() }
    }

    /// Ends a period: finds the new window from what was measured and what the exchange shows,
    /// and says what to publish.
    pub fn tick(&mut self, now: Instant, view: View) -> Report {
        let elapsed = now.since(self.ticked);
        self.ticked = now;
        self.demands.clear();
        let vms = self.vms.iter_mut().filter(|(_, vm)| !vm.removed);
        self.demands.extend(vms.map(|(_, vm)| VmDemand {
            shares: vm.shares,
            pending: vm.pending.mean(now, elapsed),
            used: vm.used.mean(now, elapsed),
        }));
        let measured = Measured {
            elapsed,
            interval: self.meter.roll(),
            outstanding: self.at_array.mean(now, elapsed),
            vms: &self.demands,
        };
        let report = self.governor.tick(measured, view);
        let per_share = self.governor.window_per_share();
        for (_, vm) in &mut self.vms {
            vm.add(now, 0.0, per_share);
        }
        self.gate.set_window(now, self.governor.window(), !self.queue.is_empty());
        report
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

    /// CAL(t), the latency that the window rests on, in seconds.
    #[must_use]
    pub fn latency(&self) -> Option<f64> {
        self.governor.latency()
    }

    fn cost(&self, io: Io) -> Cost {
        match self.config().slot_size {
            Some(Bytes(slot)) if io.kind != IoKind::Other => {
                Cost::slots((io.bytes.0 as f64 / slot as f64).max(1.0))
            }
            _ => Cost::ONE,
        }
    }
}
