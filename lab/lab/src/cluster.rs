//! Processes of a scenario: the array, an agent for each host, a client for each VM. Applies events
//! to them and ends all of them when dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parda_agent::file::File;
use parda_agent::status::{Status, ask};
use parda_scenario::array::ArrayEvent;
use parda_scenario::exchange::MeetingTransport;
use parda_scenario::{Action, ClusterState, HostIndex, Scenario, VmIndex};
use parda_workload::fio::JobTarget;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::agent;
use crate::array_control::{self, ArrayRequest, ArrayStatus};
use crate::error::LabError;
use crate::export_uri::export_uri;
use crate::fio;
use crate::guest::{self, GuestHost};
use crate::limits;
use crate::meeting::{Meeting, no_way};
use crate::meter::HostReading;
use crate::options::LabOptions;
use crate::process::Process;
use crate::relay::{AddressRelay, RelayEnd};
use crate::run_dir::RunDir;
use crate::temporary;
use parda_scenario::scenario::EXCHANGE;

/// Time limit for a process to become ready, ample even in a guest on a busy machine.
const READY_WITHIN: Duration = Duration::from_secs(90);

/// Interval between checks of an awaited condition.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Lateness of wake-ups from which results are doubtful. An idle machine is late by about 0.1 ms, a
/// machine with four busy processes per CPU by 0.5 ms. An IO passes half a dozen wake-ups, so 1 ms
/// adds several milliseconds to it.
const LATE: Duration = Duration::from_millis(1);

/// Fraction of their run time that guests wait for a processor. Above it, shares are visibly
/// distorted.
const GUESTS_LATE: f64 = 0.25;

/// Length of a standstill of the machine that is visible in every latency.
const STALL: Duration = Duration::from_millis(100);

/// Extra run time of clients. They are ended with the run; this bounds them if the laboratory could
/// not.
const CLIENT_SLACK: Duration = Duration::from_secs(60);

/// The same where the run goes on until it is interrupted.
const LIVE_SLACK: Duration = Duration::from_secs(30 * 86_400);

/// Processes of a scenario. They are killed when this is dropped: clients, agents, array.
#[derive(Debug)]
pub struct Cluster<'a> {
    scenario: &'a Scenario,
    options: &'a LabOptions,
    state: ClusterState,
    clients: BTreeMap<VmIndex, Process>,
    /// Clients that were asked to stop.
    stopping: Vec<Process>,
    agents: BTreeMap<HostIndex, Process>,
    /// Hosts that are guests, with their agents and clients.
    guests: BTreeMap<HostIndex, Box<dyn GuestHost>>,
    /// Relays to the exchange, for hosts that can be cut off from it.
    relays: BTreeMap<HostIndex, AddressRelay>,
    array: Process,
    /// Sides of a partition, each with an array that has its copy of the exchange.
    sides: Vec<(String, Process)>,
    /// Hosts whose next agent is of the new version.
    upgraded: BTreeSet<HostIndex>,
    /// Medium of the hosts' exchange.
    meeting: Meeting,
    run_dir: RunDir,
    dir: Option<TempDir>,
    lateness: Lateness,
}

impl<'a> Cluster<'a> {
    /// Starts the array and an agent for each host, and waits until all of them answer.
    ///
    /// # Errors
    /// A process cannot be started, dies, or does not answer in time.
    pub fn start(scenario: &'a Scenario, options: &'a LabOptions) -> Result<Self, LabError> {
        limits::check(scenario, options.guests.is_some()).map_err(LabError::failed)?;
        fio::check()?;
        let dir = temporary::directory("parda-lab-").map_err(LabError::failed)?;
        let run_dir = RunDir::new(dir.path());
        if let Some(live) = &options.live {
            let path = run_dir.tokens();
            live.write_tokens(&path).map_err(|error| unwritten(&path, &error))?;
        }
        let meeting = Meeting::start(scenario, &run_dir)?;
        let array = start_array(options, &run_dir)?;
        let sides = start_sides(scenario, options, &run_dir)?;
        let mut cluster = Cluster {
            state: ClusterState::new(&scenario.hosts),
            scenario,
            options,
            clients: BTreeMap::new(),
            stopping: Vec::new(),
            agents: BTreeMap::new(),
            guests: BTreeMap::new(),
            relays: BTreeMap::new(),
            array,
            sides,
            upgraded: BTreeSet::new(),
            meeting,
            run_dir,
            dir: Some(dir),
            lateness: Lateness::default(),
        };
        let started = cluster.started();
        cluster.keep_logs_of(started)?;
        Ok(cluster)
    }

