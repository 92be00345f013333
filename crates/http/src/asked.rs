//! The agent as the server sees it: a trait, with its arguments and answers.

use axum::body::Bytes;
use parda_api as api;

/// An agent: it answers the server's requests. Each call may block.
pub trait Agent: Changes + Disks + Send + Sync + 'static {
    /// Metrics, and the list of disks and listeners that are not served.
    fn pages(&self) -> Pages;

    /// State of the agent, its volumes, disks and hosts. The role is the server's to fill in.
    fn state(&self) -> api::State;

    /// The last hour of a volume.
    ///
    /// # Errors
    /// There is no such volume, disk or host, or the answer would be too long.
    fn history(&self, query: &api::HistoryQuery) -> Result<api::History, ApiRefusal>;

    /// Events that match a query.
    fn events(&self, query: api::EventsQuery) -> api::Events;

    /// Name and role of a token, if it is known.
    fn who(&self, secret: &str) -> Option<(String, api::Role)>;
}

/// Changes of settings by an agent.
pub trait Changes {
    /// Changes settings of a volume or a disk while it runs.
    ///
    /// # Errors
    /// The volume, disk or setting does not exist, a value is wrong, or the change cannot be kept.
    fn set(
        &self,
        place: &ChangeTarget,
        change: &api::SettingsChange,
        who: &Caller,
    ) -> Result<api::Changed, ApiRefusal>;

    /// Removes the live change of a setting, or of all, of a volume or disk.
    ///
    /// # Errors
    /// The volume or disk does not exist, the setting was not changed, or the change cannot be kept.
    fn reset(
        &self,
        place: &ChangeTarget,
        setting: Option<&str>,
        who: &Caller,
    ) -> Result<api::Changed, ApiRefusal>;
}

/// Changes of the disks that an agent serves.
pub trait Disks {
    /// Serves one more disk of a volume.
    ///
    /// # Errors
    /// The disk is wrong, or cannot be served, or the change cannot be kept.
    fn add_disk(
        &self,
        volume: &str,
        new: &api::NewDisk,
        who: &Caller,
    ) -> Result<api::DiskDone, ApiRefusal>;

    /// Stops serving a disk. Its data stays as it is.
    ///
    /// # Errors
    /// There is no such disk, it is the last one of its volume, or the change cannot be kept.
    fn remove_disk(
        &self,
        place: &ChangeTarget,
        keep: Option<api::Keep>,
        who: &Caller,
    ) -> Result<api::DiskDone, ApiRefusal>;

    /// Drains all disks of a volume, so that they refuse new connections, or ends that.
    ///
    /// # Errors
    /// There is no such volume, or the change cannot be kept.
    fn drain(
        &self,
        volume: &str,
        drain: &api::Drain,
        who: &Caller,
    ) -> Result<api::Drained, ApiRefusal>;
}

/// The part of a volume that a change is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChangeTarget {
    /// Name of the volume.
    pub volume: String,
    /// Part of the volume.
    pub of: Of,
}

/// A part of a volume that has settings.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Of {
    /// The law, with the settings of `[volume.control]`.
    Law,
    /// A disk by its key, or a VM of a steered device by its name in the configuration.
    Disk(String),
    /// A tenant, by its name.
    Tenant(String),
}

impl Of {
    /// Key of the disk or name of the VM, if it is one; and name of the tenant, likewise.
    #[must_use]
    pub fn names(&self) -> (Option<&str>, Option<&str>) {
        match self {
            Of::Law => (None, None),
            Of::Disk(disk) => (Some(disk), None),
            Of::Tenant(tenant) => (None, Some(tenant)),
        }
    }
}

/// Reason why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiRefusal {
    /// The request names a volume, disk or setting that does not exist.
    NotFound(String),
    /// The request is wrong.
    Invalid(String),
    /// The request conflicts with the configuration.
    Conflict(String),
    /// The agent failed to do what was asked.
    Failed(String),
}

/// Pages made from one look at the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// Metrics in OpenMetrics text.
    pub metrics: Bytes,
    /// Disks and listeners that are configured and not served, one a line. Empty if all are served.
    pub lacking: String,
}

/// Sender of a request, as far as the server can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Name of a token, or the user of a process.
    pub name: String,
    /// Address of the sender, or `the unix socket`.
    pub at: String,
    /// Rights of the sender.
    pub role: api::Role,
}
