//! Raw counters of a host in one phase, and the answer computed from them: one computation for all
//! engines.

use parda_config::Fairness;

use crate::answer::{Distribution, HostAnswer, VmAnswer};
use crate::scenario::{ClusterState, HostIndex, Phase, Scenario, VmIndex};
use crate::shares::{HELD_PART, Unit, lacks, saturated};

/// Raw counters of one host in one phase.
#[derive(Clone, Debug, PartialEq)]
pub struct HostCount {
    /// Counted time, in seconds.
    pub seconds: f64,
    /// Windows sampled every second or oftener: seconds from the beginning of the phase, and slots. None without control.
    pub windows: Vec<(f64, f64)>,
    /// Mean β, in slots.
    pub beta: f64,
    /// Device latency of the IOs of all VMs. `None` without IO.
    pub device_latency_ms: Option<Distribution>,
    /// Counters of each VM, in the order of the scenario.
    pub vms: Vec<VmCount>,
}

/// Raw counters of one VM in one phase.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VmCount {
    /// Number of completed IOs.
    pub ios: u64,
    /// Bytes that the completed IOs moved.
    pub bytes: u64,
    /// Number and bytes of the writes among them.
    pub writes: (u64, u64),
    /// Held time plus device latency. The time in sockets, in the wait for memory and in the agent's own turn is not
    /// measured. `None` without IO.
    pub latency_ms: Option<Distribution>,
    /// Held time: time in the host's fair queue. `None` without IO.
    pub held_ms: Option<Distribution>,
    /// Mean time at the array of reads and writes, in milliseconds. `None` without any.
    pub device_ms: Option<f64>,
}

impl HostCount {
    /// The answer for this host. `at_start` is the state of the cluster at the beginning of the phase.
    #[must_use]
    pub fn answer(
        &self,
        scenario: &Scenario,
        id: HostIndex,
        phase: &Phase,
        at_start: &ClusterState,
    ) -> HostAnswer {
        let host = scenario.host(id);
        let window = mean(self.windows.iter().map(|(_, w)| *w));
        let fairness = at_start.host(id).control.fairness;
        let unit = match fairness {
            Some(Fairness::Cost(_)) => Unit::Cost,
            Some(Fairness::Bytes) => Unit::Bytes,
            Some(Fairness::Outstanding | Fairness::Iops) | None => Unit::Ios,
        };
        let costs = fairness.filter(|_| unit == Unit::Cost).and_then(|fairness| fairness.costs());
        let vms: Vec<VmAnswer> = (host.vms.iter().zip(&self.vms).enumerate())
            .map(|(index, (vm, count))| {
                let vm_id = VmIndex { host: id, index };
                // A host outside control has no shares to be judged by. The throughput of a VM with a guarantee does not
                // follow from its shares. Without a window no IO is held, and only a closed loop is known to be saturated.
                let endless = vm.load.outstanding().is_some();
                let content = vm.load.rate().is_some_and(|r| !lacks(count.ios, r * self.seconds));
                let own = vm.settings.limit.is_none()
                    && vm.settings.reservation.is_none()
                    && vm.settings.tenant.is_none();
                let ran = !host.outside && own && scenario.runs_throughout(vm_id, phase, at_start);
                let judged = ran && !content && (endless || window.is_some());
                let (latency, held) = (count.latency_ms.as_ref(), count.held_ms.as_ref());
                let saturated = match latency {
                    None if window.is_some() => judged && self.holds(scenario, id, at_start),
                    _ => saturated(judged, window, latency, held),
                };
                let (writes, bytes) = (count.writes.0 as f64, count.writes.1 as f64);
                let reads = (count.ios as f64 - writes, count.bytes as f64 - bytes);
                VmAnswer {
                    name: vm.name.clone(),
                    shares: at_start.vm(vm_id).settings.shares().0,
                    saturated,
                    ran,
                    iops: count.ios as f64 / self.seconds,
                    mib_per_s: mib(count.bytes) / self.seconds,
                    slots_per_s: costs.map(|it| it.slots([reads, (writes, bytes)]) / self.seconds),
                    latency_ms: count.latency_ms,
                    held_ms: count.held_ms,
                    device_ms: count.device_ms,
                }
            })
            .collect();
        let iops = vms.iter().map(|vm| vm.iops).sum();
        let works = (0..host.vms.len())
            .any(|index| scenario.runs_throughout(VmIndex { host: id, index }, phase, at_start));
        HostAnswer {
            name: host.name.clone(),
            outside: host.outside,
            shares: vms.iter().map(|vm| vm.shares).sum(),
            unit,
            beta: self.beta,
            window,
            settled_s: settled(&self.windows, self.seconds).filter(|_| works),
            // Little's law: IOs outstanding = rate × latency.
            outstanding: self.device_latency_ms.map_or(0.0, |d| iops * d.mean / 1e3),
            iops,
            mib_per_s: vms.iter().map(|vm| vm.mib_per_s).sum(),
            device_latency_ms: self.device_latency_ms,
            vms,
        }
    }

    /// Whether the host holds IOs of its VMs, where held time is unknown. True if the array has fewer IOs than the clients,
    /// all running, keep outstanding.
    fn holds(&self, scenario: &Scenario, id: HostIndex, at_start: &ClusterState) -> bool {
        let kept = scenario.host(id).vms.iter().enumerate().filter_map(|(index, vm)| {
            let runs = at_start.runs(VmIndex { host: id, index });
            vm.load.outstanding().filter(|_| runs).map(f64::from)
        });
        let ios: u64 = self.vms.iter().map(|vm| vm.ios).sum();
        let at_array = self.device_latency_ms.map_or(0.0, |d| d.mean / 1e3) * ios as f64;
        at_array > 0.0 && at_array / self.seconds <= (1.0 - HELD_PART) * kept.sum::<f64>()
    }
}

/// Largest deviation of a settled window from its mean, as a fraction of the mean.
const SETTLED_WITHIN: f64 = 0.1;

/// Time until a window had settled, in seconds, for a phase of `seconds`. A settled window stays within 10 % of its mean over
/// the last third of the phase. The length of the phase if it never settles. `None` without a window in the last third.
#[must_use]
pub fn settled(windows: &[(f64, f64)], seconds: f64) -> Option<f64> {
    let last = windows.iter().filter(|(at, _)| *at >= seconds * 2.0 / 3.0);
    let mean = mean(last.map(|(_, w)| *w))?;
    let off = |(_, w): &(f64, f64)| (w - mean).abs() > SETTLED_WITHIN * mean;
    Some(match windows.iter().rposition(off) {
        None => 0.0,
        Some(last_off) => windows.get(last_off + 1).map_or(seconds, |(at, _)| *at),
    })
}

/// Mean of the values; `None` without any.
#[must_use]
pub fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, n) = values.fold((0.0, 0.0), |(sum, n), x| (sum + x, n + 1.0));
    (n > 0.0).then(|| sum / n)
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / (1 << 20) as f64
}
