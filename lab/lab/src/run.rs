//! Run of a scenario, from its first process to its answer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use parda_agent::latency::Latency;
use parda_scenario::{
    Action, ClusterState, Engine, HostIndex, Phase, PhaseAnswer, RunAnswer, Scenario,
    TimelineEvent, VmIndex,
};

use crate::cluster::Cluster;
use crate::error::LabError;
use crate::meter::{HostMeter, RunReading};
use crate::options::LabOptions;

/// Interval between reports of progress.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Interval between reports with guests: asking a guest's agent takes a tenth of a second of a
/// processor.
const TELL_OF_GUESTS_EVERY: Duration = Duration::from_millis(2500);

/// Progress of a run: once per second, and less often with guests.
#[derive(Clone, Debug, PartialEq)]
pub struct LabProgress<'a> {
    /// Time since the beginning of the run.
    pub at: Duration,
    /// The phase that is being measured, if any.
    pub phase: Option<&'a str>,
    /// IOs of all hosts per second since the last report.
    pub iops: f64,
    /// Mean device latency of those IOs, in ms. `None` without IO.
    pub device_latency_ms: Option<f64>,
}

/// A task of the run's schedule.
#[derive(Clone, Copy, Debug)]
enum Task<'a> {
    /// Reads all meters, as a phase begins or ends.
    Read,
    /// Reports the progress of the run.
    Tell,
    /// Begins (`true`) or ends a client's burst.
    Burst(VmIndex, bool),
    /// Applies events to the cluster.
    Events(&'a [TimelineEvent]),
}

/// Runs a scenario with real processes and returns its answer. All processes have ended when it
/// returns.
///
/// The calling thread must live to the end of the run: the processes die with it.
///
/// # Errors
/// The run failed, or was interrupted. A failed expectation is no error.
pub fn run(
    scenario: &Scenario,
    options: &LabOptions,
    mut progress: impl FnMut(LabProgress<'_>),
) -> Result<RunAnswer, LabError> {
    let mut run = Run::start(scenario, options)?;
    let played = run.play(&mut progress);
    run.cluster.keep_logs_of(played)?;
    if options.live.is_some() {
        let lived = run.cluster.live_on();
        run.cluster.keep_logs_of(lived)?;
    }
    run.cluster.warn_if_late();
    let answer = RunAnswer::new(scenario, Engine::Lab, run.phases());
    if options.keep_logs || !answer.ok() {
        run.cluster.keep_logs();
    }
    Ok(answer)
}

struct Run<'a> {
    scenario: &'a Scenario,
    cluster: Cluster<'a>,
    meters: Vec<HostMeter>,
    began: Instant,
    /// Readings of all hosts at the edges of phases, with the exchange's IO count at that time.
    edges: BTreeMap<Duration, (Vec<RunReading>, u64)>,
    /// Readings of all hosts at the last report of progress.
    told: Vec<RunReading>,
}

