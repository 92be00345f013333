//! Status of an agent: one JSON document per connection to its status socket, then the
//! connection closes. Counters and histograms only ever grow, so two snapshots subtract to what
//! happened between them.

pub(crate) mod exchange;
mod objective;

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

pub use parda_api::HttpPlace;
use parda_api::{
    Host, Limit, Outsider, PatternWithoutVm, Requests, Tenant, ThresholdCost, ValueFrom,
    VmWithoutPattern, is_full,
};
use parda_awake::Instant;
pub use parda_block::{Count as Counter, Dropped, MemoryStats};
use parda_block::{Latencies, VmStats};
use parda_config::VmSettings;
use parda_control::latency::Direction;
use parda_control::{HeldBy, HeldTimes, ModeName, ReservationState, Source};
use parda_steer::cgroup::Means;
use parda_steer::steering::PathInForce;
use serde::{Deserialize, Serialize};

pub use crate::history::{disk_keys, vm_keys};
pub use exchange::{ExchangeStatus, FallbackStatus, SlotStatus, of_share};
pub use objective::{ObjectiveStatus, TargetStatus};

use crate::latency::Latency;
use crate::outlook::OutlookStatus;
use crate::settings::SettingsStatus;
use crate::socket::PATIENCE;
use crate::threshold::ThresholdStatus;

/// Origins of settings, by their keys.
pub type SettingsFrom = BTreeMap<String, ValueFrom>;

/// Answer of an agent to a connection at its status socket.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// Name of the host in the configuration.
    pub host: String,
    /// Version of the running agent.
    pub version: String,
    /// Process id of the agent.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_s: f64,
    /// The policy, where one is configured.
    pub policy: Option<parda_api::Policy>,
    /// HTTP servers of metrics and the API.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub http: Vec<HttpPlace>,
    /// URL of the dashboards of all hosts, with `{host}` for the host's name.
    pub pages: Option<String>,
    /// Reason why the file of the API's tokens cannot be read, if so. The tokens that were read last stay valid.
    pub tokens_fault: Option<String>,
    /// Reloads of the configuration. `None` from an agent of an older version.
    pub reload: Option<ReloadStatus>,
    /// Volumes of the configuration, in its order.
    pub volumes: Vec<VolumeStatus>,
}

/// Reloads of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReloadStatus {
    /// Reloads that have begun since the agent's start.
    pub begun: u64,
    /// Reloads of these that are over.
    pub done: u64,
    /// Reason why the last one changed nothing. `None` if it is in force.
    pub refused: Option<String>,
    /// Changes that the last one left out, as they take a restart: a sentence each.
    pub not_taken: Vec<String>,
}

impl ReloadStatus {
    /// Ends a reload. `refused`: the reason why it changes nothing.
    pub(crate) fn end(&mut self, refused: Option<String>) {
        self.done += 1;
        self.refused = refused;
    }
}

/// The state of one volume.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeStatus {
    /// Name of the volume.
    pub name: String,
    /// Name of its pool, if it belongs to one.
    pub pool: Option<String>,
    /// Origins of its settings that are set; a setting left out has its default.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings_from: SettingsFrom,
    /// Mode in which the window is found.
    pub mode: ModeName,
    /// The latency to hold the array at, in milliseconds.
    pub latency_threshold_ms: f64,
    /// Status of the search, if the threshold is automatic.
    pub threshold: Option<ThresholdStatus>,
    /// The objective of a disk that is in force in place of the volume's own threshold, if one is.
    pub objective: Option<ObjectiveStatus>,
    /// Load on the array that is not under control, if there is some or the array became slower.
    pub outsider: Option<Outsider>,
    /// Throughput that the threshold costs, if that is more than a tenth.
    pub threshold_cost: Option<ThresholdCost>,
    /// Values in force of the settings that all hosts must have alike.
    pub settings: Option<SettingsStatus>,
    /// IOs since the start beyond the host's allowance of outstanding IOs, as their disks had been held for `hold_max`.
    pub overdue: u64,
    /// Lateness of the volume's thread in the last period, if the host is short of CPU.
    pub late: Option<LateStatus>,
    /// The latency that the window rests on, in milliseconds, once there is one.
    pub cluster_latency_ms: Option<f64>,
    /// Source of that latency.
    pub source: Source,
    /// The window in force, in slots. None without control.
    pub window: Option<f64>,
    /// Largest window that the law may set. None where the window is not in IOs or does not follow the law.
    pub window_max: Option<f64>,
    /// Forecast of observe mode, once there is something to forecast from.
    pub outlook: Option<OutlookStatus>,
    /// β of eq. 2, in slots of the window.
    pub beta: f64,
    /// Sum of the shares of this host's disks.
    pub shares: u32,
    /// The same, scaled down for disks that use less than their slice.
    pub active_shares: f64,
    /// Mean outstanding IOs at the array in the last period, in slots.
    pub outstanding: f64,
    /// IOs held in the host's queue now.
    pub held: u64,
    /// Number of clients that are connected.
    pub connections: u64,
    /// Its memory, where its disks are served.
    pub memory: Option<MemoryStats>,
    /// Connections that were not left to their clients to close.
    pub dropped: Dropped,
    /// Control periods since the start.
    pub ticks: u64,
    /// This host, as the others see it. None before the first period.
    pub own: Option<Host>,
    /// The exchange, if there is one.
    pub exchange: Option<ExchangeStatus>,
    /// Its tenants, in the order of the configuration.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<Tenant>,
    /// Its disks, where they are served.
    pub disks: Vec<DiskStatus>,
    /// Addresses at which clients of its disks connect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<ListenerStatus>,
    /// Reason why it does not run now, if it does not: it ended by itself, or does not start.
    pub fault: Option<String>,
    /// Last failure of the volume, if it runs again.
    pub last_failure: Option<PastFailure>,
    /// Number of restarts of the ring after it had ended by itself.
    pub restarts: u64,
    /// Its device, where that is steered.
    pub steer: Option<SteerStatus>,
}

