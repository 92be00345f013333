//! Measurement by eBPF at the block layer's tracepoints: each IO, from its issue to its completion.
//!
//! `bpf/block.bpf.c` defines the counters; `layout` has its structures. The programs are attached while an [`Ebpf`] exists, and at most as
//! long as its process.

use std::collections::HashMap as Map;

use aya::maps::{Array, MapData, PerCpuArray, PerCpuHashMap, PerCpuValues};
use aya::programs::BtfTracePoint;
use aya::programs::tp_btf::BtfTracePointLinkId;
use aya::{Btf, EbpfLoader};
use parda_control::Span;
use parda_control::latency::Direction;

use super::find::Counts;
use super::flow::Level;
use super::layout::{DEVICES, DeviceList, GroupTotals, Sums, Totals, Versioned};
use super::whole::whole;
use super::{CgroupIos, Class, DeviceReading, Histogram, Measure, MeasureError, Method, Watched};
use crate::number::DevNum;

const OBJECT: &[u8] = aya::include_bytes_aligned!("../../bpf/block.bpf.o");
/// Each program and its tracepoint. Programs that see completions are attached first, so that no IO
/// is seen to begin whose end is missed.
const PROGRAMS: [(&str, &str); 6] = [
    ("rq_complete", "block_rq_complete"),
    ("rq_requeue", "block_rq_requeue"),
    ("bio_complete", "block_bio_complete"),
    ("rq_issue", "block_rq_issue"),
    ("bio_queue", "block_bio_queue"),
    BEGINNING,
];
/// Program that sees IOs which waited since before counting began. The program is detached when there are none.
const BEGINNING: (&str, &str) = ("bio_getrq", "block_getrq");
const BEGINNING_LASTS: u64 = 5_000_000_000;

const FRONT: u64 = 1;
const LEAF: u64 = 2;
const PAST: u64 = 4;

/// Number of readings without IO after which a cgroup is dropped to make room for others.
const FORGET: u32 = 60;

/// Number of runs of the programs and their time, counted while the kernel's statistics of eBPF are
/// enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunTime {
    /// Number of runs of all programs.
    pub runs: u64,
    /// Time that the runs took.
    pub time: Span,
}

/// Meter that uses eBPF.
pub struct Ebpf {
    /// The loaded programs, attached while this exists.
    object: aya::Ebpf,
    watched: Array<MapData, DeviceList>,
    totals: PerCpuArray<MapData, Versioned<Totals>>,
    sums: PerCpuArray<MapData, Sums>,
    groups: PerCpuHashMap<MapData, u64, Versioned<GroupTotals>>,
    list: DeviceList,
    /// While there may be IOs from before counting began: the program that sees them, and its end time.
    beginning: Option<(BtfTracePointLinkId, u64)>,
    looks_at: Watched,
    /// Current devices, and those watched earlier.
    past: Vec<DevNum>,
    /// Time of the previous reading, in ns.
    now: u64,
    outstanding: Level,
    requeues: u64,
    summed: Box<Sums>,
    in_groups: Map<u64, GroupState>,
}

/// Counters of a cgroup at the previous reading.
struct GroupState {
    pending: Level,
    ios: u64,
    bytes: u64,
    /// Mean size in sectors, kept until an IO of another size is seen.
    mean_size: f64,
    still: u32,
}

fn failed(e: impl std::error::Error) -> MeasureError {
    let mut why = e.to_string();
    let mut source = e.source();
    while let Some(cause) = source {
        let cause_says = cause.to_string();
        if !why.contains(&cause_says) {
            why += &format!(": {cause_says}");
        }
        source = cause.source();
    }
    // The verifier's log may be long, and the fault stands at its end.
    let chars = why.chars().count();
    if chars > 600 {
        let head: String = why.chars().take(200).collect();
        let tail: String = why.chars().skip(chars - 400).collect();
        why = format!("{head} … {tail}");
    }
    MeasureError::no_ebpf(&why)
}