impl<'a> Run<'a> {
    fn start(scenario: &'a Scenario, options: &'a LabOptions) -> Result<Run<'a>, LabError> {
        let cluster = Cluster::start(scenario, options)?;
        let began = Instant::now();
        let meters: Vec<HostMeter> =
            scenario.hosts.iter().map(|h| HostMeter::new(h, began)).collect();
        let told = meters.iter().map(|meter| meter.reading(began)).collect();
        Ok(Run { scenario, cluster, meters, began, edges: BTreeMap::new(), told })
    }

    fn play(&mut self, progress: &mut dyn FnMut(LabProgress<'_>)) -> Result<(), LabError> {
        for (at, task) in tasks(self.scenario) {
            self.cluster.live_until(self.began + at)?;
            match task {
                Task::Read => {
                    let readings = self.read()?;
                    let exchange = self.cluster.exchange_ios()?;
                    self.edges.insert(at, (readings, exchange));
                }
                Task::Tell => progress(self.tell(at)?),
                Task::Burst(id, works) => self.cluster.burst(id, works)?,
                Task::Events(events) => self.happen(events)?,
            }
        }
        Ok(())
    }

    fn happen(&mut self, events: &[TimelineEvent]) -> Result<(), LabError> {
        let killed = |event: &TimelineEvent| match event.action {
            Action::KillHost(id) => Some(id).filter(|id| !self.scenario.host(*id).outside),
            _ => None,
        };
        let killed: Vec<HostIndex> = events.iter().filter_map(killed).collect();
        let hangs = |event: &TimelineEvent| matches!(event.action, Action::HangHost(_));
        // An agent's counters are lost when it is killed, and a stopped agent does not answer until it is resumed. All are read
        // once, before any of the meters begins with a new agent.
        if !killed.is_empty() || events.iter().any(hangs) {
            self.read()?;
        }
        for id in killed {
            self.meters[id.0].end_of_agent();
        }
        self.cluster.apply(events.iter().map(|event| &event.action))
    }

    /// Reads the meters of all hosts.
    fn read(&mut self) -> Result<Vec<RunReading>, LabError> {
        for (i, meter) in self.meters.iter_mut().enumerate() {
            match self.cluster.status(HostIndex(i))? {
                Some(status) => meter.take(Instant::now(), &status),
                None if self.cluster.hangs(HostIndex(i)) => meter.hangs(Instant::now()),
                None => {}
            }
        }
        let now = Instant::now();
        Ok(self.meters.iter().map(|meter| meter.reading(now)).collect())
    }

    fn tell(&mut self, at: Duration) -> Result<LabProgress<'a>, LabError> {
        let now = self.read()?;
        let (mut iops, mut device) = (0.0, Latency::default());
        for (now, then) in now.iter().zip(&self.told) {
            iops += now.iops_since(then);
            device = device.plus(&now.since(then).device());
        }
        self.told = now;
        let within = |p: &&Phase| p.from < at && at <= p.to;
        let phase = self.scenario.phases.iter().find(within).map(|p| p.name.as_str());
        let device_latency_ms = (device.count() > 0).then(|| device.summary().mean);
        Ok(LabProgress { at, phase, iops, device_latency_ms })
    }

    fn phases(&self) -> Vec<PhaseAnswer> {
        let answer = |phase: &Phase| {
            let (from, before) = self.edges.get(&phase.from)?;
            let (to, after) = self.edges.get(&phase.to)?;
            let seconds = phase.to.saturating_sub(phase.from).as_secs_f64();
            let exchange = after.saturating_sub(*before) as f64 / seconds;
            let hosts = self.scenario.host_ids().zip(&self.meters);
            let hosts = hosts.filter(|((_, host), _)| host.present).map(|((id, _), meter)| {
                meter.answer(self.scenario, id, phase, (&from[id.0], &to[id.0]))
            });
            Some(PhaseAnswer::new(phase, hosts.collect()).with_exchange(exchange))
        };
        self.scenario.phases.iter().filter_map(answer).collect()
    }
}

/// All tasks in time order. At one time meters are read first, so that events count towards the
/// phase that begins.
fn tasks(scenario: &Scenario) -> Vec<(Duration, Task<'_>)> {
    let edges: BTreeSet<Duration> = scenario.phases.iter().flat_map(|p| [p.from, p.to]).collect();
    let reads = edges.into_iter().map(|at| (at, Task::Read));
    let guests = scenario.present().any(|(_, host)| host.guest.is_some());
    let every = if guests { TELL_OF_GUESTS_EVERY } else { TELL_EVERY };
    let tells = (1..).map(|n| every * n).take_while(|at| *at <= scenario.duration);
    let tells = tells.map(|at| (at, Task::Tell));
    let events = scenario.timeline.chunk_by(|a, b| a.at == b.at);
    let events = events.map(|events| (events[0].at, Task::Events(events)));
    let mut tasks: Vec<_> = reads.chain(tells).chain(bursts(scenario)).chain(events).collect();
    tasks.sort_by_key(|(at, _)| *at);
    tasks
}