impl VolumeStatus {
    /// Slots that a disk may have outstanding now: its slice, at most the window. None where nothing bounds each disk.
    #[must_use]
    pub fn at_most(&self, disk: &DiskStatus) -> Option<f64> {
        disk.slice.map(|slice| slice.min(self.window.unwrap_or(f64::INFINITY)))
    }

    /// Whether this host is at its largest window, so that its disks divide that alone.
    #[must_use]
    pub fn is_at_window_max(&self) -> bool {
        let most = self.window_max.filter(|_| self.mode == ModeName::Parda);
        most.is_some_and(|most| is_full(self.outstanding, most))
    }

    /// Reason why a disk of the volume does no more IOs.
    #[must_use]
    pub fn limit_of(&self, disk: &DiskStatus) -> Limit {
        let did = Requests {
            ios: (disk.reads.ios + disk.writes.ios) as f64,
            others: disk.others as f64,
            held_ms: disk.held.summary().mean,
            limited_ms: disk.held.summary().mean * disk.time_held_by.part_by_limit(),
            device_ms: disk.device.summary().mean,
            held_now: disk.held_now > 0,
            limited_now: disk.is_limited_now(),
        };
        Limit::of(&did, self.is_at_window_max())
    }

    /// Origin of the threshold in force.
    #[must_use]
    pub fn threshold_from(&self) -> ValueFrom {
        match (&self.objective, &self.threshold) {
            (Some(_), _) => ValueFrom::Objective,
            (None, Some(_)) => ValueFrom::Auto,
            (None, None) => {
                self.settings_from.get("latency_threshold").copied().unwrap_or_default()
            }
        }
    }
}

/// A failure that is over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PastFailure {
    /// Message of the failure.
    pub why: String,
    /// Seconds since the failure.
    pub ago_s: f64,
}

/// Time in the last period for which a volume's thread could run and had no processor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LateStatus {
    /// The longest at once, in milliseconds.
    pub longest_ms: f64,
    /// All of it as a part of the period, from 0 to 1.
    pub part: f64,
}

impl LateStatus {
    /// Thresholds from which on a host is short of CPU. They are the part of a period without a processor, and the longest time at once in
    /// milliseconds. A busy host that gives each thread its turn stays below.
    const SHORT: (f64, f64) = (0.2, 10.0);

    pub(crate) fn new(lateness: parda_block::Lateness) -> Option<LateStatus> {
        let part = lateness.total.secs() / lateness.period.secs().max(1e-9);
        let longest_ms = lateness.longest.secs() * 1e3;
        let is_short = part >= Self::SHORT.0 && longest_ms >= Self::SHORT.1;
        is_short.then_some(LateStatus { longest_ms, part })
    }
}

