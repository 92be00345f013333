//! One run of a scenario, from its first event to its answer.

use std::collections::BTreeSet;
use std::time::Duration;

use parda_control::{Instant, Span};
use parda_scenario::{Engine, Phase, PhaseAnswer, RunAnswer, Scenario};

use crate::agent::Agent;
use crate::check::Violation;
use crate::cluster::{Cluster, Liar, Node};
use crate::error::SimError;
use crate::events::Event;
use crate::meter::{Tally, instant};
use crate::series::RunSeries;

/// Runs of a study whose time series are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeptRuns {
    /// No run's series is kept.
    #[default]
    Nothing,
    /// The runs that the study plots over time.
    Plotted,
    /// All runs.
    All,
}

/// Progress of a run: once per second of its own time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimProgress {
    /// Time since the beginning.
    pub at: Duration,
    /// IOs of all hosts in the last second.
    pub iops: f64,
    /// Mean device latency of those IOs. `None` without IO.
    pub device_latency_ms: Option<f64>,
}

/// Results of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOutcome {
    /// The answer.
    pub answer: RunAnswer,
    /// Time series, if they were to be kept.
    pub series: Option<RunSeries>,
    /// Number of completed IOs of VMs.
    pub ios: u64,
    /// Number of hosts' messages that reached the exchange.
    pub publications: u64,
}

/// Runs a scenario. The same scenario with the same seed gives the same answer.
///
/// # Errors
/// The scenario was built by hand and is impossible, or an invariant of the cluster broke. The
/// error for a broken invariant names the seed.
///
/// # Panics
/// On a broken invariant, where debug assertions are on: a test must not miss it.
pub fn run(
    scenario: &Scenario,
    keep: KeptRuns,
    progress: impl FnMut(SimProgress),
) -> Result<RunOutcome, SimError> {
    run_beside(scenario, keep, None, progress)
}

/// As [`run`], beside a host that lies, for tests.
///
/// # Errors
/// As [`run`].
///
/// # Panics
/// As [`run`].
pub fn run_beside<'a>(
    scenario: &'a Scenario,
    keep: KeptRuns,
    liar: Option<Liar<'a>>,
    progress: impl FnMut(SimProgress),
) -> Result<RunOutcome, SimError> {
    let mut run = Run::new(scenario, keep)?;
    run.cluster.liar = liar;
    run.play(progress).map_err(|error| match error {
        SimError::Violation(violation) => {
            let Scenario { name, seed, .. } = scenario;
            let error = Violation(format!(
                "scenario {name}, seed {seed}, at {:?}: {violation}. This is a fault of this program: please \
                 report it with the scenario",
                run.at()
            ));
            debug_assert!(false, "{error}");
            error.into()
        }
        error => error,
    })?;
    // In the order of the scenario, whichever ended first.
    run.phases.sort_by_key(|(index, _)| *index);
    let phases = run.phases.into_iter().map(|(_, phase)| phase).collect();
    Ok(RunOutcome {
        answer: RunAnswer::new(scenario, Engine::Sim, phases),
        series: run.series,
        ios: run.cluster.meters.ios,
        publications: run.cluster.meters.publications,
    })
}

struct Run<'a> {
    scenario: &'a Scenario,
    cluster: Cluster<'a>,
    /// Measurements, with the phase's index in the scenario.
    phases: Vec<(usize, PhaseAnswer)>,
    series: Option<RunSeries>,
}

fn agents(nodes: &[Node]) -> impl Iterator<Item = Option<&Agent>> + Clone {
    nodes.iter().map(|node| node.agent.as_ref())
}

impl<'a> Run<'a> {
    fn new(scenario: &'a Scenario, keep: KeptRuns) -> Result<Run<'a>, SimError> {
        let mut cluster = Cluster::new(scenario)?;
        let events = &mut cluster.events;
        // At equal times, phases end and begin before all other events.
        let edges: BTreeSet<Duration> =
            scenario.phases.iter().flat_map(|p| [p.from, p.to]).collect();
        edges.into_iter().for_each(|at| events.plan(instant(at), Event::Edge));
        for second in 1..=scenario.duration.as_secs() {
            events.plan(instant(Duration::from_secs(second)), Event::Second);
        }
        for (i, event) in scenario.timeline.iter().enumerate() {
            events.plan(instant(event.at), Event::Timeline(i));
        }
        Ok(Run {
            scenario,
            cluster,
            phases: Vec::new(),
            series: (keep != KeptRuns::Nothing).then(|| RunSeries::new(scenario)),
        })
    }

    fn at(&self) -> Duration {
        Duration::from_nanos(self.cluster.now.0)
    }

    fn play(&mut self, mut progress: impl FnMut(SimProgress)) -> Result<(), SimError> {
        let end = instant(self.scenario.duration);
        loop {
            // At equal times, planned events precede the array's completions.
            let planned = self.cluster.events.next().filter(|at| *at <= end);
            let limit = planned.unwrap_or(end + Span(1));
            if let Some(done) = self.cluster.advance_array(limit) {
                self.pass(done)?;
                self.cluster.completions()?;
                continue;
            }
            let (Some(at), Some(event)) = (planned, self.cluster.events.pop()) else {
                return Ok(());
            };
            self.pass(at)?;
            self.happen(event, &mut progress)?;
        }
    }

    /// Advances the time.
    fn pass(&mut self, until: Instant) -> Result<(), Violation> {
        if until < self.cluster.now {
            let from = self.cluster.now;
            return Err(Violation(format!("time went from {} to {} ns", from.0, until.0)));
        }
        self.cluster.now = until;
        Ok(())
    }

    fn happen(
        &mut self,
        event: Event,
        progress: &mut impl FnMut(SimProgress),
    ) -> Result<(), SimError> {
        match event {
            Event::Edge => self.edge()?,
            Event::Second => progress(self.second()),
            Event::Timeline(i) => self.cluster.happen(&self.scenario.timeline[i].action)?,
            Event::Agent(host, life, what) => self.cluster.deliver(host, life, what)?,
            Event::Arrival(host, vm, run) => self.cluster.arrival(host, vm, run)?,
            Event::Burst(host, vm, run) => self.cluster.burst(host, vm, run)?,
        }
        Ok(())
    }

    /// Ends and begins phases.
    fn edge(&mut self) -> Result<(), SimError> {
        let (now, scenario) = (self.cluster.now, self.scenario);
        let Cluster { meters, nodes, .. } = &mut self.cluster;
        let at = |edge: Duration| instant(edge) == now;
        meters.sample(now, agents(nodes));
        for (i, phase) in scenario.phases.iter().enumerate().filter(|(_, p)| at(p.to)) {
            let answer = meters.end(now, phase, scenario, agents(nodes))?;
            self.phases.extend(answer.map(|answer| (i, answer)));
        }
        let begins = |phase: &&Phase| at(phase.from);
        for phase in scenario.phases.iter().filter(begins) {
            meters.begin(now, phase, scenario, agents(nodes));
        }
        meters.sample(now, agents(nodes));
        Ok(())
    }

    /// Reports the progress of the last second.
    fn second(&mut self) -> SimProgress {
        let at = self.at();
        let now = self.cluster.now;
        let Cluster { meters, nodes, .. } = &mut self.cluster;
        meters.sample(now, agents(nodes));
        let tallies = meters.take_tallies();
        if let Some(series) = &mut self.series {
            series.add(at.as_secs_f64(), agents(nodes), &tallies);
        }
        let all = tallies.into_iter().fold(Tally::default(), Tally::plus);
        SimProgress { at, iops: all.ios as f64, device_latency_ms: all.device_ms() }
    }
}
