//! One host at one volume: its VMs' IOs in, the order and the time of their dispatch out.
//!
//! The caller owns the IOs and the clock. It tells the host what arrives ([`Host::submit`]), asks
//! what may go now ([`Host::next_dispatch`], until it answers `None`), and says what came back
//! ([`Host::complete`]). Once per period it calls [`Host::tick`] with what the exchange shows and
//! publishes the report that it gets. When nothing else happens, [`Host::next_wakeup`] says when
//! to ask again.

use alloc::vec::Vec;

use slab::Slab;

use crate::cluster::{Report, Source, Totals, View};
use crate::gate::Gate;
use crate::latency::{Average, Direction, Meter};
use crate::law::{Estimation, Input, Law, LawConfig, Mode};
use crate::queue::{Cost, FairQueue, FlowId};
use crate::size::SizeModel;
use crate::units::{Bytes, Instant, Shares, Span, Window};

/// A VM of this host, by the order in which they were added.
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

/// A host's parameters at one volume.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The law's.
    pub law: LawConfig,
    /// How latencies are scaled to one size.
    pub size_model: SizeModel,
    /// That size: 4 KB in SPEED'08, 8 KB in FAST '09.
    pub reference_size: Bytes,
    /// The IO size that one slot of the window stands for (SPEED'08 §2): shares are then of
    /// bytes/s. `None`: one slot for each IO, shares are of IOPS.
    pub slot_size: Option<Bytes>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            law: LawConfig::default(),
            size_model: SizeModel::Off,
            reference_size: Bytes::kib(8),
            slot_size: None,
        }
    }
}

/// A parameter that cannot work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConfigError {
    /// Its name.
    pub parameter: &'static str,
    /// What it must be.
    pub must_be: &'static str,
    /// What it is.
    pub value: f64,
}

impl core::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} must be {}, but is {}", self.parameter, self.must_be, self.value)
    }
}

impl core::error::Error for ConfigError {}

impl Config {
    /// Checks every parameter.
    ///
    /// # Errors
    /// The first one that cannot work.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let law = &self.law;
        let check = |ok: bool, parameter, must_be, value| {
            if ok { Ok(()) } else { Err(ConfigError { parameter, must_be, value }) }
        };
        let (min, max) = (law.window_min.0, law.window_max.0);
        let threshold = law.threshold.secs();
        check(threshold > 0.0, "latency_threshold", "above zero", threshold)?;
        check((0.0..1.0).contains(&law.alpha), "alpha", "at least 0 and below 1", law.alpha)?;
        check(law.gamma > 0.0 && law.gamma <= 1.0, "gamma", "above 0, at most 1", law.gamma)?;
        check(min > 0.0 && min.is_finite(), "window_min", "above zero", min)?;
        check(max >= min && max.is_finite(), "window_max", "at least window_min", max)?;
        check(law.window_start.0 > 0.0, "window_start", "above zero", law.window_start.0)?;
        let cluster = law.cluster_min;
        check(cluster >= 0.0 && cluster.is_finite(), "cluster_min", "zero or more", cluster)?;
        match law.mode {
            Mode::Published { beta_per_share: k } => {
                check(k > 0.0 && k.is_finite(), "beta_per_share", "above zero", k)?;
            }
            Mode::Normalised { epsilon: e } => {
                check(e > 0.0 && e <= 1.0, "epsilon", "above 0, at most 1", e)?;
            }
            Mode::Off | Mode::Static => {}
        }
        let reference = self.reference_size.0;
        check(reference > 0, "reference_size", "above zero", reference as f64)?;
        check(self.slot_size != Some(Bytes(0)), "slot_size", "above zero", 0.0)
    }
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

/// The time integral of a quantity that steps.
#[derive(Clone, Copy, Debug)]
struct Integral {
    value: f64,
    sum: f64,
    since: Instant,
}

impl Integral {
    fn new(now: Instant) -> Integral {
        Integral { value: 0.0, sum: 0.0, since: now }
    }

