//! One host's agent: its law, the IOs of its VMs, its part in the exchange.

use parda_array::ArrayIo;
use parda_control::{
    Bytes, Completed, Config, ConfigError, Host, Instant, Io, IoId, IoKind, Limit, Measurement,
    Period, Report, Shares, Span, Tenant, TenantId, TenantPart, Totals, View, VmConfig, VmId,
};
use parda_exchange::HostName;
use parda_scenario::scenario::HostCondition;
use slab::Slab;

use crate::check::{self, Violation};
use crate::client::VmClient;
use crate::demand::{ClientRun, Run};
use crate::enforcer::Enforcer;
use crate::error::SimError;
use crate::events::Life;
use crate::exchange::Rounds;
use crate::kernel::Kernel;
use crate::limited::Limited;

/// An unfinished IO of a VM, in one line of the processor's cache. In a large cluster, that line has left the cache by its completion.
#[derive(Debug)]
#[repr(align(64))]
struct Pending {
    vm: VmId,
    run: ClientRun,
    io: ArrayIo,
    /// Cost in slots once the IO is at the array, as counted by the simulator.
    cost: f64,
    submitted: Instant,
}

/// The law of a host, and the message that it reads once a period.
#[derive(Debug)]
struct Law {
    period: Period,
    measured: Measurement,
}

/// A living agent. For a host outside control, it stands for the host itself: an unlimited window, and no ticks.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) life: Life,
    /// Boxed apart: an IO does not touch it, and the fields that it does touch stay close together.
    pub(crate) rounds: Box<Rounds>,
    law: Box<Law>,
    pub(crate) enforcer: Box<dyn Enforcer>,
    /// For each VM, the last run of its client.
    runs: Vec<Run>,
    /// Limit of each VM.
    limits: Vec<Limit>,
    /// For each VM, the IOs that it sent against the limit that it had from the start.
    limited: Vec<Limited>,
    ios: Slab<Pending>,
    /// Slots at the array, as counted by the simulator.
    at_array: f64,
    /// Times of planned wakeups; two or three, as the same time is requested again and again.
    wakes: Vec<Instant>,
    /// β as last used.
    pub(crate) beta: f64,
}

impl Agent {
    pub(crate) fn new(
        now: Instant,
        life: Life,
        host: &parda_scenario::Host,
        state: &HostCondition,
        tenants: &[(TenantId, Tenant)],
    ) -> Result<Agent, SimError> {
        let settings = |error| SimError::of_host(&host.name, error);
        let control = state.control.resolve().map_err(settings)?;
        let vms = state.vms.iter().map(|vm| {
            let config = VmConfig::from(&vm.settings);
            // A host outside control has no shares. No IO queues there, so any value is correct.
            if host.outside { VmConfig { shares: Shares(1), ..config } } else { config }
        });
        let vms: Vec<VmConfig> = vms.collect();
        let name = HostName::new(&host.name).map_err(SimError::impossible)?;
        let time = control.law.period;
        let law = if host.guest.is_some() { Period::counting_ios } else { Period::new };
        let mut period = law(control).map_err(settings)?;
        period.set_tenants(tenants);
        let enforcer: Box<dyn Enforcer> = match &host.guest {
            None => {
                let mut host = Host::new(now, period.decision());
                for vm in &vms {
                    host.add_vm(now, *vm);
                }
                Box::new(host)
            }
            Some(guest) => Box::new(Kernel::new(now, period.decision(), guest, &vms)),
        };
        Ok(Agent {
            life,
            rounds: Box::new(Rounds::new(now, name, life, time)),
            law: Box::new(Law { period, measured: Measurement::default() }),
            enforcer,
            runs: host.vms.iter().map(|_| Run::default()).collect(),
            limited: vms.iter().map(|vm| Limited::new(&vm.limit)).collect(),
            limits: vms.iter().map(|vm| vm.limit).collect(),
            ios: Slab::new(),
            at_array: 0.0,
            wakes: Vec::new(),
            beta: 0.0,
        })
    }

