//! The array, the hosts, and what happens between them.

use parda_array::{Array, ArrayIo, LunId, Nanos};
use parda_control::{Instant, IoId, Span, VmId};
use parda_scenario::exchange::Hearing;
use parda_scenario::{Action, HostId, Scenario, State, Vm};
use slab::Slab;

use crate::agent::Agent;
use crate::check::{self, Violation};
use crate::client::Client;
use crate::demand::ClientRun;
use crate::events::{Event, Events, Life, Visit};
use crate::exchange::{DEADLINE, Ended, Slots};
use crate::meter::Meters;
use crate::run::SimError;

/// A host, with an agent while it lives.
#[derive(Debug)]
pub(crate) struct Node {
    name: String,
    clients: Vec<Client>,
    pub(crate) agent: Option<Agent>,
}

/// An IO at the array.
#[derive(Clone, Copy, Debug)]
enum Flight {
    Vm { host: HostId, life: Life, io: IoId },
    Exchange { host: HostId, life: Life, visit: Visit },
}

/// The cluster.
#[derive(Debug)]
pub(crate) struct Cluster<'a> {
    scenario: &'a Scenario,
    pub(crate) now: Instant,
    pub(crate) events: Events,
    pub(crate) meters: Meters,
    pub(crate) nodes: Vec<Node>,
    state: State,
    array: Array,
    flights: Slab<Flight>,
    slots: Slots,
    /// By which visits to the exchange fail.
    luck: fastrand::Rng,
    lives: u64,
    runs: u64,
}

impl<'a> Cluster<'a> {
    pub(crate) fn new(scenario: &'a Scenario) -> Result<Cluster<'a>, SimError> {
        let mut random = fastrand::Rng::with_seed(scenario.seed);
        let mut luns = 0;
        let mut nodes = Vec::with_capacity(scenario.hosts.len());
        for host in &scenario.hosts {
            let client = |(lun, vm): (u32, &Vm)| Client::new(vm, LunId(lun), random.fork());
            let clients: Vec<Client> = (luns..).zip(&host.vms).map(client).collect();
            luns += clients.len() as u32;
            nodes.push(Node { name: host.name.clone(), clients, agent: None });
        }
        let mut cluster = Cluster {
            now: Instant(0),
            events: Events::default(),
            meters: Meters::new(scenario),
            nodes,
            state: State::new(&scenario.hosts),
            array: Array::new(scenario.array_params()?)?,
            flights: Slab::new(),
            slots: Slots::new(LunId(luns), scenario),
            luck: random.fork(),
            lives: 0,
            runs: 0,
            scenario,
        };
        for (id, _) in scenario.present() {
            cluster.start_agent(id)?;
        }
        Ok(cluster)
    }

    /// When something happens next inside the array.
    pub(crate) fn array_next(&self) -> Option<Instant> {
        self.array.next_event().map(|at| Instant(at.0))
    }

    /// Lets the array do what it does now.
    pub(crate) fn advance_array(&mut self) -> Result<(), Violation> {
        self.array.advance(Nanos(self.now.0));
        while let Some((_, parda_array::IoId(key))) = self.array.pop_completion() {
            let lost = || Violation::Array(format!("completed IO {key}, which is not under way"));
            match self.flights.try_remove(key as usize).ok_or_else(lost)? {
                Flight::Vm { host, life, io } => self.io_done(host, life, io)?,
                Flight::Exchange { host, life, visit } => self.visited(host, life, visit, true)?,
            }
        }
        check::books("the cluster", self.flights.len(), "the array", self.array.outstanding())
    }

    /// Lets a host do what is due.
    pub(crate) fn host_event(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Tick(host, life) => self.tick_due(host, life),
            Event::Wake(host, life) => {
                let now = self.now;
                if let Some(agent) = self.living(host, life) {
                    agent.woken(now);
                }
                self.dispatch(host)
            }
            Event::Arrival(host, vm, run) => self.arrival(host, vm, run),
            Event::Burst(host, vm, run) => self.burst(host, vm, run),
            Event::Deadline(host, life, visit) => self.visited(host, life, visit, false),
            Event::Edge | Event::Second | Event::Timeline(_) => Ok(()),
        }
    }