    fn add(&mut self, now: Instant, change: f64) {
        self.sum += self.value * now.since(self.since).secs();
        self.since = self.since.max(now);
        self.value += change;
    }

    fn set(&mut self, now: Instant, value: f64) {
        self.add(now, value - self.value);
    }

    /// The sum until now, starting again from zero.
    fn take(&mut self, now: Instant) -> f64 {
        self.add(now, 0.0);
        core::mem::take(&mut self.sum)
    }
}

#[derive(Debug)]
struct Vm {
    shares: Shares,
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
        self.used.set(now, self.pending.value.min(window_per_share * f64::from(self.shares.0)));
    }
}

/// A host at one volume. See the module's documentation.
#[derive(Debug)]
pub struct Host {
    config: Config,
    vms: Vec<Vm>,
    queue: FairQueue<Waiting>,
    gate: Gate,
    outstanding: Slab<Outstanding>,
    /// What is outstanding, in slots.
    at_array: Integral,
    meter: Meter,
    average: Average,
    law: Law,
    /// Shares that the window rests on.
    window_shares: f64,
    /// What VMs' slices of it are measured by, as of the last period.
    window_per_share: f64,
    /// What the exchange showed last, if it ever showed anything.
    last_peers: Option<Totals>,
    silent_periods: u32,
    ticked: Instant,
}

impl Host {
    /// A host without VMs.
    ///
    /// # Errors
    /// A parameter that cannot work.
    pub fn new(now: Instant, config: Config) -> Result<Host, ConfigError> {
        config.validate()?;
        let law = Law::new(config.law.clone());
        Ok(Host {
            vms: Vec::new(),
            queue: FairQueue::default(),
            gate: Gate::new(now, law.window()),
            outstanding: Slab::new(),
            at_array: Integral::new(now),
            meter: Meter::new(config.size_model, config.reference_size),
            average: Average::new(config.law.alpha),
            law,
            window_shares: 0.0,
            window_per_share: f64::INFINITY,
            last_peers: None,
            silent_periods: 0,
            ticked: now,
            config,
        })
    }

    /// Adds a VM.
    pub fn add_vm(&mut self, now: Instant, vm: VmConfig) -> VmId {
        let FlowId(id) = self.queue.add_flow(vm.shares, Cost::slots(vm.burst));
        let (pending, used) = (Integral::new(now), Integral::new(now));
        self.vms.push(Vm { shares: vm.shares, pending, used });
        VmId(id)
    }

    /// Changes a VM's part, from its next dispatch on.
    pub fn set_vm(&mut self, id: VmId, vm: VmConfig) {
        self.queue.set_shares(FlowId(id.0), vm.shares);
        self.queue.set_burst(FlowId(id.0), Cost::slots(vm.burst));
        self.vms[id.0].shares = vm.shares;
    }

    /// Changes the parameters. What is outstanding stays so.
    ///
    /// # Errors
    /// A parameter that cannot work; nothing is changed then.
    pub fn set_config(&mut self, now: Instant, config: Config) -> Result<(), ConfigError> {
        config.validate()?;
        if (config.size_model, config.reference_size)
            != (self.config.size_model, self.config.reference_size)
        {
            self.meter = Meter::new(config.size_model, config.reference_size);
        }
        if config.law.alpha != self.config.law.alpha {
            self.average = Average::new(config.law.alpha);
        }
        self.law.set_config(config.law.clone());
        self.gate.set_window(now, self.law.window(), !self.queue.is_empty());
        self.config = config;
        Ok(())
    }

