//! Descriptors that a configuration needs, beside the limit of this process.

use std::collections::HashSet;
use std::path::Path;

use parda_block::{
    BackendConfig, DiskConfig, Lock, OF_CONNECTION, OF_DEVICE, OF_FILE, descriptors_for,
};

use crate::config::Config;

/// Number of disks of a configuration, and the hard limit of descriptors of this process. Each disk needs descriptors for itself, its
/// listener and one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// Number of disks of all volumes.
    pub disks: usize,
    /// Number of the listeners that these name.
    pub listeners: usize,
    /// Limit with which all of them are served.
    pub needed: u64,
    /// Hard limit of this process; `None` if unlimited.
    pub limit: Option<u64>,
    /// Number of disks that are served with that limit, in the order of the configuration.
    pub served: usize,
}

impl Descriptors {
    /// Counts for one configuration, and the limit of this process.
    #[must_use]
    pub fn of(config: &Config) -> Descriptors {
        let limit = parda_block::descriptor_limit();
        let (mut disks, mut own, mut served) = (0, 0, 0);
        let mut listeners = HashSet::new();
        let mut needed = descriptors_for(0, 0, 0);
        for disk in config.volumes.iter().flat_map(|volume| volume.disks()) {
            disks += 1;
            own += of_disk(disk);
            listeners.insert(&disk.listen);
            needed = descriptors_for(disks as u64, own, listeners.len() as u64);
            served += usize::from(limit.is_none_or(|limit| needed <= limit));
        }
        Descriptors { disks, listeners: listeners.len(), needed, limit, served }
    }

    /// Text of the fault, if the limit is too low.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let Descriptors { disks, listeners, needed, limit, served } = *self;
        let limit = limit.filter(|limit| disks > 0 && *limit < needed)?;
        Some(format!(
            "{disks} disks at {listeners} listeners, with one client each, need {needed} descriptors, and the hard limit here \
             is {limit} (RLIMIT_NOFILE, LimitNOFILE= of the unit): {served} disks are served, the others are refused"
        ))
    }
}

/// Descriptors of a disk. A shared disk has one more, which shows that the agent lives. Devices are told by their names, as their file
/// systems might not answer.
fn of_disk(disk: &DiskConfig) -> u64 {
    match &disk.backend {
        BackendConfig::File { path, lock, .. } => {
            let is_device = path.starts_with(Path::new("/dev")) && !disk.read_only;
            let own = if is_device { OF_DEVICE } else { OF_FILE };
            own + u64::from(*lock == Lock::Shared)
        }
        BackendConfig::Memory { .. } => OF_FILE,
        BackendConfig::Nbd { uri, options } => {
            OF_CONNECTION[usize::from(uri.tls.is_some())] * options.connections as u64
        }
    }
}

/// Descriptors for as many clients as the system allows, and a warning if the configuration allows
/// more.
pub(crate) fn raise(config: &Config) {
    let room = match parda_block::raise_descriptor_limit() {
        Ok(Some(room)) => room,
        Ok(None) => return,
        Err(error) => return tracing::warn!("cannot raise the limit of descriptors: {error}"),
    };
    let descriptors = Descriptors::of(config);
    tracing::info!(room, needed = descriptors.needed, disks = descriptors.disks, "descriptors");
    if let Some(fault) = descriptors.fault() {
        tracing::warn!("{fault}");
    }
    let served = config.volumes.iter().filter(|volume| volume.is_served());
    let configured: usize = served.map(|volume| volume.limits.all_connections()).sum();
    if room < configured as u64 {
        tracing::warn!(
            configured,
            room,
            "the limit of descriptors (RLIMIT_NOFILE, LimitNOFILE= of the unit) has room for fewer \
             clients than limits.connections: those beyond it are turned away"
        );
    }
}
