//! Events of the agent, with their times.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Query of the events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// Only events after the one with this id. Default: the latest ones.
    pub after: Option<u64>,
    /// Largest number of events in the answer. Default: 100.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
}

/// Events in the order in which they happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Events {
    /// Start of the agent, in milliseconds since 1970. Ids begin anew at each start.
    pub started_ms: u64,
    /// Events that match the query, oldest first.
    pub events: Vec<Event>,
    /// Id of the latest event, in the answer or not; 0 before the first event.
    pub last_id: u64,
    /// Number of events after `after` that are no longer kept.
    pub lost: u64,
}

/// An event, which is also a line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Number of the event since the agent started, from 1.
    pub id: u64,
    /// Time of the event, in milliseconds since 1970.
    pub at_ms: u64,
    /// Severity of the event.
    pub severity: Severity,
    /// Volume of the event, if it has one.
    pub volume: Option<String>,
    /// Disk or VM of the event, if it has one.
    pub disk: Option<String>,
    /// Other host of the event, if it has one.
    pub host: Option<String>,
    /// Kind of the event, from the table in `docs/api.md`.
    pub kind: String,
    /// Message of the event's line in the log.
    pub message: String,
}

/// Severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A change as it should be.
    Info,
    /// A condition that an operator should look at.
    Warning,
    /// A fault: a part of the agent does not work.
    Error,
}
