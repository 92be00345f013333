//! Counters of one phase of a run.
//!
//! The laboratory reads its agents' counters at both ends of a phase. Here each phase has its own counters, which start with it:
//! the difference is the same.

use std::time::Duration;

use parda_control::{Completed, Instant, IoKind, Span};
use parda_scenario::count::{HostCount, VmCount, mean};
use parda_scenario::{HostIndex, Phase, PhaseAnswer, Scenario, VmIndex};

use crate::agent::Agent;
use crate::check::Violation;
use crate::demand::ClientRun;
use crate::latencies::Latencies;

/// The instant of a scenario's time.
pub(crate) fn instant(at: Duration) -> Instant {
    Instant(0) + Span::from(at)
}

/// IOs and their time at the array.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) ios: u64,
    device: u128,
}

/// Number of a host's IOs that are counted in its phases at a time. Latencies of a large cluster do not fit the processor's
/// caches, and so are fetched once for all of these.
const AT_ONCE: usize = 64;

/// The meters of all hosts.
#[derive(Debug)]
pub(crate) struct Meters {
    open: Vec<PhaseMeter>,
    /// Completed IOs of each host that are not counted in the open phases yet.
    recent: Vec<Vec<Recent>>,
    /// IOs of each host since the last second.
    tallies: Vec<Tally>,
    /// IOs completed since the beginning.
    pub(crate) ios: u64,
    /// Messages of hosts that reached the exchange.
    pub(crate) publications: u64,
}

/// A completed IO.
#[derive(Clone, Copy, Debug)]
struct Recent {
    vm: usize,
    bytes: u64,
    held: Span,
    device: Span,
    /// The device time of a trim depends on the length of its range. Device latencies leave trims out,
    /// and IOPS and latencies of VMs count them.
    kind: IoKind,
}

#[derive(Debug)]
struct PhaseMeter {
    phase: Phase,
    hosts: Vec<HostMeter>,
    /// IOs of the exchange.
    exchange: u64,
}

#[derive(Debug, Default)]
struct HostMeter {
    /// Window at every second and at the phase's edges.
    windows: Vec<(Instant, f64)>,
    beta: Vec<f64>,
    device: Latencies,
    vms: Vec<VmMeter>,
}

#[derive(Debug, Default)]
struct VmMeter {
    count: VmCount,
    total: Latencies,
    held: Latencies,
    device: Tally,
    /// [`Agent::lived`] when the phase began.
    lived: (ClientRun, u128),
}

impl Tally {
    fn add(&mut self, device: Span) {
        self.ios += 1;
        self.device += u128::from(device.0);
    }

    /// Mean time at the array, in ms. `None` without IO.
    pub(crate) fn device_ms(self) -> Option<f64> {
        (self.ios > 0).then(|| self.device as f64 / self.ios as f64 / 1e6)
    }

    pub(crate) fn plus(self, other: Tally) -> Tally {
        Tally { ios: self.ios + other.ios, device: self.device + other.device }
    }
}

impl Meters {
    pub(crate) fn new(scenario: &Scenario) -> Meters {
        let tallies = vec![Tally::default(); scenario.hosts.len()];
        let recent = scenario.hosts.iter().map(|_| Vec::new()).collect();
        Meters { open: Vec::new(), recent, tallies, ios: 0, publications: 0 }
    }

    /// Records a completed IO.
    pub(crate) fn record(&mut self, host: HostIndex, done: &Completed) {
        self.ios += 1;
        let (bytes, device, held) = (done.io.bytes.0, done.device, done.held);
        let kind = done.io.kind;
        if kind != IoKind::Discard {
            self.tallies[host.0].add(device);
        }
        if self.open.is_empty() {
            return;
        }
        let recent = &mut self.recent[host.0];
        recent.push(Recent { vm: done.vm.0, bytes, held, device, kind });
        if recent.len() >= AT_ONCE {
            self.open.iter_mut().for_each(|phase| phase.hosts[host.0].count_all(recent));
            recent.clear();
        }
    }

    /// Adds pending IOs to the open phases, before a phase begins or ends.
    fn settle(&mut self) {
        for (host, recent) in self.recent.iter_mut().enumerate() {
            self.open.iter_mut().for_each(|phase| phase.hosts[host].count_all(recent));
            recent.clear();
        }
    }

    /// Counts a completed IO of the exchange.
    pub(crate) fn visited(&mut self) {
        self.open.iter_mut().for_each(|phase| phase.exchange += 1);
    }

