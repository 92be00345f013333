//! Settings changed while the agent runs.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::state::ValueFrom;

/// How long a change is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// In the state file, over restarts and reloads.
    State,
    /// Until the agent ends; a reload keeps it.
    UntilRestart,
}

/// New values of settings of a volume, by the keys of `[volume.control]`, such as `latency_threshold`, `mode` or `window_max`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VolumeChange {
    /// How long. Default: `state` if a state file is configured, else `until_restart`.
    #[serde(default)]
    pub keep: Option<Keep>,
    /// The values: texts, numbers or booleans, as the configuration has them.
    #[serde(flatten)]
    pub settings: Map<String, Value>,
}

/// New values of settings of a disk: `shares`, `burst` or `latency_target`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DiskChange {
    /// How long. Default: `state` if a state file is configured, else `until_restart`.
    #[serde(default)]
    pub keep: Option<Keep>,
    /// The values, as the configuration has them.
    #[serde(flatten)]
    pub settings: Map<String, Value>,
}

/// What came of a change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Changed {
    /// Name of the volume.
    pub volume: String,
    /// Key of the disk, if it is one.
    pub disk: Option<String>,
    /// Each setting that was named.
    pub settings: Vec<ChangedSetting>,
}

/// A setting before and after a change. A setting that is not set is `null`: its default is in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChangedSetting {
    /// Key of the setting.
    pub setting: String,
    /// Value in force before the change.
    #[schema(value_type = Value)]
    pub before: Value,
    /// Value in force, read back from the running volume.
    #[schema(value_type = Value)]
    pub in_force: Value,
    /// Value of the configuration file.
    #[schema(value_type = Value)]
    pub configured: Value,
    /// Where the value comes from.
    pub from: ValueFrom,
    /// Whether the value in force is the one that was asked for. Else it follows, as for a disk that is not open yet.
    pub took_effect: bool,
}