    /// The parameters in force.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
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
        self.vms[vm.0].add(now, cost.as_slots(), self.window_per_share);
        if self.queue.is_empty() {
            // Until now nothing waited: that time is no credit.
            self.gate.set_window(now, self.law.window(), false);
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
        self.vms[done.vm.0].add(now, -slots, self.window_per_share);
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
        let source = self.listen(view);
        let (active, wanted) = self.active_shares(now, elapsed);
        let mut own = Report {
            elapsed,
            interval: self.meter.roll(),
            outstanding: mean_over(self.at_array.take(now), elapsed),
            window: self.law.window(),
            beta: self.law.beta(),
            shares: Shares(self.vms.iter().map(|vm| vm.shares.0).fold(0, u32::saturating_add)),
            active,
            governed: matches!(
                self.config.law.mode,
                Mode::Published { .. } | Mode::Normalised { .. }
            ),
            source,
        };
        let peers = self.last_peers.filter(|_| source != Source::Local);
        let mut totals = peers.unwrap_or_default();
        totals.add(&own);
        let heard = totals.interval.heard(self.config.law.signal);
        self.average.add(&heard, self.config.law.min_ios);
        // While nobody does IO, there is nothing to act on: what was last measured is no news.
        let latency = self.average.secs().filter(|_| heard.ios > 0);
        let all = source != Source::Local;
        let headroom = latency.map_or(1.0, |latency| self.law.headroom(latency, &totals, all));
        let level = latency.filter(|_| all).and_then(|_| totals.level(headroom));
        let input = Input { latency, headroom, level, shares: wanted };
        let window = self.law.step(self.window_shares, input);
        own.window = if window.0.is_finite() { window } else { Window(0.0) };
        own.beta = self.law.beta();
        self.window_shares = wanted;
        self.set_slices(now);
        self.gate.set_window(now, window, !self.queue.is_empty());
        own
    }

    /// CAL(t), the latency that the window rests on, in seconds.
    #[must_use]
    pub fn latency(&self) -> Option<f64> {
        self.average.secs()
    }

    /// Takes in what the exchange shows; falls back in order when it is silent.
    fn listen(&mut self, view: View) -> Source {
        if self.config.law.estimation == Estimation::Local {
            return Source::Local;
        }
        match view {
            View::Peers(peers) => {
                self.silent_periods = 0;
                self.last_peers = Some(peers);
                Source::Cluster
            }
            View::Silent => {
                self.silent_periods = self.silent_periods.saturating_add(1);
                let held = self.silent_periods <= self.config.law.hold_periods;
                if held && self.last_peers.is_some() { Source::LastGood } else { Source::Local }
            }
        }
    }

    /// The host's shares as its VMs use them: those to report, and those its window rests on.
    fn active_shares(&mut self, now: Instant, elapsed: Span) -> (f64, f64) {
        let all: f64 = self.vms.iter().map(|vm| f64::from(vm.shares.0)).sum();
        let level = self.law.window_per_share(all);
        let (mut active, mut wanted, mut saturated) = (0.0, 0.0, false);
        for vm in &mut self.vms {
            let shares = f64::from(vm.shares.0);
            active += (mean_over(vm.used.take(now), elapsed) / level).min(shares);
            // A client that comes and goes needs, when it is there, the window for what it brings.
            let pending = mean_over(vm.pending.take(now), elapsed) / level;
            wanted += pending.min(shares);
            saturated |= pending >= shares;
        }
        // While every VM has what it wants, the window only waits for one to want more: it may
        // then have its whole share at once. As soon as one VM could use more than its share, what
        // its neighbours leave of theirs is not its to take (PARDA §3).
        (active, if saturated { wanted } else { all.max(1.0) })
    }

    /// Measures the VMs' slices by the window in force.
    fn set_slices(&mut self, now: Instant) {
        let all = self.vms.iter().map(|vm| f64::from(vm.shares.0)).sum();
        self.window_per_share = self.law.window_per_share(all);
        for vm in &mut self.vms {
            vm.add(now, 0.0, self.window_per_share);
        }
    }

    fn cost(&self, io: Io) -> Cost {
        match self.config.slot_size {
            Some(Bytes(slot)) if io.kind != IoKind::Other => {
                Cost::slots((io.bytes.0 as f64 / slot as f64).max(1.0))
            }
            _ => Cost::ONE,
        }
    }
}

fn mean_over(integral: f64, elapsed: Span) -> f64 {
    if elapsed > Span::ZERO { integral / elapsed.secs() } else { 0.0 }
}
