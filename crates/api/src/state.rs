//! The state: what is now.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::policy::Policy;

/// The agent now. Rates and means of disks and volumes are of the last whole second; those of hosts, windows and latencies of the
/// law are of the last control period.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct State {
    /// Name of the host in its cluster.
    pub host: String,
    /// Version of the agent.
    pub version: String,
    /// Process id of the agent.
    pub pid: u32,
    /// Seconds since the agent started.
    pub uptime_s: f64,
    /// The host's clock, in milliseconds since 1970.
    pub now_ms: u64,
    /// What this request may do.
    pub role: Role,
    /// The policy; `null` where none is configured.
    pub policy: Option<Policy>,
    /// Volumes in the order of the configuration.
    pub volumes: Vec<Volume>,
}

/// What a request may do.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Look, and change nothing.
    #[default]
    Read,
    /// Look at all and change settings.
    Write,
    /// All of that, and add disks, which names files of the host.
    Admin,
}

/// A volume, as this host sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    /// Name of the volume, the same on all hosts.
    pub name: String,
    /// How the window is found.
    pub mode: String,
    /// Reason why the volume does not run.
    pub fault: Option<String>,
    /// Where its settings come from that are set; those that are left out have their defaults.
    pub settings_from: BTreeMap<String, ValueFrom>,
    /// Latency threshold in force.
    pub threshold: Threshold,
    /// Device latency that the window rests on.
    pub latency_ms: Option<f64>,
    /// Mean device latency of this host in the last period.
    pub own_latency_ms: Option<f64>,
    /// Where `latency_ms` comes from: `cluster`, `last-good` or `local`.
    pub source: String,
    /// Window in slots; `null` without control.
    pub window: Option<f64>,
    /// Largest window that the law may set.
    pub window_max: Option<f64>,
    /// Mean outstanding IOs at the array in the last period, in slots.
    pub outstanding: f64,
    /// IOs held in the host's queue now.
    pub held: u64,
    /// β of the law's last step, in slots.
    pub beta: f64,
    /// Shares of this host's disks or VMs together.
    pub shares: u32,
    /// The same, less for those that use less than their slice.
    pub active_shares: f64,
    /// Reads and writes per second.
    pub iops: Option<f64>,
    /// Bytes of reads and writes per second.
    pub bytes_per_s: Option<f64>,
    /// Where hosts meet; `null` if this host is alone.
    pub exchange: Option<Exchange>,
    /// Hosts on the volume, this one first.
    pub hosts: Vec<Host>,
    /// Disks that are served.
    pub disks: Vec<Disk>,
    /// Device that is steered.
    pub steer: Option<Steer>,
}

/// A latency threshold, and its origin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Threshold {
    /// Threshold in force, in milliseconds.
    pub ms: f64,
    /// Where it comes from.
    pub from: ThresholdFrom,
    /// Disk or host whose latency objective it is, if `from` is `objective`.
    pub objective_of: Option<String>,
}

/// Origin of the threshold in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ThresholdFrom {
    /// The default that is built in.
    Default,
    /// A number in the configuration file.
    Configuration,
    /// The policy, which is the same for all hosts.
    Policy,
    /// A change of the running agent that ends with it.
    Live,
    /// A change that the state file keeps.
    State,
    /// The agent finds it while working.
    Auto,
    /// A disk's latency objective.
    Objective,
}

/// Origin of a setting in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ValueFrom {
    /// The default that is built in.
    #[default]
    Default,
    /// The configuration file of the host.
    Configuration,
    /// The policy, which is the same for all hosts.
    Policy,
    /// A change of the running agent that ends with it.
    Live,
    /// A change that the state file keeps.
    State,
}

/// Where the hosts of a volume meet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Exchange {
    /// File, device, NBD URI or UDP address.
    pub place: String,
    /// Current fault, if there is one.
    pub fault: Option<String>,
    /// Seconds between two rounds of this host.
    pub period_s: Option<f64>,
    /// Reason why rounds are further apart than configured.
    pub slowed: Option<String>,
}

/// A host on a volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Host {
    /// Name of the host.
    pub name: String,
    /// Whether it is the host that answers.
    pub own: bool,
    /// `live`, `unproven`, `stale`, `gone` or `left`, as seen from here.
    pub liveness: String,
    /// Seconds since it was last seen to change.
    pub age_s: f64,
    /// Window in slots; `null` without control.
    pub window: Option<f64>,
    /// Window that it would have, if it observes.
    pub would_be: Option<f64>,
    /// Shares of its VMs together.
    pub shares: u32,
    /// The same, less for those that use less than their slice.
    pub active_shares: f64,
    /// Mean device latency in its last period.
    pub latency_ms: Option<f64>,
    /// Latency threshold that it was told or has found.
    pub latency_threshold_ms: Option<f64>,
    /// Reads and writes per second in its last period.
    pub iops: Option<f64>,
    /// Bytes of reads and writes per second in its last period.
    pub bytes_per_s: Option<f64>,
    /// Mean outstanding IOs in its last period, in slots.
    pub outstanding: f64,
    /// Threshold that one of its disks asks for by its latency objective.
    pub asks_ms: Option<f64>,
}