    /// Lets something happen that the scenario says.
    pub(crate) fn happen(&mut self, action: &Action) -> Result<(), SimError> {
        // The timeline was checked by applying it.
        let _ = self.state.apply(action);
        match *action {
            Action::StartVm(id) => self.start_client(id.host, VmId(id.index))?,
            Action::StopVm(id) => {
                if let Some(agent) = &mut self.nodes[id.host.0].agent {
                    agent.stop(VmId(id.index));
                }
            }
            Action::SetShares(id, shares) => {
                let burst = self.scenario.vm(id).burst;
                if let Some(agent) = &mut self.nodes[id.host.0].agent {
                    agent.set_shares(VmId(id.index), shares, burst);
                }
            }
            // What it has at the array is done for nobody; what it was writing to the exchange
            // was never acknowledged, so that it may be lost.
            Action::KillHost(id) => self.nodes[id.0].agent = None,
            Action::StartHost(id) => {
                self.start_agent(id)?;
                for index in 0..self.scenario.host(id).vms.len() {
                    if self.state.runs(parda_scenario::VmId { host: id, index }) {
                        self.start_client(id, VmId(index))?;
                    }
                }
            }
            Action::SetControl(id, _) => self.set_control(id)?,
            // The state has it.
            Action::SetExchange(..) => {}
        }
        Ok(())
    }

    fn living(&mut self, host: HostId, life: Life) -> Option<&mut Agent> {
        self.nodes[host.0].agent.as_mut().filter(|agent| agent.life == life)
    }

    fn start_agent(&mut self, id: HostId) -> Result<(), SimError> {
        self.lives += 1;
        let life = Life(self.lives);
        let host = self.scenario.host(id);
        let agent = Agent::new(self.now, life, host, self.state.host(id))?;
        if !host.outside {
            self.events.plan(agent.link.next(), Event::Tick(id, life));
        }
        self.nodes[id.0].agent = Some(agent);
        Ok(())
    }

    fn start_client(&mut self, id: HostId, vm: VmId) -> Result<(), Violation> {
        self.runs += 1;
        let run = ClientRun(self.runs);
        let Node { agent, clients, .. } = &mut self.nodes[id.0];
        let Some(agent) = agent else { return Ok(()) };
        agent.start(self.now, vm, run, &mut clients[vm.0]);
        self.plan_client(id, vm, run);
        self.dispatch(id)
    }

    /// Plans what a client will do by itself that begins to work or to rest now.
    fn plan_client(&mut self, id: HostId, vm: VmId, run: ClientRun) {
        let present = self.nodes[id.0].agent.as_mut().and_then(|agent| agent.run(vm, run));
        let Some((edge, works)) = present.map(|run| (run.edge(), run.works())) else { return };
        if let Some(edge) = edge {
            self.events.plan(edge, Event::Burst(id, vm, run));
        }
        if works {
            self.plan_arrival(id, vm, run, edge);
        }
    }

    /// Plans the next arrival of an open loop, if that comes before its burst ends: in the next
    /// one the wait begins anew, as it may where it is exponential.
    fn plan_arrival(&mut self, id: HostId, vm: VmId, run: ClientRun, end: Option<Instant>) {
        let Some(gap) = self.nodes[id.0].clients[vm.0].gap() else { return };
        let at = self.now + gap;
        if end.is_none_or(|end| at < end) {
            self.events.plan(at, Event::Arrival(id, vm, run));
        }
    }

    /// An IO of an open loop arrives.
    fn arrival(&mut self, id: HostId, vm: VmId, run: ClientRun) -> Result<(), Violation> {
        let Node { agent: Some(agent), clients, .. } = &mut self.nodes[id.0] else { return Ok(()) };
        let Some(present) = agent.run(vm, run) else { return Ok(()) };
        present.arrive();
        let end = present.edge();
        agent.submit(self.now, vm, &mut clients[vm.0]);
        self.plan_arrival(id, vm, run, end);
        self.dispatch(id)
    }

    /// A burst of a client begins or ends.
    fn burst(&mut self, id: HostId, vm: VmId, run: ClientRun) -> Result<(), Violation> {
        let Node { agent: Some(agent), clients, .. } = &mut self.nodes[id.0] else { return Ok(()) };
        let Some(present) = agent.run(vm, run) else { return Ok(()) };
        present.turn(self.now);
        agent.submit(self.now, vm, &mut clients[vm.0]);
        self.plan_client(id, vm, run);
        self.dispatch(id)
    }

    fn set_control(&mut self, id: HostId) -> Result<(), SimError> {
        let host = &self.scenario.host(id).name;
        let settings = |error| SimError::Control { host: host.clone(), error };
        let resolved = self.state.host(id).control.resolve().map_err(settings)?;
        if let Some(agent) = &mut self.nodes[id.0].agent {
            agent.set_config(self.now, resolved.control).map_err(settings)?;
            if agent.link.set_period(self.now, resolved.period.into()) {
                self.events.plan(agent.link.next(), Event::Tick(id, agent.life));
            }
        }
        Ok(self.dispatch(id)?)
    }