    /// Changes the settings of a VM.
    pub(crate) fn set_vm(&mut self, now: Instant, vm: VmId, config: VmConfig) {
        let before = std::mem::replace(&mut self.limits[vm.0], config.limit);
        if before != config.limit {
            // IOs that passed the limit before are in the queue, so no interval tells when this one is kept.
            self.limited[vm.0] = Limited::default();
        }
        self.enforcer.set_vm(now, vm, config);
    }

    /// Starts a VM's client.
    pub(crate) fn start(&mut self, now: Instant, vm: VmId, run: ClientRun, client: &mut VmClient) {
        client.start();
        self.runs[vm.0] = Run::new(now, run, client.outstanding, client.bursts);
        self.enforcer.begin(now, vm);
        self.submit(now, vm, client);
    }

    /// Stops a VM's client. Its outstanding IOs still complete.
    pub(crate) fn stop(&mut self, vm: VmId) {
        self.runs[vm.0].stop();
    }

    /// Run of a VM's client, if `run` is the current one and was not stopped.
    pub(crate) fn run(&mut self, vm: VmId, run: ClientRun) -> Option<&mut Run> {
        self.runs.get_mut(vm.0).filter(|present| present.id == run && present.going)
    }

    /// Submits the IOs that a client is ready to begin.
    pub(crate) fn submit(&mut self, now: Instant, vm: VmId, client: &mut VmClient) {
        let run = &mut self.runs[vm.0];
        while run.wants() {
            let io = client.draw();
            run.begin(now);
            let pending = Pending { vm, run: run.id, io, cost: 0.0, submitted: now };
            let token = self.ios.insert(pending);
            self.enforcer.submit(now, vm, io_of(&io), token as u64);
        }
    }

    /// Next IO that may go to the array now, if any.
    pub(crate) fn dispatch(
        &mut self,
        now: Instant,
        host: &parda_scenario::Host,
    ) -> Result<Option<(IoId, ArrayIo)>, Violation> {
        let Some(dispatch) = self.enforcer.next_dispatch(now) else { return Ok(None) };
        let pending = &mut self.ios[dispatch.token as usize];
        // Waiting IOs are charged at the slot cost in force at dispatch.
        pending.cost = self.enforcer.cost(io_of(&pending.io)).as_slots();
        let (vm, cost, io) = (pending.vm, pending.cost, pending.io);
        if !dispatch.overdue {
            let own = || {
                let own = self.ios.iter().filter(|(_, io)| io.vm == vm);
                own.map(|(_, io)| io.cost).sum::<f64>()
                    <= self.enforcer.slice(vm).max(cost) + check::ROUNDING
            };
            check::window(|| &host.name, self.at_array, cost, self.enforcer.bound(), own)?;
        }
        self.at_array += cost;
        let limited = &mut self.limited[vm.0];
        if limited.is_none() {
            return Ok(Some((dispatch.id, io)));
        }
        // Observe mode holds no IO back.
        if !self.law.period.decision().acts {
            limited.restart();
        } else if let Some(early) = limited.take(now, io_of(&io)) {
            let (vm, early) = (&host.vms[vm.0].name, early.secs() * 1e3);
            return Err(Violation(format!(
                "VM {vm} sent an IO {early} ms before its limit allows it"
            )));
        }
        Ok(Some((dispatch.id, io)))
    }

    /// Books a completion from the array.
    pub(crate) fn complete(&mut self, now: Instant, id: IoId) -> Result<Completed, Violation> {
        let unknown = || Violation(format!("the array: completed IO {} of no VM", id.0));
        let completed = self.enforcer.complete(now, id).ok_or_else(unknown)?;
        let pending = self.ios.try_remove(completed.token as usize).ok_or_else(unknown)?;
        self.at_array -= pending.cost;
        let run = &mut self.runs[pending.vm.0];
        if run.id == pending.run {
            run.end(now, now.since(pending.submitted));
        }
        Ok(Completed { vm: pending.vm, ..completed })
    }

