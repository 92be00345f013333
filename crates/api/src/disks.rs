//! Disks added, removed and drained while the agent runs.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::change::Keep;
use crate::state::ValueFrom;

/// A disk to be served. With its name alone: one of the configuration that was removed, to be served again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NewDisk {
    /// How long. Default: `state` if a state file is configured, else `until_restart`.
    #[serde(default)]
    pub keep: Option<Keep>,
    /// The keys of `[[volume.disk]]`: `name`, `path`, `listen`, `shares` …
    #[serde(flatten)]
    pub disk: Map<String, Value>,
}

/// What came of adding or removing a disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DiskDone {
    /// Name of the volume.
    pub volume: String,
    /// Name of the disk.
    pub disk: String,
    /// `serving`, `opening`, `waiting` or `leaving`; `null` if it is not there any more.
    pub state: Option<String>,
    /// Who says that it is there or not.
    pub from: ValueFrom,
}

/// Whether the disks of a volume take new connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Drain {
    /// `true`: they take none. `false`: as the configuration says again, which is that they do if it says nothing.
    pub drain: bool,
    /// How long. Default: `state` if a state file is configured, else `until_restart`.
    #[serde(default)]
    pub keep: Option<Keep>,
}

/// Disks of a volume after it was drained, or not any more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Drained {
    /// Name of the volume.
    pub volume: String,
    /// Disks of the volume, in their order.
    pub disks: Vec<DrainedDisk>,
}

/// A disk that takes new connections or not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DrainedDisk {
    /// Key of the disk.
    pub disk: String,
    /// Whether it takes no new connections.
    pub drain: bool,
    /// Number of clients that are connected to it.
    pub clients: u64,
}