    fn started(&mut self) -> Result<(), LabError> {
        let (socket, control) = (self.run_dir.array(), self.run_dir.array_control());
        self.wait(Who::Array, "accept connections", |_| {
            // The control socket is the last that the array opens.
            UnixStream::connect(&socket).is_ok()
                && array_control::ask(&control, ArrayRequest::Status).is_ok()
        })?;
        let sides: Vec<PathBuf> =
            (0..self.sides.len()).map(|side| self.run_dir.side(side)).collect();
        self.wait(Who::Array, "accept connections to the sides of the exchange", |_| {
            sides.iter().all(|socket| UnixStream::connect(socket).is_ok())
        })?;
        self.wait(Who::Etcd, "elect a leader", |cluster| cluster.meeting.is_ready())?;
        if self.scenario.transport == MeetingTransport::File {
            agent::make_exchange(self.scenario, &self.run_dir)?;
        }
        let all: Vec<HostIndex> = self.scenario.present().map(|(id, _)| id).collect();
        if let Some(boot) = self.options.guests {
            self.guests = boot(self.scenario, &all, &self.run_dir)?;
        }
        let outside = |id: &HostIndex| self.scenario.host(*id).outside;
        let hosts: Vec<HostIndex> = all.into_iter().filter(|id| !outside(id)).collect();
        hosts.iter().try_for_each(|&id| self.set_hearing(id))?;
        hosts.iter().try_for_each(|&id| self.start_agent(id))?;
        hosts.iter().try_for_each(|&id| self.agent_answers(id))
    }