/// A disk that is served.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Disk {
    /// Name in paths and queries: `name`, or `name@listen` where a volume has two disks of one name.
    pub key: String,
    /// Name of the export.
    pub name: String,
    /// Address at which clients find it.
    pub listen: String,
    /// `serving`, `opening`, `waiting` or `leaving`.
    pub state: String,
    /// Reason why it is not served or why IOs of it fail.
    pub fault: Option<String>,
    /// Where the disk comes from.
    pub from: ValueFrom,
    /// Whether it takes no new connections.
    pub drain: bool,
    /// Number of clients that are connected to it.
    pub clients: u64,
    /// Shares that are in force.
    pub shares: u32,
    /// Where the shares come from.
    pub shares_from: ValueFrom,
    /// Where its settings come from that are set; those that are left out have their defaults.
    pub settings_from: BTreeMap<String, ValueFrom>,
    /// Bounds in force for the disk.
    pub limits: DiskLimits,
    /// Latency objective of the disk.
    pub latency_target_ms: Option<f64>,
    /// Reads and writes per second.
    pub iops: Option<f64>,
    /// Bytes of reads and writes per second.
    pub bytes_per_s: Option<f64>,
    /// Reads of the disk per second.
    pub reads_per_s: Option<f64>,
    /// Writes of the disk per second.
    pub writes_per_s: Option<f64>,
    /// Mean time of reads and writes at the array; `null` in a second without any.
    pub device_ms: Option<f64>,
    /// Mean time that they were held in the host's queue.
    pub held_ms: Option<f64>,
    /// 99th percentile of the time at the array.
    pub device_p99_ms: Option<f64>,
    /// Mean number of IOs at the array, by Little's law.
    pub outstanding: Option<f64>,
    /// Mean number of IOs held, by Little's law.
    pub waiting: Option<f64>,
    /// IOs that it may have outstanding now, in slots; `null` where nothing bounds each disk.
    pub slice: Option<f64>,
    /// IOs that failed at the array since the disk was opened.
    pub errors: u64,
    /// What keeps it from doing more.
    pub limited_by: Option<Limit>,
    /// Its part by shares of what this host's disks do that are limited by their slices; `null` for all others.
    pub entitled_iops: Option<f64>,
}

/// Bounds of a disk, as the configuration names them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DiskLimits {
    /// IOs that it may gather while idle and spend ahead of its neighbours.
    pub burst: f64,
}

/// What keeps a disk from doing more IOs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum Limit {
    /// There were no requests.
    #[serde(rename = "nothing done")]
    Nothing,
    /// Its requests moved no data.
    #[serde(rename = "flushes, trims")]
    Others,
    /// Its part of the window: its IOs are held.
    #[serde(rename = "its slice")]
    Slice,
    /// Its client asks for no more at a time.
    #[serde(rename = "its own depth")]
    Depth,
}

impl Limit {
    /// Part of its IOs' time for which a disk is held before its slice is what limits it.
    const HELD: f64 = 0.05;

    /// By what a disk did in an interval: reads and writes, other requests, mean times of reads and writes.
    #[must_use]
    pub fn of(ios: u64, others: u64, device_ms: f64, held_ms: f64) -> Limit {
        match (ios, others) {
            (0, 0) => Limit::Nothing,
            (0, _) => Limit::Others,
            _ if held_ms > Limit::HELD * (held_ms + device_ms) => Limit::Slice,
            _ => Limit::Depth,
        }
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Limit::Nothing => "nothing done",
            Limit::Others => "flushes, trims",
            Limit::Slice => "its slice",
            Limit::Depth => "its own depth",
        })
    }
}

/// A device that is steered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Steer {
    /// Device of the configuration.
    pub device: String,
    /// Reason why it is not steered.
    pub fault: Option<String>,
    /// Queue depth in force, over all paths.
    pub depth: Option<u32>,
    /// VMs that are told apart.
    pub vms: Vec<SteeredVm>,
}

/// A VM of a steered device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SteeredVm {
    /// Name in paths and queries: `name`, or `name@cgroup` where two VMs have one name.
    pub key: String,
    /// Name of the VM.
    pub name: String,
    /// Path of its cgroup.
    pub cgroup: String,
    /// Shares that are in force.
    pub shares: u32,
    /// Where the shares come from.
    pub shares_from: ValueFrom,
    /// IOs of the VM per second.
    pub iops: Option<f64>,
    /// Bytes of its IOs per second.
    pub bytes_per_s: Option<f64>,
    /// Mean IOs submitted and not completed in the last period.
    pub pending: f64,
}
