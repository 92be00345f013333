//! The present state of the agent, its volumes, hosts and disks.

use std::collections::BTreeMap;
use std::fmt;

use parda_control::Liveness;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::limit::Limit;
use crate::missed::{PatternWithoutVm, VmWithoutPattern};

/// State of the agent. Rates and means of disks and volumes are of the last whole second. Values of hosts, windows and latencies of
/// the law are of the last control period.
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
    /// Rights of this request.
    pub role: Role,
    /// The policy; `null` where none is configured.
    pub policy: Option<Policy>,
    /// Reason why the configuration that was read last is not in force. The one from before is.
    #[serde(default)]
    pub reload_refused: Option<String>,
    /// Addresses of metrics and this API.
    #[serde(default)]
    pub http: Vec<HttpPlace>,
    /// URL of the dashboards of all hosts, with `{host}` for the host's name; `null` where `http.pages` is not configured.
    pub pages: Option<String>,
    /// Volumes in the order of the configuration.
    pub volumes: Vec<Volume>,
}

/// An address of the HTTP server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HttpPlace {
    /// Address of the configuration.
    pub address: String,
    /// Whether it is answered there.
    pub up: bool,
    /// Reason why no server answers there, or why an earlier certificate is shown. Another attempt follows.
    pub fault: Option<String>,
}

/// Rights of a request.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// May read all answers.
    #[default]
    Read,
    /// May also change settings.
    Write,
    /// May also add disks, which are files of the host.
    Admin,
}

/// A volume, as this host sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    /// Name of the volume, the same on all hosts.
    pub name: String,
    /// Name of its pool: volumes on the same drives, of which each is a host of the pool, called `HOST/VOLUME`.
    pub pool: Option<String>,
    /// Mode of the law: `parda`, `published`, `static`, `observe` or `off`.
    pub mode: String,
    /// Reason why the volume does not run.
    pub fault: Option<String>,
    /// Origin of each setting that is set. Settings that are left out have their defaults.
    pub settings_from: BTreeMap<String, ValueFrom>,
    /// Latency threshold in force.
    pub threshold: Threshold,
    /// Device latency that the window rests on.
    pub latency_ms: Option<f64>,
    /// Mean device latency of this host in the last period.
    pub own_latency_ms: Option<f64>,
    /// Source of `latency_ms`: `cluster`, `last-good` or `local`.
    pub source: String,
    /// Window in slots; `null` without control.
    pub window: Option<f64>,
    /// Largest window that the law may set.
    pub window_max: Option<f64>,
    /// Mean outstanding IOs at the array in the last period, in slots.
    pub outstanding: f64,
    /// Load on the array that is not under control; `null` if there is none, or it is unknown.
    pub outsider: Option<Outsider>,
    /// Throughput that the threshold costs; `null` if that is less than a tenth, or unknown.
    #[serde(default)]
    pub threshold_cost: Option<ThresholdCost>,
    /// IOs held in the host's queue now.
    pub held: u64,
    /// β of the law's last step, in slots.
    pub beta: f64,
    /// Shares of this host's disks or VMs together.
    pub shares: u32,
    /// Active shares: shares, where those of a disk or VM are scaled to the used part of its slice.
    pub active_shares: f64,
    /// Reads and writes per second.
    pub iops: Option<f64>,
    /// Bytes of reads and writes per second.
    pub bytes_per_s: Option<f64>,
    /// Exchange between hosts; `null` if this host is alone.
    pub exchange: Option<Exchange>,
    /// Hosts on the volume, this one first.
    pub hosts: Vec<Host>,
    /// Hosts that are left out by `ignore`, heard or not.
    #[serde(default)]
    pub ignored: Vec<String>,
    /// Tenants of the volume, in the order of the configuration.
    #[serde(default)]
    pub tenants: Vec<Tenant>,
    /// Disks of the volume, also those that are not served now.
    pub disks: Vec<Disk>,
    /// Device that is steered; `null` where disks are served.
    pub steer: Option<Steer>,
}

/// A latency threshold, and its origin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Threshold {
    /// Threshold in force, in milliseconds.
    pub ms: f64,
    /// Origin of the threshold in force.
    pub from: ValueFrom,
    /// Disk or host whose latency objective it is, if `from` is `objective`.
    pub objective_of: Option<String>,
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
    /// The search for the knee, while working: of a threshold.
    Auto,
    /// The latency objective of a disk: of a threshold.
    Objective,
}

impl ValueFrom {
    /// The origin in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            ValueFrom::Default => "the default",
            ValueFrom::Configuration => "from the configuration",
            ValueFrom::Policy => "from the policy",
            ValueFrom::Live => "until the agent ends",
            ValueFrom::State => "kept in the state file",
            ValueFrom::Auto => "found while working",
            ValueFrom::Objective => "the latency objective of a disk",
        }
    }
}

