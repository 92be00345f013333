//! Events: what happened, and when.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Which events to tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// Only events after this one. Without it the latest ones are told.
    pub after: Option<u64>,
    /// How many at most. Default: 100.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
}

/// Events in the order in which they happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Events {
    /// When the agent started, in milliseconds since 1970. Ids begin anew at each start.
    pub started_ms: u64,
    /// Events that were asked for, oldest first.
    pub events: Vec<Event>,
    /// Id of the latest event, told or not; 0 before the first one.
    pub last_id: u64,
    /// How many events after the one that was asked for are forgotten.
    pub lost: u64,
}

/// An event: something that happened, at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Number of the event since the agent started, from 1.
    pub id: u64,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// How bad it is.
    pub severity: Severity,
    /// Volume that it is about.
    pub volume: Option<String>,
    /// Disk or VM that it is about.
    pub disk: Option<String>,
    /// Other host that it is about.
    pub host: Option<String>,
    /// Name of the kind, of the table in `docs/api.md`.
    pub kind: String,
    /// What happened, as the log has it.
    pub message: String,
}

/// How bad an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Info,
    /// Something that is worth a look.
    Warning,
    /// Something does not work.
    Error,
}
