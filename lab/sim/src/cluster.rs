//! The array, the hosts, and the events between them.

use std::rc::Rc;
use std::time::Duration;

use parda_array::{Array, ArrayIo, IoTag, LunId, Nanos};
use parda_control::belief::Judging;
use parda_control::clock::VISIT_LIMIT;
use parda_control::{Instant, IoId, Span, VmId};
use parda_exchange::{Message, Publication};
use parda_scenario::array::ArrayEvent;
use parda_scenario::exchange::MeetingTransport;
use parda_scenario::{Action, ClusterState, HostIndex, Scenario};

use crate::agent::Agent;
use crate::check::{self, Violation};
use crate::client::VmClient;
use crate::demand::ClientRun;
use crate::error::SimError;
use crate::events::{Delivery, Event, Events, Life, Visit};
use crate::exchange::{Slots, Step};
use crate::flights::{Flights, Landed};
use crate::meter::Meters;

/// A host, with an agent while it is alive.
#[derive(Debug)]
pub(crate) struct Node {
    clients: Vec<VmClient>,
    pub(crate) agent: Option<Agent>,
    /// Its agent hangs: a copy of the state's flag, close to the path of each IO.
    hangs: bool,
    /// Deliveries for a hanging agent, in order of arrival.
    missed: Vec<Delivery>,
}

/// A host whose publications differ from its measurements.
pub struct Liar<'a> {
    /// The lying host of the scenario.
    pub host: HostIndex,
    /// Function that rewrites its publications.
    pub lie: Box<Lie<'a>>,
}

/// Function that rewrites one publication.
pub(crate) type Lie<'a> = dyn FnMut(Instant, &mut Publication) + 'a;

impl std::fmt::Debug for Liar<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Liar").field("host", &self.host).finish_non_exhaustive()
    }
}

/// The cluster.
#[derive(Debug)]
pub(crate) struct Cluster<'a> {
    scenario: &'a Scenario,
    pub(crate) now: Instant,
    pub(crate) events: Events,
    pub(crate) meters: Meters,
    pub(crate) nodes: Vec<Node>,
    state: ClusterState,
    /// Hosts are on different sides of a partition.
    parted: bool,
    array: Array,
    flights: Flights,
    slots: Slots,
    /// Lists by which each host in turn judges the others.
    judging: Judging,
    /// Random numbers that decide which visits to the exchange fail.
    loss_rng: fastrand::Rng,
    pub(crate) liar: Option<Liar<'a>>,
    runs: u64,
}

