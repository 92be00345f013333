//! Settings changed while the agent runs.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::state::ValueFrom;

/// Lifetime of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// Over restarts and reloads: it is kept in the state file.
    State,
    /// Until the agent ends; a reload keeps it.
    UntilRestart,
}

/// New values of settings, for one of three. A volume's law takes the keys of `[volume.control]`, a disk those of `[[volume.disk]]` that
/// can be changed live. The third is a tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SettingsChange {
    /// Lifetime of the change. Default: `state` if a state file is configured, else `until_restart`.
    pub keep: Option<Keep>,
    /// New values by key, as in the configuration, such as `latency_threshold`, `shares` or `drain`.
    #[serde(flatten, deserialize_with = "crate::settings::read")]
    pub settings: Map<String, Value>,
}

/// Result of a change of settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Changed {
    /// Name of the volume.
    pub volume: String,
    /// Key of the disk, or name of the steered VM. `null` after a change of the volume or of a tenant.
    pub disk: Option<String>,
    /// Name of the tenant; `null` if no settings of a tenant were changed.
    pub tenant: Option<String>,
    /// Each setting of the request.
    pub settings: Vec<ChangedSetting>,
    /// Shares of all disks and VMs of all hosts that are heard, after the change. `null` if no shares of a disk or VM were changed.
    #[serde(default)]
    pub all_shares: Option<u64>,
}

/// A setting before and after a change. `null` means that the setting is not set, and its default is in force.
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
    /// Value in the configuration file.
    #[schema(value_type = Value)]
    pub configured: Value,
    /// Origin of the value in force.
    pub from: ValueFrom,
    /// Whether the new value was in force before the answer. A disk that is not open takes it when it opens.
    pub took_effect: bool,
}