/// The state of a device that is steered.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SteerStatus {
    /// The device of the configuration.
    pub device: String,
    /// Kernel name of the device that is steered; none while it is gone.
    pub steered: Option<String>,
    /// Current fault, if there is one.
    pub fault: Option<String>,
    /// Means by which its latency is measured, after the first measurement.
    pub measured_by: Option<MeasuredBy>,
    /// Reason why eBPF does not measure it, if it does not.
    pub why_not_ebpf: Option<String>,
    /// One standard error of the latency, relative, where it is an estimate.
    pub latency_error: Option<f64>,
    /// The depth in force, over all paths that carry IOs; none while nothing is set.
    pub depth: Option<u32>,
    /// The least depth that can be set.
    pub least: Option<u32>,
    /// Largest depth that can be set.
    pub most: Option<u32>,
    /// Whether the window is smaller than the least depth, and cannot be held.
    pub cannot_go_lower: bool,
    /// Number of times that the kernel lowered the depth by itself, as the array was full.
    pub drops: u64,
    /// IOs that came back undone, to be issued again.
    pub requeues: u64,
    /// Mean number of IOs submitted and not completed in the last period.
    pub pending: f64,
    /// Its queues: one, or one for each path.
    pub paths: Vec<PathInForce>,
    /// Reads completed since the start.
    pub reads: Counter,
    /// Writes completed since the start.
    pub writes: Counter,
    /// Device latency of reads, from issue to completion.
    pub read_latency: Latency,
    /// Device latency of writes, from issue to completion.
    pub write_latency: Latency,
    /// Means by which its VMs are held to their shares, if anything is set.
    pub vms_share_by: Option<Means>,
    /// Its VMs, where they are told apart.
    pub vms: Vec<SteeredVmStatus>,
    /// Patterns that have no VM.
    #[serde(default)]
    pub patterns_without_vm: Vec<PatternWithoutVm>,
    /// Cgroups that look like VMs of the device and have no pattern.
    #[serde(default)]
    pub vms_without_pattern: Vec<VmWithoutPattern>,
    /// State of the QEMUs there, if the agent sets their throttles.
    pub qemu: Option<QemuStatus>,
}

impl SteerStatus {
    /// Counts IOs of one direction, with their times.
    pub(crate) fn count(&mut self, direction: Direction, ios: u64, bytes: u64, times: &Latency) {
        let (counter, latency) = match direction {
            Direction::Read => (&mut self.reads, &mut self.read_latency),
            Direction::Write => (&mut self.writes, &mut self.write_latency),
        };
        counter.ios += ios;
        counter.bytes += bytes;
        *latency = latency.plus(times);
    }
}

/// QEMUs that open a volume themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QemuStatus {
    /// Sockets that do not answer as QMP does.
    pub silent: usize,
    /// Disks of the volume.
    pub disks: usize,
    /// Disks that a throttle of parda holds now.
    pub held: usize,
}

/// Means by which the latency of a steered device is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MeasuredBy {
    /// eBPF at the block layer's tracepoints: each IO is seen.
    Ebpf,
    /// Little's law on sampled in-flight counts: an estimate.
    Little,
    /// QEMU's counters, and reads of the agent where its throttles are in them.
    Qemu,
}

impl std::fmt::Display for MeasuredBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.serialize(f)
    }
}

/// The state of one VM of a steered volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SteeredVmStatus {
    /// Name of the VM in the configuration.
    pub name: String,
    /// Path of the VM's cgroup below the root of the hierarchy.
    pub cgroup: String,
    /// Origins of its settings that are set; a setting left out has its default.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings_from: SettingsFrom,
    /// Its settings in force, as the configuration writes them.
    #[serde(default)]
    pub settings: VmSettings,
    /// Shares of the VM.
    pub shares: u32,
    /// Bound that held it back in the last period: its slice, its limit, or a limit of another program. `None` without one.
    pub limited_by: Option<Limit>,
    /// Bounds that another program has set in `io.max`, such as `riops=100 wiops=50`. The lower of each holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bounds_of_others: Option<String>,
    /// Whether it is these that held it back.
    #[serde(default)]
    pub held_by_others: bool,
    /// IOs completed since it was first seen.
    pub ios: u64,
    /// Bytes that these IOs moved.
    pub bytes: u64,
    /// Mean number of IOs that it had submitted and not got back in the last period.
    pub pending: f64,
}

impl SteeredVmStatus {
    /// Name of the bound that held it back.
    #[must_use]
    pub fn held_back_by(&self) -> Option<String> {
        let limit = self.limited_by?;
        Some(if self.held_by_others { "io.max".to_owned() } else { limit.to_string() })
    }
}

/// The state of a place where clients connect.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ListenerStatus {
    /// Address at which clients connect.
    pub address: String,
    /// Seconds since it is as it is.
    pub state_s: f64,
    /// Reason why no client can connect, or, if it is open, why its certificate could not be read again. The agent retries until the fault
    /// is gone.
    pub fault: Option<String>,
    /// Whether it is open.
    pub is_bound: bool,
}