impl fmt::Display for ValueFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Exchange between the hosts of a volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Exchange {
    /// File, device, NBD URI, UDP address or members of etcd.
    pub place: String,
    /// Current fault, if there is one.
    pub fault: Option<String>,
    /// Reason why no other host is heard, where others are expected.
    #[serde(default)]
    pub silence: Option<String>,
    /// The first of the hosts that are heard and do not hear this one, a sentence each.
    #[serde(default)]
    pub one_way: Vec<String>,
    /// Seconds between two rounds of this host.
    pub period_s: Option<f64>,
    /// Reason why rounds are further apart than configured.
    pub slowed: Option<String>,
}

/// A host on a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Host {
    /// Name of the host.
    pub name: String,
    /// Whether it is the host that answers.
    pub own: bool,
    /// `live`, `unproven`, `stale`, `gone` or `left`, as seen from here.
    #[schema(value_type = String)]
    pub liveness: Liveness,
    /// Seconds since the host's report was last seen to change.
    pub age_s: f64,
    /// Reason why the host's report counts for less, if the report is not believed.
    #[serde(default)]
    pub doubt: Option<String>,
    /// Whether it is left out by `ignore`.
    #[serde(default)]
    pub ignored: bool,
    /// Seconds between two rounds of the host, if more than it was told. Shorter rounds would load the exchange.
    pub slowed_to_s: Option<f64>,
    /// Window in slots; `null` without control.
    pub window: Option<f64>,
    /// Window that the host would have, if it observes.
    pub would_be: Option<f64>,
    /// Shares of the host's VMs together.
    pub shares: u32,
    /// Active shares: shares, where those of a VM are scaled to the used part of its slice.
    pub active_shares: f64,
    /// Mean device latency in its last period.
    pub latency_ms: Option<f64>,
    /// Latency threshold that the host is configured with, or has found.
    pub latency_threshold_ms: Option<f64>,
    /// Whether the host finds its threshold while working.
    pub auto: bool,
    /// Reads and writes per second in its last period.
    pub iops: Option<f64>,
    /// Bytes of reads and writes per second in its last period.
    pub bytes_per_s: Option<f64>,
    /// Mean outstanding IOs in its last period, in slots.
    pub outstanding: f64,
    /// Lowest threshold that a disk of the host asks for by its latency objective.
    pub asks_ms: Option<f64>,
    /// Bound of the host's outstanding IOs: `its slice` if one of its VMs wants more, or `window_max`; `null` if the host does not say.
    pub limited_by: Option<Limit>,
    /// Use of the host per share while its slices bound it, or nothing does. In outstanding slots, or slots a second where shares divide
    /// throughput.
    pub per_share: Option<f64>,
    /// Use per share by the host's VMs that want more, over the mean of all such hosts. 1: as entitled by shares. Hosts without control
    /// count where they have more. `null` where there are fewer than two such hosts.
    pub of_share: Option<f64>,
}

/// A disk of a volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Disk {
    /// Name in paths and queries: `name`, or `name@listen` where a volume has two disks of one name.
    pub key: String,
    /// Name of the export.
    pub name: String,
    /// Address at which clients connect.
    pub listen: String,
    /// `serving`, `opening`, `waiting` or `leaving`.
    pub state: String,
    /// Reason why the disk is not served, or why its IOs fail.
    pub fault: Option<String>,
    /// Layer that has the disk: the configuration, or a live change.
    pub from: ValueFrom,
    /// Whether the disk refuses new connections.
    pub drain: bool,
    /// Number of clients that are connected to the disk.
    pub clients: u64,
    /// Shares of the disk in force.
    pub shares: u32,
    /// Origin of the shares.
    pub shares_from: ValueFrom,
    /// Origin of each setting that is set. Settings that are left out have their defaults.
    pub settings_from: BTreeMap<String, ValueFrom>,
    /// Values in force of the settings that can be changed live, as the configuration writes them. A setting that is left out is not set.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, Value>)]
    pub settings: Map<String, Value>,
    /// Bounds in force for the disk.
    pub limits: DiskLimits,
    /// Latency objective of the disk.
    pub latency_target_ms: Option<f64>,
    /// The disk's slice of the window, in slots; `null` in a mode without slices.
    pub slice: Option<f64>,
    /// IOs that failed at the array since the disk was opened.
    pub errors: u64,
    /// Requests that failed by the fault of the guest since the disk was opened.
    pub guest_faults: u64,
    /// Requests that failed by the fault of an NBD client since the disk was opened.
    pub client_faults: u64,
    /// IOs and bytes of the last whole second.
    #[serde(flatten)]
    pub did: DiskRates,
}

/// What a disk did in the last whole second. All are `null` where that is not known, means also in a second without IOs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DiskRates {
    /// Reads and writes per second.
    pub iops: Option<f64>,
    /// Bytes of reads and writes per second.
    pub bytes_per_s: Option<f64>,
    /// Reads of the disk per second.
    pub reads_per_s: Option<f64>,
    /// Writes of the disk per second.
    pub writes_per_s: Option<f64>,
    /// Mean time of reads and writes at the array.
    pub device_ms: Option<f64>,
    /// Mean time of reads and writes in the host's queue.
    pub held_ms: Option<f64>,
    /// 99th percentile of the time at the array.
    pub device_p99_ms: Option<f64>,
    /// Mean number of IOs at the array, by Little's law.
    pub outstanding: Option<f64>,
    /// Mean number of IOs held, by Little's law.
    pub waiting: Option<f64>,
    /// Reason why the disk does no more IOs.
    pub limited_by: Option<Limit>,
    /// The disk's part, by shares, of the IOPS of all disks of this host that slices or `window_max` limit. `null` if the disk is not one
    /// of these.
    pub entitled_iops: Option<f64>,
    /// Use of such a disk, over its part by shares among such disks of all hosts: 1 is the entitlement.
    pub of_share: Option<f64>,
}