    /// Sends to the array what may go, and sees that all is well with the host.
    fn dispatch(&mut self, id: HostId) -> Result<(), Violation> {
        let Node { agent, name, .. } = &mut self.nodes[id.0];
        let Some(agent) = agent else { return Ok(()) };
        while let Some((io, on_array)) = agent.dispatch(self.now, name)? {
            let flight = Flight::Vm { host: id, life: agent.life, io };
            submit(&mut self.array, &mut self.flights, self.now, flight, on_array)?;
        }
        if let Some(at) = agent.wake() {
            self.events.plan(at, Event::Wake(id, agent.life));
        }
        agent.check(name)
    }

    fn io_done(&mut self, id: HostId, life: Life, io: IoId) -> Result<(), Violation> {
        let Node { agent, clients, .. } = &mut self.nodes[id.0];
        let Some(agent) = agent.as_mut().filter(|agent| agent.life == life) else { return Ok(()) };
        let done = agent.complete(self.now, io)?;
        self.meters.record(id, &done);
        agent.submit(self.now, done.vm, &mut clients[done.vm.0]);
        self.dispatch(id)
    }

    fn tick_due(&mut self, id: HostId, life: Life) -> Result<(), Violation> {
        let now = self.now;
        if !self.living(id, life).is_some_and(|agent| agent.link.is_due(now)) {
            return Ok(());
        }
        if self.visit_fails(id) {
            return self.tick(id, None);
        }
        let Some(agent) = self.living(id, life) else { return Ok(()) };
        let visit = agent.link.read(now);
        self.visit(id, life, visit, self.slots.read())
    }

    /// Whether a visit of this host to the exchange fails that begins now: at once, and without
    /// reaching the array.
    fn visit_fails(&mut self, id: HostId) -> bool {
        let Hearing { reachable, loss, .. } = self.state.host(id).hearing;
        // Nothing is drawn where nothing is left to chance: no run depends on what it does not say.
        !reachable || (loss > 0.0 && self.luck.f64() < loss)
    }

    fn visit(
        &mut self,
        host: HostId,
        life: Life,
        visit: Visit,
        io: ArrayIo,
    ) -> Result<(), Violation> {
        self.events.plan(self.now + DEADLINE, Event::Deadline(host, life, visit));
        let flight = Flight::Exchange { host, life, visit };
        submit(&mut self.array, &mut self.flights, self.now, flight, io)
    }

    /// A visit to the exchange has ended, or was given up.
    fn visited(
        &mut self,
        id: HostId,
        life: Life,
        visit: Visit,
        worked: bool,
    ) -> Result<(), Violation> {
        let Some(agent) = self.living(id, life) else { return Ok(()) };
        match agent.link.end(visit) {
            Ended::Already => {}
            Ended::Read(since) => self.tick(id, worked.then_some(since))?,
            Ended::Written(message) => {
                if worked {
                    self.slots.put(self.now, id, message);
                }
                self.rest(id);
            }
        }
        Ok(())
    }

    /// The law of a host ticks, with what a read shows that was begun then, if one worked.
    fn tick(&mut self, id: HostId, read: Option<Instant>) -> Result<(), Violation> {
        let hearing = &self.state.host(id).hearing;
        let Some(agent) = &mut self.nodes[id.0].agent else { return Ok(()) };
        let then = self.now.0.checked_sub(Span::from(hearing.delay).0).map(Instant);
        let on_side = |other: HostId| self.state.host(other).hearing.side == hearing.side;
        let heard = read
            .filter(|_| hearing.reachable)
            .and_then(|since| agent.link.hear(since, self.slots.shown(then, on_side)));
        let report = agent.tick(self.now, heard);
        if self.visit_fails(id) {
            self.rest(id);
        } else if let Some(agent) = &mut self.nodes[id.0].agent {
            let (life, visit) = (agent.life, agent.link.write(report));
            self.visit(id, life, visit, self.slots.write(id))?;
        }
        self.dispatch(id)
    }

    fn rest(&mut self, id: HostId) {
        if let Some(agent) = &mut self.nodes[id.0].agent {
            let next = agent.link.rest(self.now);
            self.events.plan(next, Event::Tick(id, agent.life));
        }
    }
}

fn submit(
    array: &mut Array,
    flights: &mut Slab<Flight>,
    now: Instant,
    flight: Flight,
    io: ArrayIo,
) -> Result<(), Violation> {
    let key = parda_array::IoId(flights.insert(flight) as u64);
    array.submit(Nanos(now.0), key, io).map_err(|e| Violation::Array(e.to_string()))
}