impl Ebpf {
    /// Loads and attaches the programs.
    ///
    /// # Errors
    ///
    /// The kernel has no BTF (CONFIG_DEBUG_INFO_BTF), is older than 5.15, or refuses this process
    /// (CAP_BPF and CAP_PERFMON, or root; lockdown).
    pub fn open(watched: &Watched) -> Result<Ebpf, MeasureError> {
        let btf = Btf::from_sys_fs().map_err(failed)?;
        let mut object = EbpfLoader::new().btf(Some(&btf)).load(OBJECT).map_err(failed)?;
        let mut take = |name: &str| {
            object.take_map(name).ok_or_else(|| MeasureError::no_ebpf(&format!("no map {name}")))
        };
        let mut ebpf = Ebpf {
            watched: take("watched")?.try_into().map_err(failed)?,
            totals: take("totals")?.try_into().map_err(failed)?,
            sums: take("sums")?.try_into().map_err(failed)?,
            groups: take("groups")?.try_into().map_err(failed)?,
            object,
            list: DeviceList::default(),
            beginning: None,
            looks_at: Watched { fronts: Vec::new(), leaves: Vec::new() },
            past: Vec::new(),
            now: now(),
            outstanding: Level::since(now()),
            requeues: 0,
            summed: Box::default(),
            in_groups: Map::new(),
        };
        ebpf.room_for_others()?;
        for (name, tracepoint) in PROGRAMS {
            ebpf.program(name)?.load(tracepoint, &btf).map_err(failed)?;
        }
        for (name, _) in PROGRAMS.iter().filter(|p| **p != BEGINNING) {
            ebpf.program(name)?.attach().map_err(failed)?;
        }
        ebpf.watch(watched)?;
        ebpf.now = now();
        ebpf.outstanding = Level::since(ebpf.now);
        Ok(ebpf)
    }

    fn program(&mut self, name: &str) -> Result<&mut BtfTracePoint, MeasureError> {
        let program = self.object.program_mut(name);
        let program =
            program.ok_or_else(|| MeasureError::no_ebpf(&format!("no program {name}")))?;
        program.try_into().map_err(failed)
    }

    /// Begins to count pending IOs (`begin`), or ends the watch for IOs from before.
    fn begin(&mut self, begin: bool) -> Result<(), MeasureError> {
        if let Some((link, _)) = self.beginning.take() {
            self.program(BEGINNING.0)?.detach(link).map_err(failed)?;
        }
        if begin {
            let link = self.program(BEGINNING.0)?.attach().map_err(failed)?;
            self.list.since = now();
            self.beginning = Some((link, self.list.since + BEGINNING_LASTS));
        }
        self.list.beginning = u64::from(begin);
        self.watched.set(0, self.list, 0).map_err(failed)
    }

    /// Run time of the programs so far.
    ///
    /// # Errors
    ///
    /// The kernel's statistics cannot be read.
    pub fn run_time(&self) -> Result<RunTime, MeasureError> {
        let mut sum = RunTime { runs: 0, time: Span::ZERO };
        for (_, program) in self.object.programs() {
            let info = program.info().map_err(failed)?;
            sum.runs += info.run_count();
            sum.time += info.run_time().into();
        }
        Ok(sum)
    }

    /// Makes room for cgroup 0, which stands for all cgroups without an entry.
    fn room_for_others(&mut self) -> Result<(), MeasureError> {
        let cpus = aya::util::nr_cpus().map_err(|(_, e)| failed(e))?;
        let none = PerCpuValues::try_from(vec![Versioned::default(); cpus]).map_err(failed)?;
        self.groups.insert(0, none, 0).map_err(failed)
    }

    /// Reads `sums`, less its values at the previous reading.
    fn sums(&mut self) -> Result<Box<Sums>, MeasureError> {
        let mut sums = Box::<Sums>::default();
        for cpu in self.sums.get(&0, 0).map_err(failed)?.iter() {
            sums.combine(cpu, u64::wrapping_add);
        }
        let before = std::mem::replace(&mut self.summed, sums.clone());
        sums.combine(&before, u64::wrapping_sub);
        Ok(sums)
    }

    fn read_groups(&mut self, since: u64) -> Result<(Vec<CgroupIos>, f64), MeasureError> {
        let keys: Vec<u64> = self.groups.keys().collect::<Result<_, _>>().map_err(failed)?;
        let (mut seen, mut pending) = (Vec::new(), 0.0);
        for key in keys {
            let map = &self.groups;
            let copy = || map.get(&key, 0).map(|v| v.to_vec());
            let Some((at, cpus)) = whole(now, copy).map_err(failed)? else {
                pending += self.in_groups.get(&key).map_or(0.0, |g| g.pending.mean);
                continue;
            };
            let sum = GroupTotals::sum(&cpus);
            let group = self.in_groups.entry(key).or_insert_with(|| GroupState {
                pending: Level::since(since),
                ios: 0,
                bytes: 0,
                mean_size: 8.0,
                still: 0,
            });
            let fronts = &self.looks_at.fronts;
            let sectors = group.pending.read(at, sum.queued, sum.done, || empty(fronts));
            let (ios, bytes) =
                (sum.ios.wrapping_sub(group.ios), sum.bytes.wrapping_sub(group.bytes));
            (group.ios, group.bytes) = (sum.ios, sum.bytes);
            if ios > 0 && bytes > 0 {
                group.mean_size = bytes as f64 / 512.0 / ios as f64;
            }
            let mean = sectors / group.mean_size;
            pending += mean;
            group.still = if ios > 0 || !group.pending.is_empty() { 0 } else { group.still + 1 };
            if key == 0 {
                continue;
            }
            if group.still < FORGET {
                seen.push(CgroupIos { cgroup: key, ios, bytes, pending: mean });
            } else {
                self.in_groups.remove(&key);
                // An error means that the entry was removed already.
                let _ = self.groups.remove(&key);
            }
        }
        Ok((seen, pending))
    }
}