    /// Next wakeup, unless it is planned already.
    pub(crate) fn wake(&mut self) -> Option<Instant> {
        let at = self.enforcer.next_wakeup()?;
        let known = self.wakes.contains(&at);
        if !known {
            self.wakes.push(at);
        }
        (!known).then_some(at)
    }

    pub(crate) fn woken(&mut self, now: Instant) {
        self.wakes.retain(|at| *at != now);
    }

    /// Runs the law with the exchange's view.
    pub(crate) fn tick(
        &mut self,
        now: Instant,
        heard: Option<Totals>,
        tenants: Option<Vec<TenantPart>>,
    ) -> (Report, Vec<TenantPart>) {
        let view = heard.map_or(View::Silent, View::Peers);
        let Law { period, measured } = &mut *self.law;
        self.enforcer.measure(now, measured);
        let report = period.tick(measured, view, tenants);
        self.enforcer.apply(now, period.decision());
        self.beta = report.beta;
        (report, period.tenant_parts().collect())
    }

    /// Changes the parameters of the law.
    pub(crate) fn set_config(&mut self, now: Instant, config: Config) -> Result<(), ConfigError> {
        self.law.period.set_config(config)?;
        self.enforcer.apply(now, self.law.period.decision());
        Ok(())
    }

    /// The window in force; `None` without control.
    pub(crate) fn window(&self) -> Option<f64> {
        Some(self.law.period.decision().window.0).filter(|w| w.is_finite())
    }

    /// The threshold in force.
    pub(crate) fn threshold(&self) -> Span {
        self.law.period.decision().threshold
    }

    /// Indices of VMs that demand their reservations and get less.
    pub(crate) fn short(&self) -> Vec<usize> {
        (0..self.runs.len()).filter(|vm| self.enforcer.is_short(VmId(*vm))).collect()
    }

    /// For each VM, its client's run and the sum of that run's IO times so far, in ns.
    pub(crate) fn lived(&self, now: Instant) -> Vec<(ClientRun, u128)> {
        self.lives(now).into_iter().map(|(run, _, lived)| (run, lived)).collect()
    }

    /// As [`lived`](Agent::lived), with the number of those IOs that are not done.
    fn lives(&self, now: Instant) -> Vec<(ClientRun, u64, u128)> {
        let mut lives: Vec<_> = self.runs.iter().map(|run| (run.id, 0, run.lived)).collect();
        for (_, pending) in &self.ios {
            let (run, under_way, lived) = &mut lives[pending.vm.0];
            if pending.run == *run {
                *under_way += 1;
                *lived += u128::from(now.since(pending.submitted).0);
            }
        }
        lives
    }

    /// Checks that the counters of the VMs' clients agree.
    pub(crate) fn audit(&self, now: Instant, vms: &[parda_scenario::Vm]) -> Result<(), Violation> {
        let mut runs = self.runs.iter().zip(self.lives(now)).zip(vms);
        runs.try_for_each(|((run, (_, under_way, lived)), vm)| {
            run.audit(&vm.name, now, under_way, lived)
        })
    }

    /// Checks that no IO was lost between the agent, the host and the array.
    pub(crate) fn check(&self, host: &parda_scenario::Host) -> Result<(), Violation> {
        check::books(|| &host.name, self.ios.len(), "the law", self.enforcer.under_way())
    }
}

/// An array IO in the form that the law takes.
fn io_of(io: &ArrayIo) -> Io {
    let kind = match io.kind {
        parda_array::IoKind::Read => IoKind::Read,
        parda_array::IoKind::Write => IoKind::Write,
        parda_array::IoKind::Trim => IoKind::Discard,
    };
    Io { kind, bytes: Bytes(io.len.0) }
}
