//! What the server asks its agent, and what is answered.

use axum::body::Bytes;
use parda_api as api;
use serde_json::{Map, Value};

/// What the server asks its agent. Each call may block.
pub trait Agent: Send + Sync + 'static {
    /// Metrics, and what is not served.
    fn pages(&self) -> Pages;

    /// State of the agent, its volumes, disks and hosts. The role is the server's to fill in.
    fn state(&self) -> api::State;

    /// The last hour of a volume.
    ///
    /// # Errors
    /// There is no such volume, disk or host, or the answer would be too long.
    fn history(&self, query: &api::HistoryQuery) -> Result<api::History, Refusal>;

    /// Events as they are asked for.
    fn events(&self, query: api::EventsQuery) -> api::Events;

    /// Name and role of a token, if it is known.
    fn who(&self, secret: &str) -> Option<(String, api::Role)>;

    /// Changes settings of a volume or a disk while it runs.
    ///
    /// # Errors
    /// What is named is not there, a value is wrong, or the change cannot be kept.
    fn set(&self, change: &Change, who: &Who) -> Result<api::Changed, Refusal>;

    /// Gives a setting, or all, back to the configuration.
    ///
    /// # Errors
    /// What is named is not there, or was not changed.
    fn reset(
        &self,
        place: &Place,
        setting: Option<&str>,
        who: &Who,
    ) -> Result<api::Changed, Refusal>;

    /// Serves one more disk of a volume.
    ///
    /// # Errors
    /// The disk is wrong, or cannot be served, or the change cannot be kept.
    fn add_disk(
        &self,
        volume: &str,
        new: &api::NewDisk,
        who: &Who,
    ) -> Result<api::DiskDone, Refusal>;

    /// Serves a disk no more. Nothing is done to its data.
    ///
    /// # Errors
    /// There is no such disk, it is the last one of its volume, or the change cannot be kept.
    fn remove_disk(
        &self,
        place: &Place,
        keep: Option<api::Keep>,
        who: &Who,
    ) -> Result<api::DiskDone, Refusal>;

    /// Has all disks of a volume take no new connections, or take them again.
    ///
    /// # Errors
    /// There is no such volume, or the change cannot be kept.
    fn drain(&self, volume: &str, drain: &api::Drain, who: &Who) -> Result<api::Drained, Refusal>;
}

/// The volume or disk that a change is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Name of the volume.
    pub volume: String,
    /// Key of the disk; `None` for the volume itself.
    pub disk: Option<String>,
}

/// New values of settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Volume or disk that has the settings.
    pub place: Place,
    /// How long they are kept.
    pub keep: Option<api::Keep>,
    /// Keys of the settings, and their values.
    pub settings: Map<String, Value>,
}

/// Reason why a request is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The request names something that is not there.
    NotFound(String),
    /// The request is wrong.
    Invalid(String),
    /// The request does not go with the configuration.
    Conflict(String),
    /// The agent cannot do it.
    Failed(String),
}

/// Answers that one look at the agent gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// Metrics in OpenMetrics text.
    pub metrics: Bytes,
    /// What is configured and not served now, one a line. Empty if all is served.
    pub lacking: String,
}

/// Sender of a request, as far as the server can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// Name of a token, or the user of a process.
    pub name: String,
    /// Where from: an address, or the unix socket.
    pub at: String,
    /// What they may do.
    pub role: api::Role,
}