/// Bounds of a disk, as the configuration names them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DiskLimits {
    /// IOs that the disk may gather while idle, and send ahead of its turn.
    pub burst: f64,
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
    /// VMs of the device, each a cgroup.
    pub vms: Vec<SteeredVm>,
    /// Patterns of the configuration that no VM has.
    #[serde(default)]
    pub patterns_without_vm: Vec<PatternWithoutVm>,
    /// Cgroups that look like VMs of the device and that no pattern has.
    #[serde(default)]
    pub vms_without_pattern: Vec<VmWithoutPattern>,
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
    /// Shares of the VM in force.
    pub shares: u32,
    /// Origin of the shares.
    pub shares_from: ValueFrom,
    /// Origin of each setting that is set. Settings that are left out have their defaults.
    #[serde(default)]
    pub settings_from: BTreeMap<String, ValueFrom>,
    /// Values in force of its settings, as the configuration writes them.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, Value>)]
    pub settings: Map<String, Value>,
    /// Cause of its held IOs in the last period: `its slice` or `its limit`; `null` without either, or without a setting.
    pub limited_by: Option<Limit>,
    /// IOs of the VM per second.
    pub iops: Option<f64>,
    /// Bytes of the VM's IOs per second.
    pub bytes_per_s: Option<f64>,
    /// Mean IOs submitted and not completed in the last period.
    pub pending: f64,
}

/// The policy in etcd, as the host read it last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Policy {
    /// Number of its revision; 0 before there is a policy.
    pub revision: u64,
    /// Author of the revision.
    pub by: Option<String>,
    /// Time of the revision by the author's clock, in milliseconds since 1970.
    pub at_ms: Option<u64>,
    /// Reason why etcd cannot be read now. The policy that was read last stays in force.
    pub fault: Option<String>,
    /// Volumes of this host that have a policy.
    pub volumes: Vec<VolumePolicy>,
}

/// The policy of one volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VolumePolicy {
    /// Name of the volume.
    pub name: String,
    /// Revision in which the policy in force was made; `null` if none is in force.
    pub in_force: Option<u64>,
    /// Reason why the policy that was read last is not in force.
    pub fault: Option<String>,
    /// Keys that this version does not define. The rest is in force.
    pub unknown: Vec<String>,
}

/// Knowledge of load on the array that is not under control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OutsiderState {
    /// The array became slower, or an outsider uses it: nothing says which.
    #[default]
    Slower,
    /// An outsider uses it: larger windows brought throughput, and the hosts keep their part above the threshold.
    Outsider,
    /// Windows at the threshold are below the knee of the array, and the hosts exceed the threshold. The threshold is too low, or an
    /// outsider was there from the start.
    BelowKnee,
}

/// Throughput that the threshold costs, as an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ThresholdCost {
    /// Latency without a threshold, in milliseconds.
    pub latency_ms: f64,
    /// Throughput at that latency, as a factor on the present one.
    pub factor: f64,
}

/// Load on the array that is not under control, or an array that became slower.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Outsider {
    /// Knowledge of it; `slower` of an older agent.
    #[serde(default)]
    pub state: OutsiderState,
    /// Outstanding IOs of an outsider that would explain the latency, counted in IOs like those of the hosts.
    pub outstanding: f64,
    /// Part of all outstanding IOs that such an outsider has, from 0 to 1.
    pub part: f64,
    /// Mean latency of all hosts' IOs in the last period, in milliseconds.
    pub latency_ms: f64,
    /// The usual latency with as many outstanding IOs, in milliseconds.
    pub usual_ms: f64,
    /// Periods for which the latency has been above that.
    pub periods: u32,
    /// Factor by which the array would be slower, if that explained it.
    pub factor: f64,
}

/// A tenant of a volume: disks on any number of hosts with shares, a limit or a reservation together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Tenant {
    /// Name of the tenant, the same on all hosts.
    pub name: String,
    /// Settings that are set, by key: `shares`, `limit` and `reservation`.
    pub settings: Map<String, Value>,
    /// Origin of each setting that is set.
    #[serde(default)]
    pub settings_from: BTreeMap<String, ValueFrom>,
    /// IO/s of its disks on all hosts that are heard.
    pub iops: f64,
    /// IO/s of its disks on this host.
    pub own_iops: f64,
    /// This host's part of its limit, from 0 to 1.
    pub limit_part: Option<f64>,
    /// Whether the tenant asks for its reservation and has less.
    pub short: bool,
}