/// Whether clients find a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiskState {
    /// Clients find the disk under its name.
    #[default]
    Serving,
    /// The disk is being opened.
    Opening,
    /// The disk could not be opened. The next attempt follows after a pause.
    Waiting,
    /// The disk is being removed.
    Leaving,
}

impl std::fmt::Display for DiskState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.serialize(f)
    }
}

/// The state of one disk.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskStatus {
    /// Name of the export under which clients find the disk.
    pub name: String,
    /// Address at which clients find it.
    pub listen: String,
    /// Origins of its settings that are set; a setting left out has its default.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings_from: SettingsFrom,
    /// Origin of the disk itself.
    pub from: ValueFrom,
    /// Its settings in force, as the configuration writes them.
    pub settings: VmSettings,
    /// Shares of the disk in force.
    pub shares: u32,
    /// IOs that it may gather while idle and spend ahead of its neighbours.
    pub burst: f64,
    /// The disk's slice by its shares, in slots. The window bounds it as well ([`VolumeStatus::at_most`]). None where nothing
    /// bounds each disk.
    pub slice: Option<f64>,
    /// Its IOs that are held now.
    pub held_now: u64,
    /// Held IOs that its limit or its tenant's holds back.
    pub limited_now: u64,
    /// Whether clients find it.
    pub state: DiskState,
    /// Time in this state, in seconds.
    pub state_s: f64,
    /// Reason why it cannot be served or why its IOs fail, if so. Examples are a lost NBD server behind it, or a disk that has shrunk. The
    /// agent retries until it can be served.
    pub fault: Option<String>,
    /// Whether it takes no new connections, as it is drained.
    pub drain: bool,
    /// Number of clients that are connected to it.
    pub clients: u64,
    /// Reads completed since the start.
    pub reads: Counter,
    /// Writes completed since the start.
    pub writes: Counter,
    /// Other requests completed since the start: flushes, trims, zeroes.
    pub others: u64,
    /// IOs that failed at the array since the start.
    pub errors: u64,
    /// Requests that failed since the start by the fault of the guest: invalid, or in memory that is gone.
    #[serde(default)]
    pub guest_faults: u64,
    /// Requests that failed since the start by the fault of an NBD client: invalid, or unsupported by the disk.
    #[serde(default)]
    pub client_faults: u64,
    /// IOs that went out of turn since the start, as the disk had been held for `hold_max`.
    pub overdue: u64,
    /// Time that its reads and writes were held since the start, in seconds.
    pub time_held_s: f64,
    /// The same by cause.
    pub time_held_by: HeldByStatus,
    /// Time that its reads and writes were at the array since the start, in seconds.
    pub time_at_device_s: f64,
    /// Its IOs go through the page cache, whose latencies are not those of the array.
    pub page_cache: bool,
    /// Its path leads to another file now, or to none. The disk still serves the file that was opened.
    pub replaced: bool,
    /// Its latency objective, if it has one.
    pub latency_target: Option<TargetStatus>,
    /// Its reservation, if it has one.
    pub reservation: Option<ReservationStatus>,
    /// Time held in the host's queue, of reads and writes.
    pub held: Latency,
    /// Time at the array.
    pub device: Latency,
    /// Both together: what the client sees, but for its own socket.
    pub total: Latency,
    /// Distributions as the ring has them, for callers that look each second.
    #[serde(skip)]
    pub recorded: Option<Recorded>,
}

/// Distributions of a disk as the ring has them. The next IO of the disk copies those that a reader still holds.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Time held in the host's queue, of reads and writes.
    pub held: Arc<Latencies>,
    /// Time at the array.
    pub device: Arc<Latencies>,
}

/// Detail of a status answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Everything, with all distributions.
    Whole,
    /// Counters, and distributions as the ring has them.
    Counters,
}

impl DiskStatus {
    /// Whether most of its IOs that are held now are held by its limit or its tenant's.
    #[must_use]
    pub fn is_limited_now(&self) -> bool {
        2 * self.limited_now > self.held_now
    }

    /// The state of a disk without shares, as those of an array are, that has done so much.
    #[must_use]
    pub fn without_shares(name: String, stats: &VmStats) -> DiskStatus {
        let none = VmSettings { shares: Some(0), ..VmSettings::default() }.or_defaults();
        DiskStatus::new(name, none, stats.clone(), Detail::Whole)
    }

