//! The shape of an agent's HTTP API: what is answered, as serde writes it and as OpenAPI describes it.
//!
//! | file | subject |
//! | --- | --- |
//! | `state` | what is now |
//! | `history` | the last hour, second by second |
//! | `events` | what happened |
//! | `policy` | the policy, as this host has it |
//! | `change` | settings changed while the agent runs |
//! | `disks` | disks added, removed and drained while it runs |
//!
//! Times and rates have their unit in their names. A value that is not known is `null`. `docs/api.md` explains each answer with
//! an example.

#![forbid(unsafe_code)]

mod change;
mod disks;
mod events;
mod history;
mod policy;
mod state;

pub use change::{Changed, ChangedSetting, DiskChange, Keep, VolumeChange};
pub use disks::{DiskDone, Drain, Drained, DrainedDisk, NewDisk};
pub use events::{Event, Events, EventsQuery, Severity};
pub use history::{DiskHistory, History, HistoryQuery, HostHistory, VolumeHistory};
pub use policy::{Policy, VolumePolicy};
pub use state::{
    Disk, DiskLimits, Exchange, Host, Limit, Role, State, Steer, SteeredVm, Threshold,
    ThresholdFrom, ValueFrom, Volume,
};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Answer to a request that is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// What is wrong, and what to do.
    pub error: String,
}