impl<'a> Cluster<'a> {
    pub(crate) fn new(scenario: &'a Scenario) -> Result<Cluster<'a>, SimError> {
        let mut random = fastrand::Rng::with_seed(scenario.seed);
        let mut nodes = Vec::with_capacity(scenario.hosts.len());
        for host in &scenario.hosts {
            let client = |vm: &parda_scenario::Vm| {
                VmClient::new(&vm.load, LunId(vm.lun), vm.disk, random.fork())
            };
            let clients = host.vms.iter().map(client).collect();
            nodes.push(Node { clients, agent: None, hangs: false, missed: Vec::new() });
        }
        let state = ClusterState::new(&scenario.hosts);
        let mut cluster = Cluster {
            now: Instant(0),
            events: Events::default(),
            meters: Meters::new(scenario),
            nodes,
            parted: is_parted(scenario, &state),
            state,
            array: Array::new(scenario.array_params().map_err(SimError::impossible)?)
                .map_err(SimError::impossible)?,
            flights: Flights::default(),
            judging: Judging::default(),
            slots: Slots::new(LunId(scenario.exchange_lun()), scenario),
            loss_rng: random.fork(),
            liar: None,
            runs: 0,
            scenario,
        };
        for (id, _) in scenario.present() {
            cluster.start_agent(id)?;
        }
        Ok(cluster)
    }

    /// Runs the array up to its next completion before `limit`; returns the time of that
    /// completion.
    pub(crate) fn advance_array(&mut self, limit: Instant) -> Option<Instant> {
        self.array.advance_to_completion(Nanos(limit.0)).map(|at| Instant(at.0))
    }

    /// Collects completions from the array.
    pub(crate) fn completions(&mut self) -> Result<(), Violation> {
        while let Some((_, tag)) = self.array.pop_completion() {
            let lost =
                || Violation(format!("the array: completed IO {}, which is not under way", tag.0));
            match self.flights.land(tag).ok_or_else(lost)? {
                Landed::Io(host, life, io) => self.deliver(host, life, Delivery::Done(io))?,
                Landed::Visit(host, life, visit) => {
                    self.meters.visited();
                    // A completed write becomes readable, whether or not its writer learns of the
                    // completion.
                    if self.living(host, life).is_some() {
                        self.put(host, visit);
                    }
                    self.deliver(host, life, Delivery::Visited(visit, true))?;
                }
            }
        }
        check::books(|| "the cluster", self.flights.len(), "the array", self.array.outstanding())
    }

    /// Applies an action of the scenario.
    pub(crate) fn happen(&mut self, action: &Action) -> Result<(), SimError> {
        // The timeline was checked by applying it.
        let _ = self.state.apply(action);
        if let Some(host) = action.host() {
            self.nodes[host.0].hangs = self.state.host(host).hangs;
        }
        match *action {
            Action::StartVm(id) => self.start_client(id.host, VmId(id.index))?,
            Action::StopVm(id) => {
                if let Some(agent) = &mut self.nodes[id.host.0].agent {
                    agent.stop(VmId(id.index));
                }
            }
            Action::SetVm(id, _) => {
                let agent = self.nodes[id.host.0].agent.as_ref();
                if let Some(life) = agent.map(|agent| agent.life) {
                    self.deliver(id.host, life, Delivery::Settings(VmId(id.index)))?;
                }
            }
            // Its IOs at the array have no owner from now on. Its write to the exchange was never
            // acknowledged, so it may be lost.
            Action::KillHost(id) => {
                let node = &mut self.nodes[id.0];
                node.agent = None;
                node.missed.clear();
            }
            Action::SetExchange(..) => self.parted = is_parted(self.scenario, &self.state),
            Action::ResumeHost(id) => self.resume(id)?,
            Action::StartHost(id) => {
                self.start_agent(id)?;
                for index in 0..self.scenario.host(id).vms.len() {
                    if self.state.runs(parda_scenario::VmIndex { host: id, index }) {
                        self.start_client(id, VmId(index))?;
                    }
                }
            }
            Action::SetControl(id, _) => self.set_control(id)?,
            // The state has changed already.
            Action::HangHost(_) | Action::Etcd(_) => {}
            Action::Array(event) => self.array_event(event)?,
        }
        Ok(())
    }

    fn array_event(&mut self, event: ArrayEvent) -> Result<(), SimError> {
        let now = Nanos(self.now.0);
        match event {
            ArrayEvent::FailDrive(drive) => self.array.fail_drive(now, drive),
            // Only one drive can have failed, and it is this one: the scenario was checked.
            ArrayEvent::RebuildDrive(_) => self.array.start_rebuild(now),
            ArrayEvent::WriteCache(on) => self.array.set_write_cache(now, on),
            ArrayEvent::Slow(slow) => self.array.set_slow(now, slow),
        }
        .map_err(|error| {
            SimError::Impossible(format!("at {:?}: {error}", Duration::from_nanos(now.0)))
        })
    }

    /// Delivers to a host's agent if that life continues: now, or when the agent no longer hangs.
    pub(crate) fn deliver(
        &mut self,
        id: HostIndex,
        life: Life,
        what: Delivery,
    ) -> Result<(), Violation> {
        if self.living(id, life).is_none() {
            return Ok(());
        }
        if self.nodes[id.0].hangs {
            self.nodes[id.0].missed.push(what);
            return Ok(());
        }
        match what {
            Delivery::Done(io) => self.io_done(id, io),
            Delivery::Visited(visit, worked) => self.visited(id, visit, worked),
            Delivery::Tick => self.tick_due(id),
            Delivery::Wake(at) => {
                if let Some(agent) = &mut self.nodes[id.0].agent {
                    agent.woken(at);
                }
                self.dispatch(id)
            }
            Delivery::Settings(vm) => {
                let config = (&self.state.host(id).vms[vm.0].settings).into();
                if let Some(agent) = &mut self.nodes[id.0].agent {
                    agent.set_vm(self.now, vm, config);
                }
                Ok(())
            }
        }
    }

    /// Resumes an agent after a hang. The agent handles the missed deliveries in order of arrival.
    /// Then it takes changed settings and its VMs' waiting demand.
    fn resume(&mut self, id: HostIndex) -> Result<(), SimError> {
        let Some(life) = self.nodes[id.0].agent.as_ref().map(|agent| agent.life) else {
            return Ok(());
        };
        for what in std::mem::take(&mut self.nodes[id.0].missed) {
            self.deliver(id, life, what)?;
        }
        for index in 0..self.scenario.host(id).vms.len() {
            self.submit(id, VmId(index));
        }
        self.set_control(id)
    }

    /// Submits the IOs that a client is ready to begin, unless the agent hangs.
    fn submit(&mut self, id: HostIndex, vm: VmId) {
        let Node { agent, clients, hangs, .. } = &mut self.nodes[id.0];
        if let Some(agent) = agent.as_mut().filter(|_| !*hangs) {
            agent.submit(self.now, vm, &mut clients[vm.0]);
        }
    }

    fn living(&mut self, host: HostIndex, life: Life) -> Option<&mut Agent> {
        self.nodes[host.0].agent.as_mut().filter(|agent| agent.life == life)
    }

    fn start_agent(&mut self, id: HostIndex) -> Result<(), SimError> {
        let life = self.flights.begin_life(id);
        let host = self.scenario.host(id);
        let tenants = self.scenario.tenants.iter().map(|tenant| (tenant.id(), tenant.into()));
        let tenants: Vec<_> = tenants.collect();
        let agent = Agent::new(self.now, life, host, self.state.host(id), &tenants)?;
        if !host.outside {
            self.events.plan(agent.rounds.clock.next(), Event::Agent(id, life, Delivery::Tick));
        }
        self.nodes[id.0].agent = Some(agent);
        Ok(())
    }

    fn start_client(&mut self, id: HostIndex, vm: VmId) -> Result<(), Violation> {
        self.runs += 1;
        let run = ClientRun(self.runs);
        let Node { agent, clients, .. } = &mut self.nodes[id.0];
        let Some(agent) = agent else { return Ok(()) };
        agent.start(self.now, vm, run, &mut clients[vm.0]);
        self.plan_client(id, vm, run);
        self.dispatch(id)
    }

    /// Plans the next events of a client that begins or ends a burst now.
    fn plan_client(&mut self, id: HostIndex, vm: VmId, run: ClientRun) {
        let present = self.nodes[id.0].agent.as_mut().and_then(|agent| agent.run(vm, run));
        let Some((edge, works)) = present.map(|run| (run.edge, run.works)) else { return };
        if let Some(edge) = edge {
            self.events.plan(edge, Event::Burst(id, vm, run));
        }
        if works {
            self.plan_arrival(id, vm, run, edge);
        }
    }

    /// Plans the next arrival of an open loop if it comes before its burst ends. The next burst
    /// draws a new gap, which is exact for an exponential distribution.
    fn plan_arrival(&mut self, id: HostIndex, vm: VmId, run: ClientRun, end: Option<Instant>) {
        let Some(gap) = self.nodes[id.0].clients[vm.0].gap() else { return };
        let at = self.now + gap;
        if end.is_none_or(|end| at < end) {
            self.events.plan(at, Event::Arrival(id, vm, run));
        }
    }

    /// An IO of an open loop arrives.
    pub(crate) fn arrival(
        &mut self,
        id: HostIndex,
        vm: VmId,
        run: ClientRun,
    ) -> Result<(), Violation> {
        let Node { agent: Some(agent), .. } = &mut self.nodes[id.0] else { return Ok(()) };
        let Some(present) = agent.run(vm, run) else { return Ok(()) };
        present.arrive();
        let end = present.edge;
        self.submit(id, vm);
        self.plan_arrival(id, vm, run, end);
        self.dispatch(id)
    }

    /// A burst of a client begins or ends.
    pub(crate) fn burst(
        &mut self,
        id: HostIndex,
        vm: VmId,
        run: ClientRun,
    ) -> Result<(), Violation> {
        let Node { agent: Some(agent), .. } = &mut self.nodes[id.0] else { return Ok(()) };
        let Some(present) = agent.run(vm, run) else { return Ok(()) };
        present.turn(self.now);
        self.submit(id, vm);
        self.plan_client(id, vm, run);
        self.dispatch(id)
    }

    /// Updates an agent's settings, unless it hangs.
    fn set_control(&mut self, id: HostIndex) -> Result<(), SimError> {
        if self.nodes[id.0].hangs {
            return Ok(());
        }
        let host = &self.scenario.host(id).name;
        let settings = |error| SimError::of_host(host, error);
        let control = self.state.host(id).control.resolve().map_err(settings)?;
        if let Some(agent) = &mut self.nodes[id.0].agent {
            let period = control.law.period;
            agent.set_config(self.now, control).map_err(settings)?;
            if agent.rounds.clock.set_period(self.now, period) {
                self.events
                    .plan(agent.rounds.clock.next(), Event::Agent(id, agent.life, Delivery::Tick));
            }
        }
        Ok(self.dispatch(id)?)
    }

    /// Dispatches all admissible IOs to the array, unless the agent hangs, and checks the
    /// invariants.
    fn dispatch(&mut self, id: HostIndex) -> Result<(), Violation> {
        let host = self.scenario.host(id);
        let Node { agent, hangs, .. } = &mut self.nodes[id.0];
        let Some(agent) = agent.as_mut().filter(|_| !*hangs) else { return Ok(()) };
        while let Some((io, on_array)) = agent.dispatch(self.now, host)? {
            submit(&mut self.array, self.now, self.flights.io(agent.life, io), on_array)?;
        }
        if let Some(at) = agent.wake() {
            self.events.plan(at, Event::Agent(id, agent.life, Delivery::Wake(at)));
        }
        agent.check(host)
    }

    fn io_done(&mut self, id: HostIndex, io: IoId) -> Result<(), Violation> {
        let Node { agent: Some(agent), clients, .. } = &mut self.nodes[id.0] else { return Ok(()) };
        let done = agent.complete(self.now, io)?;
        self.meters.record(id, &done);
        agent.submit(self.now, done.vm, &mut clients[done.vm.0]);
        self.dispatch(id)
    }

    fn tick_due(&mut self, id: HostIndex) -> Result<(), Violation> {
        let begins = |agent: &mut Agent| agent.rounds.begin_round(self.now);
        if !self.nodes[id.0].agent.as_mut().is_some_and(begins) {
            return Ok(());
        }
        if self.visit_fails(id) {
            return self.tick(id, None);
        }
        let Some(agent) = &mut self.nodes[id.0].agent else { return Ok(()) };
        let (life, visit) = (agent.life, agent.rounds.read(self.now));
        self.visit(id, life, visit, self.slots.read())
    }

    /// Whether a visit of this host to the exchange that begins now fails: at once, and without
    /// reaching the array.
    fn visit_fails(&mut self, id: HostIndex) -> bool {
        if self.scenario.transport == MeetingTransport::Udp {
            // The sender of a lost datagram gets no error.
            return false;
        }
        let loss = self.state.host(id).hearing.loss;
        // No random number is drawn at loss 0: a run must not depend on settings that its scenario
        // omits.
        !self.state.reaches_exchange(id) || (loss > 0.0 && self.loss_rng.f64() < loss)
    }

    /// Whether a write of this host to the exchange that begins now fails.
    fn write_fails(&mut self, id: HostIndex) -> bool {
        let told = self.scenario.transport != MeetingTransport::Udp;
        (told && !self.state.host(id).hearing.writable) || self.visit_fails(id)
    }

    fn visit(
        &mut self,
        host: HostIndex,
        life: Life,
        visit: Visit,
        io: ArrayIo,
    ) -> Result<(), Violation> {
        if self.scenario.transport != MeetingTransport::File {
            return self.network_visit(host, visit);
        }
        let missed = Event::Agent(host, life, Delivery::Visited(visit, false));
        self.events.plan(self.now + VISIT_LIMIT, missed);
        submit(&mut self.array, self.now, self.flights.visit(life, visit), io)
    }

    /// Completes a visit to an exchange outside the array, in no time: too short for the law to
    /// notice.
    fn network_visit(&mut self, host: HostIndex, visit: Visit) -> Result<(), Violation> {
        if self.state.reaches_exchange(host) && self.state.host(host).hearing.writable {
            self.put(host, visit);
        }
        self.visited(host, visit, true)
    }

    /// Makes the message of a living host's write visit readable from now on.
    fn put(&mut self, host: HostIndex, visit: Visit) {
        let agent = self.nodes[host.0].agent.as_ref();
        if let Some(mut message) = agent.and_then(|agent| agent.rounds.writes(visit)) {
            if let Some(liar) = self.liar.as_mut().filter(|liar| liar.host == host) {
                let mut body = message.body.clone();
                (liar.lie)(self.now, &mut body);
                message = Rc::new(Message::new(message.from.clone(), message.sequence, body));
            }
            self.slots.put(self.now, host, message);
            self.meters.publications += 1;
        }
    }

    /// Handles a visit to the exchange that has ended, or was given up.
    fn visited(&mut self, id: HostIndex, visit: Visit, worked: bool) -> Result<(), Violation> {
        let Some(agent) = &mut self.nodes[id.0].agent else { return Ok(()) };
        match agent.rounds.end(visit, worked) {
            Step::Waits => {}
            Step::Reads(since) => self.tick(id, worked.then_some(since))?,
            Step::Writes(_) => self.rest(id),
        }
        Ok(())
    }

    /// Runs a host's law with the exchange as of `read`, the start of a successful read, if any.
    fn tick(&mut self, id: HostIndex, read: Option<Instant>) -> Result<(), Violation> {
        let (hearing, reaches) = (&self.state.host(id).hearing, self.state.reaches_exchange(id));
        let Some(agent) = &mut self.nodes[id.0].agent else { return Ok(()) };
        let then = self.now.0.checked_sub(Span::from(hearing.delay).0).map(Instant);
        let on_side =
            |other: HostIndex| !self.parted || self.state.host(other).hearing.side == hearing.side;
        let is_udp = self.scenario.transport == MeetingTransport::Udp;
        let (loss, random) = (hearing.loss, &mut self.loss_rng);
        let drawn = is_udp && reaches && loss > 0.0;
        let mut arrives = || !is_udp || (reaches && (!drawn || random.f64() >= loss));
        let heard = read.filter(|_| is_udp || reaches).and_then(|since| {
            let shown = self.slots.shown(then, drawn, on_side).filter(|_| arrives());
            Some((agent.rounds.hear(since, shown, &mut self.judging)?, agent.rounds.tenants(since)))
        });
        let (heard, others) = heard.unzip();
        let (report, tenants) = agent.tick(self.now, heard, others);
        let transport = self.scenario.transport;
        agent.rounds.settle(self.now, transport, heard.as_ref(), &report);
        if self.write_fails(id) {
            if let Some(agent) = &mut self.nodes[id.0].agent {
                agent.rounds.not_written();
            }
            self.rest(id);
        } else if let Some(agent) = &mut self.nodes[id.0].agent {
            let (life, visit) = (agent.life, agent.rounds.write(report, tenants));
            self.visit(id, life, visit, self.slots.write(id))?;
        }
        self.dispatch(id)
    }

    fn rest(&mut self, id: HostIndex) {
        if let Some(agent) = &mut self.nodes[id.0].agent {
            let next = agent.rounds.clock.end(self.now);
            self.events.plan(next, Event::Agent(id, agent.life, Delivery::Tick));
        }
    }
}

/// Cached by the caller, as n hosts read n slots in each period.
fn is_parted(scenario: &Scenario, state: &ClusterState) -> bool {
    let mut sides = scenario.host_ids().map(|(id, _)| &state.host(id).hearing.side);
    let first = sides.next();
    sides.any(|side| Some(side) != first)
}

fn submit(array: &mut Array, now: Instant, tag: IoTag, io: ArrayIo) -> Result<(), Violation> {
    array.submit(Nanos(now.0), tag, io).map_err(|e| Violation(format!("the array: {e}")))
}