impl Measure for Ebpf {
    fn read(&mut self) -> Result<DeviceReading, MeasureError> {
        let since = self.now;
        if self.beginning.as_ref().is_some_and(|(_, until)| since > *until) {
            self.begin(false)?;
        }
        let map = &self.totals;
        let totals = whole(now, || map.get(&0, 0).map(|v| v.to_vec())).map_err(failed)?;
        self.now = totals.as_ref().map_or_else(now, |(at, _)| *at);
        let mut requeues = 0;
        let outstanding = match totals {
            Some((_, cpus)) => {
                let sum = Totals::sum(&cpus);
                requeues = sum.requeues.wrapping_sub(self.requeues);
                self.requeues = sum.requeues;
                let leaves = &self.looks_at.leaves;
                self.outstanding.read(self.now, sum.issued, sum.done, || empty(leaves))
            }
            None => self.outstanding.mean,
        };
        let (groups, pending) = self.read_groups(since)?;
        let sums = self.sums()?;
        let classes = [Direction::Read, Direction::Write].into_iter().zip(&sums.classes);
        let classes = classes.flat_map(|(direction, classes)| {
            let seen = (0..).zip(classes).filter(|(_, class)| class.ios > 0);
            seen.map(move |(bytes_log2, class)| Class {
                direction,
                bytes_log2,
                ios: class.ios,
                bytes: class.bytes,
                latency: Span(class.ns),
            })
        });
        let [reads, writes] = sums.latency.map(Histogram::of);
        Ok(DeviceReading {
            elapsed: Span(self.now - since),
            method: Method::Ebpf,
            classes: classes.collect(),
            reads,
            writes,
            outstanding,
            // IOs at the array are pending, even where the estimate from sizes is lower.
            pending: pending.max(outstanding),
            requeues,
            groups,
        })
    }

    fn watch(&mut self, watched: &Watched) -> Result<(), MeasureError> {
        let watched = watched.requests("/".as_ref());
        let now = watched.fronts.iter().chain(&watched.leaves);
        let mut devices: Vec<DevNum> = Vec::new();
        for device in now.chain(&self.past) {
            if !devices.contains(device) {
                devices.push(*device);
            }
        }
        let wanted = watched.fronts.len() + watched.leaves.len();
        if wanted > DEVICES {
            let why = format!("{wanted} devices are more than {DEVICES}");
            return Err(MeasureError::no_ebpf(&why));
        }
        devices.truncate(DEVICES);
        self.list.count = devices.len() as u64;
        for (slot, device) in self.list.devices.iter_mut().zip(&devices) {
            let role = |of: &[DevNum], role| if of.contains(device) { role } else { 0 };
            let roles = role(&watched.fronts, FRONT) | role(&watched.leaves, LEAF);
            *slot = u64::from(device.kernel()) << 32 | if roles == 0 { PAST } else { roles };
        }
        if watched.fronts == self.looks_at.fronts {
            self.watched.set(0, self.list, 0).map_err(failed)?;
        } else {
            // IOs that wait at other devices do not wait here, so counting begins anew.
            for cgroup in std::mem::take(&mut self.in_groups).into_keys() {
                let _ = self.groups.remove(&cgroup);
            }
            self.room_for_others()?;
            self.begin(true)?;
        }
        (self.looks_at, self.past) = (watched, devices);
        Ok(())
    }
}

/// Whether no IO is at these devices. `false` if it is unknown.
fn empty(devices: &[DevNum]) -> bool {
    let inflight = |device: &DevNum| Counts::open("/".as_ref(), *device, "inflight")?.read();
    devices.iter().all(|device| inflight(device).is_ok_and(|counts| counts == [0, 0]))
}

/// The clock that the eBPF programs use, in ns.
fn now() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec).unwrap_or(0)
}
