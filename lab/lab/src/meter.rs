//! Computes the answer of a phase from counters: of the agents, or of the array for hosts without
//! one.
//!
//! Agents count from their start, so that a host that was killed and came back counts from zero. A
//! host's meter therefore keeps the last counters of the host's earlier agents.

use std::time::Instant;

use parda_agent::latency::{Latency, Summary};
use parda_agent::status::{DiskStatus, VolumeStatus};
use parda_block::Count;
use parda_scenario::count::{HostCount, VmCount, mean};
use parda_scenario::{Distribution, Host, HostAnswer, HostIndex, Phase, Scenario};

/// Reading of a host: the status of its agent, or, without one, the array's counters.
#[derive(Clone, Debug)]
pub struct HostReading {
    /// Window in force, in slots. `None` without control.
    pub window: Option<f64>,
    /// β of eq. 2, in slots.
    pub beta: f64,
    /// Counters of the host's disks; may have those of others.
    pub disks: Vec<DiskStatus>,
}

impl From<VolumeStatus> for HostReading {
    fn from(status: VolumeStatus) -> HostReading {
        HostReading { window: status.window, beta: status.beta, disks: status.disks }
    }
}

/// Counters of one disk.
#[derive(Clone, Debug, Default, PartialEq)]
struct Disk {
    reads: Count,
    writes: Count,
    held: Latency,
    device: Latency,
    total: Latency,
}

impl Disk {
    fn of(status: &DiskStatus) -> Disk {
        let DiskStatus { reads, writes, held, device, total, .. } = status.clone();
        Disk { reads, writes, held, device, total }
    }

    fn ios(&self) -> u64 {
        self.reads.ios + self.writes.ios
    }

    fn plus(&self, other: &Disk) -> Disk {
        let plus = |a: Count, b: Count| Count { ios: a.ios + b.ios, bytes: a.bytes + b.bytes };
        Disk {
            reads: plus(self.reads, other.reads),
            writes: plus(self.writes, other.writes),
            held: self.held.plus(&other.held),
            device: self.device.plus(&other.device),
            total: self.total.plus(&other.total),
        }
    }

    fn since(&self, earlier: &Disk) -> Disk {
        Disk {
            reads: self.reads.since(earlier.reads),
            writes: self.writes.since(earlier.writes),
            held: self.held.since(&earlier.held),
            device: self.device.since(&earlier.device),
            total: self.total.since(&earlier.total),
        }
    }
}

/// Counters of a host since the run began.
#[derive(Clone, Debug, PartialEq)]
pub struct RunReading {
    at: Instant,
    disks: Vec<Disk>,
}

impl RunReading {
    /// IOs completed per second since `earlier`.
    #[must_use]
    pub fn iops_since(&self, earlier: &RunReading) -> f64 {
        let ios = |reading: &RunReading| reading.disks.iter().map(Disk::ios).sum::<u64>();
        (ios(self) - ios(earlier)) as f64 / self.seconds_since(earlier)
    }

    fn seconds_since(&self, earlier: &RunReading) -> f64 {
        self.at.duration_since(earlier.at).as_secs_f64()
    }

    /// Device latency of all disks together.
    #[must_use]
    pub fn device(&self) -> Latency {
        self.disks.iter().fold(Latency::default(), |sum, disk| sum.plus(&disk.device))
    }

    /// The difference to `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &RunReading) -> RunReading {
        RunReading {
            at: self.at,
            disks: self.disks.iter().zip(&earlier.disks).map(|(a, b)| a.since(b)).collect(),
        }
    }

    fn plus(&self, other: &RunReading) -> RunReading {
        RunReading {
            at: other.at,
            disks: self.disks.iter().zip(&other.disks).map(|(a, b)| a.plus(b)).collect(),
        }
    }
}

/// Window and β of a host at one moment.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    window: Option<f64>,
    beta: f64,
}

/// Counters of one host over the lives of its agents.
#[derive(Clone, Debug)]
pub struct HostMeter {
    /// Names of the host's disks.
    names: Vec<String>,
    /// Last counters of the host's earlier agents.
    before: RunReading,
    /// Last counters of the current agent.
    now: Option<RunReading>,
    samples: Vec<Sample>,
}

impl HostMeter {
    /// A meter of a host without IO.
    #[must_use]
    pub fn new(host: &Host, at: Instant) -> HostMeter {
        let disks = vec![Disk::default(); host.vms.len()];
        HostMeter {
            names: host.vms.iter().map(|vm| vm.name.clone()).collect(),
            before: RunReading { at, disks },
            now: None,
            samples: Vec::new(),
        }
    }

