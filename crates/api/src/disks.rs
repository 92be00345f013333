//! Disks added, removed and drained while the agent runs.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::change::Keep;
use crate::state::ValueFrom;

/// A disk to be served. A body with the name alone is for a disk of the configuration that was removed: it is served again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NewDisk {
    /// Lifetime of the change. Default: `state` if a state file is configured, else `until_restart`.
    pub keep: Option<Keep>,
    /// The keys of `[[volume.disk]]`: `name`, `path`, `listen`, `shares` …
    #[serde(flatten, deserialize_with = "crate::settings::read")]
    pub disk: Map<String, Value>,
}

/// Result of adding or removing a disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DiskDone {
    /// Name of the volume.
    pub volume: String,
    /// Name of the disk.
    pub disk: String,
    /// `serving`, `opening`, `waiting` or `leaving`; `null` if the disk was removed.
    pub state: Option<String>,
    /// Layer that adds or removes the disk.
    pub from: ValueFrom,
}

/// Request to drain the disks of a volume, or to end that.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Drain {
    /// `true`: the disks refuse new connections. `false`: they take them again, regardless of the configuration.
    pub drain: bool,
    /// Lifetime of the change. Default: `state` if a state file is configured, else `until_restart`.
    pub keep: Option<Keep>,
}

/// Disks of a volume after such a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Drained {
    /// Name of the volume.
    pub volume: String,
    /// All disks of the volume, in the order of the configuration.
    pub disks: Vec<DrainedDisk>,
}

/// State of a disk after such a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DrainedDisk {
    /// Key of the disk.
    pub disk: String,
    /// Whether the disk refuses new connections.
    pub drain: bool,
    /// Number of clients that are connected to the disk.
    pub clients: u64,
}
