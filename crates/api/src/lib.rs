//! Types of the agent's HTTP API: queries, bodies and answers, for serde and for the description by OpenAPI.
//!
//! | file | subject |
//! | --- | --- |
//! | `state` | the present state: volumes, hosts, disks, tenants, outsiders, the policy |
//! | `history` | the last hour, second by second |
//! | `events` | events: disks, hosts, settings, faults |
//! | `limit` | the reason why a disk does no more IOs |
//! | `change` | settings changed while the agent runs |
//! | `missed` | patterns without a VM, VMs without a pattern |
//! | `disks` | disks added, removed and drained while the agent runs |
//!
//! Names of times and rates end with their unit. A value that is not known is `null`. `docs/api.md` explains each answer with
//! an example.

#![forbid(unsafe_code)]

mod change;
mod disks;
mod events;
mod history;
mod limit;
mod missed;
mod settings;
mod state;

pub use change::{Changed, ChangedSetting, Keep, SettingsChange};
pub use disks::{DiskDone, Drain, Drained, DrainedDisk, NewDisk};
pub use events::{Event, Events, EventsQuery, Severity};
pub use history::{DiskHistory, History, HistoryQuery, HostHistory, VolumeHistory};
pub use limit::{HELD, Limit, Requests, is_full};
pub use missed::{PatternWithoutVm, VmWithoutPattern, first};
pub use state::{
    Disk, DiskLimits, DiskRates, Exchange, Host, HttpPlace, Outsider, OutsiderState, Policy, Role,
    State, Steer, SteeredVm, Tenant, Threshold, ThresholdCost, ValueFrom, Volume, VolumePolicy,
};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Answer to a request that is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// The fault, and what to do.
    pub error: String,
}