    /// Applies events of one time, and waits until they are in force.
    ///
    /// # Errors
    /// A process cannot be started, dies, or does not apply an event in time.
    pub fn apply<'e>(
        &mut self,
        actions: impl IntoIterator<Item = &'e Action>,
    ) -> Result<(), LabError> {
        let mut changed = Vec::new();
        for action in actions {
            // Errors are impossible: the timeline was checked by applying it.
            let _ = self.state.apply(action);
            changed.extend(self.act(action)?);
        }
        changed.dedup();
        self.reconfigure(changed)
    }

    /// Applies an action. Returns the host whose agent has new settings, if any.
    fn act(&mut self, action: &Action) -> Result<Option<HostIndex>, LabError> {
        match *action {
            Action::StartVm(id) => self.start_client(id)?,
            Action::StopVm(id) => self.stop_client(id)?,
            Action::KillHost(id) => self.kill_host(id),
            Action::StartHost(id) => self.start_host(id)?,
            Action::SetVm(VmIndex { host, .. }, _) | Action::SetControl(host, _) => {
                return Ok(Some(host));
            }
            Action::HangHost(id) => self.signal(id, Signal::STOP)?,
            Action::ResumeHost(id) => {
                self.signal(id, Signal::CONT)?;
                self.agent_answers(id)?;
                // Settings may have changed while the agent was stopped.
                return Ok(Some(id));
            }
            Action::SetExchange(id, _) => self.set_hearing(id)?,
            Action::Etcd(event) => self.meeting.happen(event)?,
            Action::Array(event) => self.array_event(event)?,
        }
        Ok(None)
    }

    fn start_host(&mut self, id: HostIndex) -> Result<(), LabError> {
        if let Some(guest) = self.guests.get_mut(&id) {
            guest.restart()?;
        }
        if !self.scenario.host(id).outside {
            self.start_agent(id)?;
            self.agent_answers(id)?;
        }
        for (vm, _) in self.scenario.vm_ids().filter(|(vm, _)| vm.host == id) {
            if self.state.runs(vm) {
                self.start_client(vm)?;
            }
        }
        Ok(())
    }

    /// Has agents read their new configuration, and waits until it is in force.
    fn reconfigure(&mut self, mut changed: Vec<HostIndex>) -> Result<(), LabError> {
        changed.retain(|&id| self.state.host(id).alive);
        for &id in &changed {
            self.configure(id)?;
            self.signal(id, Signal::HUP)?;
        }
        // A stopped agent applies its settings when it goes on.
        changed.retain(|&id| !self.state.host(id).hangs);
        changed.into_iter().try_for_each(|id| {
            let file = self.file(id);
            let follows = |c: &mut Self| c.ask(id).is_some_and(|s| agent::follows(&s, &file));
            self.wait(Who::Agent(id), "take up its new configuration", follows)
        })
    }

    /// Reading of a host. `None` if the host is dead or its agent is stopped.
    ///
    /// # Errors
    /// The agent is alive and does not answer. For a host outside control: the array does not answer.
    pub fn status(&mut self, id: HostIndex) -> Result<Option<HostReading>, LabError> {
        if self.scenario.host(id).outside {
            let disks = self.ask_array(ArrayRequest::Status)?.exports;
            return Ok(Some(HostReading { window: None, beta: 0.0, disks }));
        }
        if !self.state.host(id).alive || self.state.host(id).hangs {
            return Ok(None);
        }
        let Some(status) = self.ask(id) else {
            return Err(self.late(Who::Agent(id), "say how it stands"));
        };
        let volume = status.volumes.into_iter().find(|v| v.name == agent::VOLUME);
        let Some(volume) = volume else { return Ok(None) };
        Ok(Some(match self.guests.get(&id) {
            Some(guest) => guest.reading(volume)?,
            None => HostReading::from(volume),
        }))
    }

    /// IOs that the array has completed for the exchange.
    pub fn exchange_ios(&mut self) -> Result<u64, LabError> {
        let exports = self.ask_array(ArrayRequest::Status)?.exports;
        let exchange = exports.iter().find(|export| export.name == EXCHANGE);
        Ok(exchange.map_or(0, |export| export.reads.ios + export.writes.ios))
    }

    /// Status of a host's agent. `None` if it does not answer.
    fn ask(&self, id: HostIndex) -> Option<Status> {
        match self.guests.get(&id) {
            Some(guest) => guest.status(),
            None => ask(&self.run_dir.status(id)).ok(),
        }
    }

    /// Whether a host's agent is stopped.
    #[must_use]
    pub fn hangs(&self, id: HostIndex) -> bool {
        self.state.host(id).hangs
    }

    /// Waits until a moment, and checks that all processes live until then.
    ///
    /// # Errors
    /// A process died, or the user interrupted the run.
    pub fn live_until(&mut self, moment: Instant) -> Result<(), LabError> {
        loop {
            self.check()?;
            let left = moment.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let (pause, slept) = (left.min(LOOK_EVERY), Instant::now());
            std::thread::sleep(pause);
            self.lateness.add(slept.elapsed().saturating_sub(pause));
        }
    }

    /// Keeps all processes until the user interrupts the run.
    ///
    /// # Errors
    /// A process died.
    pub fn live_on(&mut self) -> Result<(), LabError> {
        loop {
            match self.live_until(Instant::now() + LIVE_SLACK) {
                Err(LabError::Interrupted) => return Ok(()),
                other => other?,
            }
        }
    }

    /// Warns if the machine had too little CPU for the measured values to be meaningful.
    pub fn warn_if_late(&self) {
        let (mean, worst) = (self.lateness.mean(), self.lateness.worst);
        if mean > LATE || worst > STALL {
            tracing::warn!(
                "this machine was short of CPU: who was due ran {mean:.1?} late on average, \
                 {worst:.0?} at worst, and all latencies include that. Run it again with less \
                 going on beside it"
            );
        }
        let guests = self.guests.values().map(|guest| guest.ran_and_waited());
        let (ran, waited) = guests
            .fold(Default::default(), |(ran, waited): (Duration, Duration), (r, w)| {
                (ran + r, waited + w)
            });
        if waited > ran.mul_f64(GUESTS_LATE) {
            tracing::warn!(
                "this machine was short of CPU: its guests ran for {ran:.1?}, and waited for a \
                 processor for another {waited:.1?}, which is in all latencies and makes guests \
                 unequal. Run it again with less going on beside it"
            );
        }
    }

    /// Keeps the logs if they may explain an error.
    ///
    /// # Errors
    /// That of `result`.
    pub fn keep_logs_of<T>(&mut self, result: Result<T, LabError>) -> Result<T, LabError> {
        if result.as_ref().is_err_and(|error| !matches!(error, LabError::Interrupted)) {
            self.keep_logs();
        }
        result
    }

    /// Keeps the directory with the logs, which is otherwise removed on drop.
    pub fn keep_logs(&mut self) {
        if let Some(dir) = self.dir.take() {
            tracing::info!("configurations and logs are in {}", dir.keep().display());
        }
    }

    fn check(&mut self) -> Result<(), LabError> {
        if self.options.interrupt.load(Ordering::Relaxed) {
            return Err(LabError::Interrupted);
        }
        self.stopping.retain_mut(|process| process.ended().is_none());
        self.meeting.check().map_err(LabError::failed)?;
        let everybody = std::iter::once(&mut self.array)
            .chain(self.sides.iter_mut().map(|(_, array)| array))
            .chain(self.meeting.processes())
            .chain(self.agents.values_mut())
            .chain(self.clients.values_mut());
        // The array is checked first and clients last. The end of a process takes the later ones with
        // it, and the error names the cause.
        for process in everybody {
            if let Some(status) = process.ended() {
                let what = format!("{} ended unexpectedly, {status}", process.who());
                return Err(logged(&what, &process.last_words(), &self.run_dir));
            }
        }
        let alive = |id: &HostIndex| self.state.host(*id).alive;
        let mut guests = self.guests.iter_mut().filter(|(id, _)| alive(id));
        Ok(guests.try_for_each(|(_, guest)| guest.check())?)
    }

    fn wait(
        &mut self,
        who: Who,
        what: &'static str,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> Result<(), LabError> {
        let deadline = Instant::now() + READY_WITHIN;
        while !done(self) {
            self.check()?;
            if Instant::now() > deadline {
                return Err(self.late(who, what));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    fn late(&mut self, who: Who, what: &'static str) -> LabError {
        // A process that died is the cause of the error.
        if let Err(died) = self.check() {
            return died;
        }
        let process = match who {
            Who::Array => Some(&self.array),
            Who::Agent(id) => self.agents.get(&id),
            Who::Etcd => self.meeting.processes().next().map(|process| &*process),
        };
        let within = humantime::format_duration(READY_WITHIN);
        let (who, last) = process.map_or_else(Default::default, |p| (p.who(), p.last_words()));
        logged(&format!("{who} did not {what} within {within}"), &last, &self.run_dir)
    }

    /// Configuration of a host's agent.
    fn file(&self, id: HostIndex) -> File {
        let mut file = agent::configuration(self.scenario, id, self.state.host(id), &self.run_dir);
        if let Some(exchange) = self.meeting.exchange(id) {
            file.volume.iter_mut().for_each(|volume| volume.exchange = Some(exchange.clone()));
        }
        file
    }

    fn configure(&self, id: HostIndex) -> Result<(), LabError> {
        let mut file = self.file(id);
        file.http =
            self.options.live.as_ref().and_then(|live| live.http(id, &self.run_dir.tokens()));
        if let Some(guest) = self.guests.get(&id) {
            return Ok(guest.configure(file)?);
        }
        let path = self.run_dir.configuration(id);
        let text = toml::to_string(&file).map_err(std::io::Error::other);
        let written = text.and_then(|text| fs::write(&path, text));
        written.map_err(|error| unwritten(&path, &error))
    }

    fn start_agent(&mut self, id: HostIndex) -> Result<(), LabError> {
        self.configure(id)?;
        if let Some(guest) = self.guests.get_mut(&id) {
            return Ok(guest.start_agent()?);
        }
        let name = &self.scenario.host(id).name;
        let before = self.options.before.as_ref().filter(|_| !self.upgraded.contains(&id));
        self.upgraded.insert(id);
        let mut command = Command::new(before.unwrap_or(&self.options.parda));
        command.arg("serve").arg("-c").arg(self.run_dir.configuration(id));
        let log = self.run_dir.log(&format!("agent-{name}"));
        self.agents.insert(id, start(format!("the agent of {name}"), log, command)?);
        Ok(())
    }

    fn agent_answers(&mut self, id: HostIndex) -> Result<(), LabError> {
        self.wait(Who::Agent(id), "say how it stands", |cluster| cluster.ask(id).is_some())
    }

    /// Applies an event to the array.
    fn array_event(&mut self, event: ArrayEvent) -> Result<(), LabError> {
        let request = match event {
            ArrayEvent::FailDrive(drive) => ArrayRequest::FailDrive(drive),
            // Only one drive can have failed, and the event was checked to name it.
            ArrayEvent::RebuildDrive(_) => ArrayRequest::Rebuild,
            ArrayEvent::WriteCache(on) => ArrayRequest::WriteCache(on),
            ArrayEvent::Slow(slow) => ArrayRequest::Slow(slow),
        };
        let refused = |why| LabError::failed(format!("nothing happened to the array: {why}"));
        self.ask_array(request)?.error.map_or(Ok(()), |why| Err(refused(why)))
    }

    fn ask_array(&mut self, request: ArrayRequest) -> Result<ArrayStatus, LabError> {
        array_control::ask(&self.run_dir.array_control(), request)
            .map_err(|_| self.late(Who::Array, "say how it stands"))
    }

    fn signal(&mut self, id: HostIndex, signal: Signal) -> Result<(), LabError> {
        if let Some(agent) = self.agents.get_mut(&id) {
            agent.signal(signal);
        }
        Ok(self.guests.get(&id).map_or(Ok(()), |guest| guest.signal_agent(signal))?)
    }

    /// Has a host hear the others as its state says.
    fn set_hearing(&mut self, id: HostIndex) -> Result<(), LabError> {
        if self.scenario.transport == MeetingTransport::File {
            return self.set_relay(id);
        }
        let name = &self.scenario.host(id).name;
        self.meeting.set(name, id, &self.state.host(id).hearing)
    }

    /// Makes or cuts a host's relay to the exchange, or leads it to the copy of the host's side. Does
    /// nothing for hosts without a relay.
    fn set_relay(&mut self, id: HostIndex) -> Result<(), LabError> {
        let hearing = &self.state.host(id).hearing;
        let side = self.sides.iter().position(|(side, _)| *side == hearing.side);
        let to = RelayEnd::Unix(
            side.map_or_else(|| self.run_dir.array(), |side| self.run_dir.side(side)),
        );
        let led = self.relays.get(&id).is_some_and(|relay| relay.leads_to(&to));
        if !hearing.reachable || !led {
            self.relays.remove(&id);
        }
        if hearing.reachable && !led && limits::has_own_relay(self.scenario, id) {
            let host = &self.scenario.host(id).name;
            let relay = AddressRelay::start(RelayEnd::Unix(self.run_dir.exchange(id)), to)
                .map_err(|error| no_way(host, &error))?;
            self.relays.insert(id, relay);
        }
        Ok(())
    }

    fn kill_host(&mut self, id: HostIndex) {
        if let Some(agent) = self.agents.remove(&id) {
            agent.kill();
        }
        if let Some(guest) = self.guests.get_mut(&id) {
            guest.kill();
        }
        self.clients.retain(|vm, _| vm.host != id);
    }

    fn start_client(&mut self, id: VmIndex) -> Result<(), LabError> {
        let Scenario { seed, duration, .. } = *self.scenario;
        let vm = self.scenario.vm(id);
        let slack = if self.options.live.is_some() { LIVE_SLACK } else { CLIENT_SLACK };
        let told = |target| {
            fio::arguments(vm, id, target, seed, duration + slack).map_err(LabError::failed)
        };
        if let Some(guest) = self.guests.get_mut(&id.host) {
            return Ok(guest.start_client(id, &told(JobTarget::Path(guest::DISK))?)?);
        }
        let outside = self.scenario.host(id.host).outside;
        let socket = if outside { self.run_dir.array() } else { self.run_dir.disks(id.host) };
        let uri = export_uri(&socket, &vm.name);
        let mut command = Command::new("fio");
        command.args(told(JobTarget::Nbd(&uri))?);
        let log = self.run_dir.log(&format!("fio-{}", vm.name));
        self.clients.insert(id, start(format!("the client of {}", vm.name), log, command)?);
        Ok(())
    }

    fn stop_client(&mut self, id: VmIndex) -> Result<(), LabError> {
        if let Some(guest) = self.guests.get_mut(&id.host) {
            guest.stop_client(id)?;
        }
        if let Some(mut client) = self.clients.remove(&id) {
            // fio waits for its outstanding IOs, if it is not stopped.
            client.signal(Signal::INT);
            client.signal(Signal::CONT);
            self.stopping.push(client);
        }
        Ok(())
    }

    /// Ends a client's burst, or begins the next one. Between bursts the client is stopped (SIGSTOP).
    /// The host completes its outstanding IOs. (fio's `thinktime` would begin with a longer burst.)
    ///
    /// # Errors
    /// The client's host is a guest that is gone.
    pub fn burst(&mut self, id: VmIndex, works: bool) -> Result<(), LabError> {
        let signal = if works { Signal::CONT } else { Signal::STOP };
        if let Some(client) = self.clients.get_mut(&id) {
            client.signal(signal);
        }
        Ok(self.guests.get(&id.host).map_or(Ok(()), |guest| guest.signal_client(id, signal))?)
    }
}

/// Lateness of wake-ups, which this machine adds to every latency.
#[derive(Clone, Copy, Debug, Default)]
struct Lateness {
    times: u32,
    sum: Duration,
    worst: Duration,
}

impl Lateness {
    fn add(&mut self, late: Duration) {
        self.times += 1;
        self.sum += late;
        self.worst = self.worst.max(late);
    }

    fn mean(&self) -> Duration {
        self.sum / self.times.max(1)
    }
}

/// A process that is awaited.
#[derive(Clone, Copy, Debug)]
enum Who {
    Array,
    Agent(HostIndex),
    Etcd,
}

fn start_array(options: &LabOptions, run_dir: &RunDir) -> Result<Process, LabError> {
    let mut command = array(options, &run_dir.array());
    command.arg("--control").arg(run_dir.array_control());
    start("the array".to_owned(), run_dir.log("array"), command)
}

/// Starts an array for each side of a partition. Only its exchange is used.
fn start_sides(
    scenario: &Scenario,
    options: &LabOptions,
    run_dir: &RunDir,
) -> Result<Vec<(String, Process)>, LabError> {
    let sides = limits::sides(scenario).into_iter().enumerate();
    let started = sides.map(|(n, side)| {
        let who = format!("the exchange of side {side:?}");
        let log = run_dir.log(&format!("side{n}"));
        Ok((side, start(who, log, array(options, &run_dir.side(n)))?))
    });
    started.collect()
}

/// Command that serves the scenario's array at a socket.
fn array(options: &LabOptions, socket: &Path) -> Command {
    let mut command = Command::new(&options.parda_lab);
    command.arg("array").arg("--scenario").arg(&options.scenario);
    if let Some(variant) = &options.variant {
        command.arg("--variant").arg(variant);
    }
    command.arg("--listen").arg(format!("unix:{}", socket.display()));
    command
}

fn start(who: String, log: PathBuf, command: Command) -> Result<Process, LabError> {
    let failed = format!("cannot start {who}");
    Process::start(who, log, command).map_err(|e| LabError::failed(format!("{failed}: {e}")))
}

/// Error of a process, with the last lines of its log.
fn logged(what: &str, last: &str, logs: &RunDir) -> LabError {
    let logs = logs.path().display();
    LabError::failed(format!("{what}. It last said:\n{last}\nAll logs are in {logs}"))
}

fn unwritten(path: &Path, error: &std::io::Error) -> LabError {
    LabError::failed(format!("cannot write {}: {error}", path.display()))
}
