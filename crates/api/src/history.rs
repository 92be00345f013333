//! The last hour, second by second.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Query of the history.
#[derive(Clone, Debug, Default, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct HistoryQuery {
    /// Name of the volume.
    pub volume: String,
    /// Keys of disks, or names of VMs of a steered device: `disk=a&disk=b`. All, if none is named.
    pub disk: Option<Vec<String>>,
    /// Names of other hosts: `host=a&host=b`. All, if none is named.
    pub host: Option<Vec<String>>,
    /// Number of seconds, the latest ones. Default: 60, or all since `since_ms`.
    #[param(minimum = 1, maximum = 3600)]
    pub seconds: Option<u32>,
    /// Only seconds that began after this time, in milliseconds since 1970.
    pub since_ms: Option<u64>,
}

/// History of a volume. Each list begins at `start_ms` and has one value a second, `null` where the value is not known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct History {
    /// Time between two values.
    pub step_ms: u32,
    /// Beginning of the first second, in milliseconds since 1970.
    pub start_ms: u64,
    /// The volume over time.
    pub volume: VolumeHistory,
    /// Disks by their keys, and VMs of a steered device by their names.
    pub disks: BTreeMap<String, DiskHistory>,
    /// Other hosts by their names.
    pub hosts: BTreeMap<String, HostHistory>,
}

/// A volume over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VolumeHistory {
    /// Window, in slots of the law.
    pub window: Vec<Option<f64>>,
    /// Device latency that the window rests on.
    pub latency_ms: Vec<Option<f64>>,
    /// Mean device latency of this host.
    pub own_latency_ms: Vec<Option<f64>>,
    /// Latency threshold in force.
    pub threshold_ms: Vec<Option<f64>>,
    /// Reads and writes per second.
    pub iops: Vec<Option<f64>>,
    /// Bytes of reads and writes per second.
    pub bytes_per_s: Vec<Option<f64>>,
    /// Mean outstanding IOs at the array, in slots.
    pub outstanding: Vec<Option<f64>>,
    /// IOs held in the host's queue.
    pub held: Vec<Option<f64>>,
}

/// A disk over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DiskHistory {
    /// Reads and writes per second.
    pub iops: Vec<Option<f64>>,
    /// Bytes of reads and writes per second.
    pub bytes_per_s: Vec<Option<f64>>,
    /// Mean time at the array; `null` in a second without IOs.
    pub device_ms: Vec<Option<f64>>,
    /// Mean time held; `null` in a second without IOs.
    pub held_ms: Vec<Option<f64>>,
    /// Mean number of IOs at the array.
    pub outstanding: Vec<Option<f64>>,
    /// The disk's slice of the window, in slots; `null` in a second without IOs.
    pub slice: Vec<Option<f64>>,
}

/// Another host over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HostHistory {
    /// Window, in slots of the law.
    pub window: Vec<Option<f64>>,
    /// Mean device latency of the host.
    pub latency_ms: Vec<Option<f64>>,
    /// Reads and writes per second.
    pub iops: Vec<Option<f64>>,
}