    /// Records the hosts' windows.
    pub(crate) fn sample<'a>(
        &mut self,
        now: Instant,
        agents: impl Iterator<Item = Option<&'a Agent>> + Clone,
    ) {
        for phase in &mut self.open {
            for (host, agent) in phase.hosts.iter_mut().zip(agents.clone()) {
                if let Some(agent) = agent {
                    host.windows.extend(agent.window().map(|w| (now, w)));
                    host.beta.push(agent.beta);
                }
            }
        }
    }

    /// Begins a phase.
    pub(crate) fn begin<'a>(
        &mut self,
        now: Instant,
        phase: &Phase,
        scenario: &Scenario,
        agents: impl Iterator<Item = Option<&'a Agent>>,
    ) {
        self.settle();
        let host = |(host, agent): (&parda_scenario::Host, Option<&Agent>)| {
            let lived = agent.map(|agent| agent.lived(now)).unwrap_or_default();
            let vm = |index| VmMeter {
                lived: lived.get(index).copied().unwrap_or_default(),
                ..VmMeter::default()
            };
            let vms = (0..host.vms.len()).map(vm).collect();
            HostMeter { vms, ..HostMeter::default() }
        };
        let hosts = scenario.hosts.iter().zip(agents).map(host).collect();
        self.open.push(PhaseMeter { phase: phase.clone(), hosts, exchange: 0 });
    }

    /// Ends a phase; returns its results. The counters of every client are checked, and so is Little's law for every closed loop
    /// that worked throughout.
    pub(crate) fn end<'a>(
        &mut self,
        now: Instant,
        phase: &Phase,
        scenario: &Scenario,
        agents: impl Iterator<Item = Option<&'a Agent>>,
    ) -> Result<Option<PhaseAnswer>, Violation> {
        self.settle();
        let Some(index) = self.open.iter().position(|open| open.phase == *phase) else {
            return Ok(None);
        };
        let PhaseMeter { hosts, exchange, .. } = self.open.remove(index);
        let span = Span::from(phase.to.saturating_sub(phase.from));
        let at_start = scenario.state_at(phase.from);
        let mut answers = Vec::with_capacity(hosts.len());
        let all = scenario.host_ids().zip(hosts).zip(agents);
        for (((id, host), meter), agent) in all.filter(|(((_, host), _), _)| host.present) {
            agent.map_or(Ok(()), |agent| agent.audit(now, &host.vms))?;
            let lived = agent.map(|agent| agent.lived(now)).unwrap_or_default();
            for (index, (then, now)) in meter.vms.iter().zip(lived).enumerate() {
                let (vm, vm_id) = (&host.vms[index], VmIndex { host: id, index });
                if scenario.runs_throughout(vm_id, phase, &at_start) {
                    little(vm, phase, span, then.lived, now)?;
                }
            }
            answers.push(
                meter.count(instant(phase.from), span).answer(scenario, id, phase, &at_start),
            );
        }
        let exchange = exchange as f64 / span.secs();
        Ok(Some(PhaseAnswer::new(phase, answers).with_exchange(exchange)))
    }

    /// Counts of each host since the last call.
    pub(crate) fn take_tallies(&mut self) -> Vec<Tally> {
        let none = vec![Tally::default(); self.tallies.len()];
        std::mem::replace(&mut self.tallies, none)
    }
}

/// Checks Little's law, X · L = N, of a closed loop exactly, from the parts of all IOs' lives within the phase.
fn little(
    vm: &parda_scenario::Vm,
    phase: &Phase,
    span: Span,
    then: (ClientRun, u128),
    now: (ClientRun, u128),
) -> Result<(), Violation> {
    let Some(outstanding) = vm.load.outstanding() else { return Ok(()) };
    // A client that started at the beginning of the phase has lived only since then.
    let lived = if then.0 == now.0 { now.1 - then.1 } else { now.1 };
    let expected = u128::from(outstanding) * u128::from(span.0);
    if lived == expected {
        return Ok(());
    }
    Err(Violation(format!(
        "VM {}: the times of its IOs in phase {} add up to {lived} IO·ns, but {outstanding} outstanding \
         for {} ns are {expected} (Little's law)",
        vm.name, phase.name, span.0
    )))
}

impl HostMeter {
    fn count_all(&mut self, recent: &[Recent]) {
        for Recent { vm, bytes, held, device, kind } in recent {
            let vm = &mut self.vms[*vm];
            vm.count.ios += 1;
            vm.count.bytes += bytes;
            if *kind != IoKind::Read {
                vm.count.writes.0 += 1;
                vm.count.writes.1 += bytes;
            }
            if *kind != IoKind::Discard {
                self.device.record(*device);
                vm.device.add(*device);
            }
            vm.total.record(*held + *device);
            vm.held.record(*held);
        }
    }

    fn count(self, from: Instant, span: Span) -> HostCount {
        let vm = |vm: VmMeter| VmCount {
            latency_ms: vm.total.distribution(),
            held_ms: vm.held.distribution(),
            device_ms: vm.device.device_ms(),
            ..vm.count
        };
        HostCount {
            seconds: span.secs(),
            windows: self.windows.iter().map(|(at, w)| (at.since(from).secs(), *w)).collect(),
            beta: mean(self.beta.into_iter()).unwrap_or(0.0),
            device_latency_ms: self.device.distribution(),
            vms: self.vms.into_iter().map(vm).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parda_control::Bytes;
    use parda_scenario::Vm;
    use parda_workload::{ArrivalRule, SizePart, Workload};
    use std::time::Duration;

    #[test]
    fn a_closed_loop_that_lost_an_io_is_found_out() {
        let workload = Workload {
            sizes: vec![SizePart { size: Bytes(4096), percent: 100 }],
            read_percent: 100.0,
            random_percent: 100.0,
            hot: None,
            demand: ArrivalRule::Closed { outstanding: 8 },
            one_stream: false,
            trim_percent: 0.0,
            bursts: None,
        };
        let (name, disk) = ("db".to_owned(), Bytes(1 << 30));
        let load = workload.into();
        let vm = Vm { name, settings: Default::default(), disk, lun: 0, load };
        let (from, to) = (Duration::from_secs(1), Duration::from_secs(3));
        let phase = Phase { name: "p".to_owned(), from, to };
        let span = Span::from_millis(2_000);
        let (one, other) = (ClientRun(1), ClientRun(2));
        let all = 8 * 2_000_000_000;
        assert_eq!(little(&vm, &phase, span, (one, 500), (one, 500 + all)), Ok(()));
        assert_eq!(little(&vm, &phase, span, (one, 500), (other, all)), Ok(()));
        let error = little(&vm, &phase, span, (one, 500), (one, 400 + all)).unwrap_err();
        let told = "add up to 15999999900 IO·ns, but 8 outstanding for 2000000000 ns are 16000000000 (Little's law)";
        assert!(error.to_string().ends_with(told), "{error}");
    }
}