    /// Records a reading of the host.
    pub fn take(&mut self, at: Instant, status: &HostReading) {
        let disk = |name: &String| {
            status.disks.iter().find(|d| d.name == *name).map(Disk::of).unwrap_or_default()
        };
        self.now = Some(RunReading { at, disks: self.names.iter().map(disk).collect() });
        self.samples.push(Sample { at, window: status.window, beta: status.beta });
    }

    /// Records that the agent is stopped: no IO since the last reading, and an unchanged window.
    pub fn hangs(&mut self, at: Instant) {
        if let Some(now) = &mut self.now {
            now.at = at;
        }
        self.samples.extend(self.samples.last().map(|&last| Sample { at, ..last }));
    }

    /// Records the end of the agent. The next one counts from zero.
    pub fn end_of_agent(&mut self) {
        if let Some(last) = self.now.take() {
            self.before = self.before.plus(&last);
        }
    }

    /// Counters of the host until `at`, as far as they are known.
    #[must_use]
    pub fn reading(&self, at: Instant) -> RunReading {
        match &self.now {
            Some(now) => self.before.plus(now),
            None => RunReading { at, ..self.before.clone() },
        }
    }

    /// The host's answer for a phase, from counters at its beginning and end.
    #[must_use]
    pub fn answer(
        &self,
        scenario: &Scenario,
        id: HostIndex,
        phase: &Phase,
        (from, to): (&RunReading, &RunReading),
    ) -> HostAnswer {
        let done = to.since(from);
        let samples: Vec<Sample> =
            self.samples.iter().filter(|s| s.at >= from.at && s.at <= to.at).copied().collect();
        let vm = |disk: &Disk| VmCount {
            ios: disk.ios(),
            bytes: disk.reads.bytes + disk.writes.bytes,
            writes: (disk.writes.ios, disk.writes.bytes),
            latency_ms: distribution(&disk.total),
            held_ms: distribution(&disk.held),
            device_ms: distribution(&disk.device).map(|device| device.mean),
        };
        let count = HostCount {
            seconds: to.seconds_since(from),
            windows: (samples.iter())
                .filter_map(|s| Some((s.at.duration_since(from.at).as_secs_f64(), s.window?)))
                .collect(),
            beta: mean(samples.iter().map(|s| s.beta)).unwrap_or(0.0),
            device_latency_ms: distribution(&done.device()),
            vms: done.disks.iter().map(vm).collect(),
        };
        count.answer(scenario, id, phase, &scenario.state_at(phase.from))
    }
}