    /// The state of a disk that has done so much.
    pub(crate) fn new(
        name: String,
        settings: VmSettings,
        stats: VmStats,
        detail: Detail,
    ) -> DiskStatus {
        let latency = |recorded: &Latencies| match detail {
            Detail::Whole => Latency::from(recorded),
            Detail::Counters => Latency::default(),
        };
        DiskStatus {
            name,
            listen: String::new(),
            settings_from: SettingsFrom::default(),
            from: ValueFrom::Configuration,
            shares: settings.shares().0,
            burst: settings.burst.unwrap_or_default(),
            settings,
            slice: stats.part.slice,
            held_now: stats.part.held as u64,
            limited_now: stats.part.limited as u64,
            state: DiskState::default(),
            state_s: 0.0,
            fault: None,
            drain: false,
            clients: stats.clients as u64,
            reads: stats.reads,
            writes: stats.writes,
            others: stats.others.ios,
            errors: stats.errors,
            guest_faults: stats.guest_faults,
            client_faults: stats.client_faults,
            overdue: stats.overdue,
            time_held_s: stats.time_held.total().secs(),
            time_held_by: HeldByStatus::new(&stats.time_held),
            time_at_device_s: stats.time_at_device.secs(),
            page_cache: stats.page_cache,
            replaced: stats.replaced,
            latency_target: stats.standing.as_ref().map(TargetStatus::new),
            reservation: stats.reservation.as_ref().map(ReservationStatus::new),
            held: latency(&stats.held),
            device: latency(&stats.device),
            total: latency(&stats.total),
            recorded: (detail == Detail::Counters)
                .then_some(Recorded { held: stats.held.0, device: stats.device.0 }),
        }
    }
}

/// Reservation of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReservationStatus {
    /// IO/s that are reserved.
    pub reserved_iops: f64,
    /// IO/s that the disk did in the last period.
    pub iops: f64,
    /// Whether it asks for its reservation and gets less.
    pub short: bool,
}

impl ReservationStatus {
    fn new(state: &ReservationState) -> ReservationStatus {
        ReservationStatus { reserved_iops: state.iops, iops: state.rate, short: state.short }
    }
}

/// Time held by cause, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeldByStatus {
    /// As the disk wants more than its slice.
    pub share_s: f64,
    /// As the host has all outstanding that its window allows.
    pub window_s: f64,
    /// Until it was its turn, with room in its slice.
    pub turn_s: f64,
    /// As its limit allowed no more.
    #[serde(default)]
    pub limit_s: f64,
}

impl HeldByStatus {
    fn new(times: &HeldTimes) -> HeldByStatus {
        let [share_s, window_s, turn_s, limit_s] = HeldBy::ALL.map(|cause| times.by(cause).secs());
        HeldByStatus { share_s, window_s, turn_s, limit_s }
    }

    /// The part of the time that was by the disk's limit, 0 to 1.
    #[must_use]
    pub fn part_by_limit(&self) -> f64 {
        let all = self.share_s + self.window_s + self.turn_s + self.limit_s;
        if all > 0.0 { self.limit_s / all } else { 0.0 }
    }

    /// Difference to `earlier` times of the same disk.
    #[must_use]
    pub fn since(&self, earlier: &HeldByStatus) -> HeldByStatus {
        HeldByStatus {
            share_s: self.share_s - earlier.share_s,
            window_s: self.window_s - earlier.window_s,
            turn_s: self.turn_s - earlier.turn_s,
            limit_s: self.limit_s - earlier.limit_s,
        }
    }
}

/// Reason why an agent's status cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No process answers at the socket.
    #[error("cannot ask: {0}")]
    Connect(#[from] std::io::Error),
    /// The socket's owner sends no answer, or one without end.
    #[error("no whole answer within {} s", PATIENCE.as_secs())]
    Silent,
    /// The answer is no status of this version.
    #[error("the answer is not a status of this version: {0}")]
    Answer(#[from] serde_json::Error),
}

/// More bytes than a status has: that of a thousand disks has some ten million.
const LONGEST: usize = 256 << 20;

/// Asks the agent behind a status socket.
///
/// # Errors
/// No process answers, or the answer is no status.
pub fn ask(socket: &Path) -> Result<Status, AskError> {
    let mut stream = UnixStream::connect(socket)?;
    let until = Instant::now() + PATIENCE;
    let (mut text, mut part) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || text.len() > LONGEST {
            return Err(AskError::Silent);
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part) {
            Ok(0) => return Ok(serde_json::from_slice(&text)?),
            Ok(n) => text.extend_from_slice(&part[..n]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(e) => return Err(e.into()),
        }
    }
}