/// Ends and beginnings of the bursts of all clients.
fn bursts(scenario: &Scenario) -> Vec<(Duration, Task<'_>)> {
    let mut tasks = Vec::new();
    for (id, vm) in scenario.vm_ids() {
        let Some(bursts) = vm.load.bursts() else { continue };
        let mut state = ClusterState::new(&scenario.hosts);
        let mut since = None;
        let mut ran = |since: Option<Duration>, until| {
            let edges = since.into_iter().flat_map(|since| bursts.edges(since, until));
            tasks.extend(edges.map(|(at, works)| (at, Task::Burst(id, works))));
        };
        for event in &scenario.timeline {
            // Errors are impossible: the timeline was checked by applying it.
            let _ = state.apply(&event.action);
            match (state.runs(id), since) {
                (true, None) => since = Some(event.at),
                (false, Some(_)) => ran(since.take(), event.at),
                _ => {}
            }
        }
        ran(since, scenario.duration);
    }
    tasks
}

#[cfg(test)]
mod tests {
    use super::*;
    use parda_config::Document;

    #[test]
    fn bursts_begin_with_their_client_and_end_with_it() {
        let text = "name = \"t\"\nduration = \"20s\"\n[array]\npreset = \"cx3-40-raid0\"\n\
            [[host]]\nname = \"a\"\n[[host.vm]]\nname = \"db\"\nshares = 1\ndisk = \"1GiB\"\n\
            start = \"1s\"\nworkload = { size = \"4KiB\", read = 100, random = 100, \
            outstanding = 8, on = \"2s\", off = \"3s\" }\n\
            [[event]]\nat = \"8s\"\nhost = \"a\"\ndo = \"kill\"\n\
            [[event]]\nat = \"16500ms\"\nhost = \"a\"\ndo = \"start\"\n\
            [[phase]]\nname = \"p\"\nfrom = \"1s\"\nto = \"2s\"\n";
        let scenario = Scenario::parse(&Document::new("t.toml", text)).unwrap();
        let edges: Vec<(u128, bool)> = tasks(&scenario)
            .into_iter()
            .filter_map(|(at, task)| match task {
                Task::Burst(_, works) => Some((at.as_millis(), works)),
                _ => None,
            })
            .collect();
        assert_eq!(edges, [(3000, false), (6000, true), (18_500, false)]);
    }

    #[test]
    fn meters_are_read_before_anything_happens_at_the_edge_of_a_phase() {
        let text = "name = \"t\"\nduration = \"3s\"\n[array]\npreset = \"cx3-40-raid0\"\n\
            [[host]]\nname = \"a\"\n[[host.vm]]\nname = \"db\"\nshares = 1\ndisk = \"1GiB\"\n\
            workload = { size = \"4KiB\", read = 100, random = 100, outstanding = 8 }\n\
            [[event]]\nat = \"2s\"\nhost = \"a\"\ndo = \"kill\"\n\
            [[event]]\nat = \"2s\"\nhost = \"a\"\ndo = \"start\"\n\
            [[phase]]\nname = \"p\"\nfrom = \"500ms\"\nto = \"2s\"\n\
            [[phase]]\nname = \"q\"\nfrom = \"2s\"\nto = \"3s\"\n";
        let scenario = Scenario::parse(&Document::new("t.toml", text)).unwrap();
        let order: Vec<(u128, String)> = tasks(&scenario)
            .into_iter()
            .map(|(at, task)| match task {
                Task::Events(events) => (at.as_millis(), format!("{} events", events.len())),
                task => (at.as_millis(), format!("{task:?}")),
            })
            .collect();
        let want = [
            (0, "1 events"),
            (500, "Read"),
            (1000, "Tell"),
            (2000, "Read"),
            (2000, "Tell"),
            (2000, "2 events"),
            (3000, "Read"),
            (3000, "Tell"),
        ];
        assert_eq!(order, want.map(|(at, task)| (at, task.to_owned())));
    }
}