fn distribution(latency: &Latency) -> Option<Distribution> {
    let Summary { mean, stddev, p50, p99, max } = latency.summary();
    (latency.count() > 0).then_some(Distribution { mean, stddev, p50, p99, max })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use parda_agent::status::Counter;
    use parda_config::Document;

    fn scenario() -> Scenario {
        let vm = |name: &str, shares: u32| {
            format!(
                "[[host.vm]]\nname = \"{name}\"\nshares = {shares}\ndisk = \"1GiB\"\n\
                 workload = {{ size = \"16KiB\", read = 50, random = 100, outstanding = 8 }}\n"
            )
        };
        let text = format!(
            "name = \"t\"\nduration = \"60s\"\n[array]\npreset = \"cx3-40-raid0\"\n\
             [[host]]\nname = \"a\"\n{}{}[[event]]\nat = \"30s\"\nvm = \"web\"\ndo = \"stop\"\n\
             [[phase]]\nname = \"p\"\nfrom = \"10s\"\nto = \"20s\"\n\
             [[phase]]\nname = \"q\"\nfrom = \"20s\"\nto = \"40s\"\n",
            vm("db", 2000),
            vm("web", 1000)
        );
        Scenario::parse(&Document::new("t.toml", text)).unwrap()
    }

    fn latency(ms: u64, count: u64) -> Latency {
        Latency { buckets: if count > 0 { vec![(ms * 1_000_000, count)] } else { Vec::new() } }
    }

    /// A disk after `ios` IOs of 16 KiB, half of them reads. Each was held for 10 ms and took 30 ms
    /// at the array.
    fn disk(name: &str, ios: u64) -> DiskStatus {
        let half = Counter { ios: ios / 2, bytes: ios / 2 * 16384 };
        DiskStatus {
            name: name.to_owned(),
            shares: 1,
            clients: 1,
            reads: half,
            writes: half,
            time_held_s: ios as f64 * 0.01,
            time_at_device_s: ios as f64 * 0.03,
            held: latency(10, ios),
            device: latency(30, ios),
            total: latency(40, ios),
            ..DiskStatus::default()
        }
    }

    fn status(ios: [u64; 2], window: Option<f64>) -> HostReading {
        // The order differs from the scenario's.
        HostReading { window, beta: 2.0, disks: vec![disk("web", ios[1]), disk("db", ios[0])] }
    }

    #[test]
    fn a_phase_is_the_difference_of_two_readings() {
        let (scenario, t) = (scenario(), Instant::now());
        let at = |s| t + Duration::from_secs(s);
        let mut meter = HostMeter::new(&scenario.hosts[0], t);
        meter.take(at(10), &status([1000, 100], Some(20.0)));
        let from = meter.reading(at(10));
        meter.take(at(15), &status([2000, 600], Some(40.0)));
        meter.take(at(20), &status([5000, 2100], Some(30.0)));
        let to = meter.reading(at(20));
        meter.take(at(21), &status([5100, 2200], Some(900.0)));

        let answer = meter.answer(&scenario, HostIndex(0), &scenario.phases[0], (&from, &to));
        assert_eq!((answer.name.as_str(), answer.shares), ("a", 3000));
        assert_eq!((answer.iops, answer.outstanding), (600.0, 18.0));
        assert_eq!((answer.window, answer.beta), (Some(30.0), 2.0));
        assert_eq!(answer.mib_per_s, 600.0 / 64.0);
        assert_eq!(answer.device_latency_ms.unwrap().mean, 30.0);
        let [db, web] = answer.vms.as_slice() else { panic!("two VMs") };
        assert_eq!((db.name.as_str(), db.shares, db.iops), ("db", 2000, 400.0));
        assert_eq!((web.iops, web.latency_ms.unwrap().p99), (200.0, 40.0));
        assert!(db.saturated && web.saturated);
    }

    #[test]
    fn a_vm_that_stopped_within_the_phase_is_not_judged() {
        let (scenario, t) = (scenario(), Instant::now());
        let mut meter = HostMeter::new(&scenario.hosts[0], t);
        let from = meter.reading(t);
        meter.take(t + Duration::from_secs(20), &status([100, 100], Some(8.0)));
        let to = meter.reading(t);
        let answer = meter.answer(&scenario, HostIndex(0), &scenario.phases[1], (&from, &to));
        assert_eq!(answer.vms.iter().map(|v| v.saturated).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn a_host_that_comes_back_counts_on() {
        let (scenario, t) = (scenario(), Instant::now());
        let at = |s| t + Duration::from_secs(s);
        let mut meter = HostMeter::new(&scenario.hosts[0], t);
        meter.take(at(10), &status([1000, 100], None));
        let from = meter.reading(at(10));
        meter.take(at(12), &status([1200, 200], None));
        meter.end_of_agent();
        let dead = meter.reading(at(14));
        assert_eq!(dead.iops_since(&from), 75.0);
        meter.take(at(20), &status([60, 40], None));
        let to = meter.reading(at(20));
        let answer = meter.answer(&scenario, HostIndex(0), &scenario.phases[0], (&from, &to));
        assert_eq!((answer.iops, answer.outstanding, answer.window), (40.0, 1.2, None));
        assert_eq!(answer.device_latency_ms.unwrap().p50, 30.0);
    }

    #[test]
    fn a_host_that_hangs_does_nothing_for_as_long() {
        let (scenario, t) = (scenario(), Instant::now());
        let at = |s| t + Duration::from_secs(s);
        let mut meter = HostMeter::new(&scenario.hosts[0], t);
        meter.take(at(10), &status([1000, 100], Some(20.0)));
        let from = meter.reading(at(10));
        meter.hangs(at(20));
        let to = meter.reading(at(20));
        assert_eq!(to.iops_since(&from), 0.0);
        let answer = meter.answer(&scenario, HostIndex(0), &scenario.phases[0], (&from, &to));
        assert_eq!((answer.iops, answer.window), (0.0, Some(20.0)));
        meter.take(at(30), &status([1300, 200], Some(30.0)));
        assert_eq!(meter.reading(at(30)).iops_since(&to), 40.0);
    }

    #[test]
    fn nothing_done_has_no_latency() {
        let (scenario, t) = (scenario(), Instant::now());
        let meter = HostMeter::new(&scenario.hosts[0], t);
        let (from, to) = (meter.reading(t), meter.reading(t + Duration::from_secs(10)));
        let answer = meter.answer(&scenario, HostIndex(0), &scenario.phases[0], (&from, &to));
        assert_eq!((answer.iops, answer.device_latency_ms), (0.0, None));
    }
}
