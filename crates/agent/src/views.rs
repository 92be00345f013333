//! The agent's volumes as other threads see them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use parda_exchange::HostName;

use crate::config;
use crate::enforcer;
use crate::shown::Shown;
use crate::status::{Detail, Status, VolumeStatus};
use crate::volume::VolumeView;

/// A volume as other threads see it.
pub(crate) enum View {
    Running(VolumeView),
    /// It does not start, for a reason.
    Failed(Box<config::Volume>, String),
}

/// The agent as other threads see it.
pub(crate) struct Views {
    host: HostName,
    started: Instant,
    volumes: Mutex<Arc<Vec<View>>>,
}

impl Views {
    pub(crate) fn new(host: HostName) -> Arc<Views> {
        Arc::new(Views { host, started: Instant::now(), volumes: Mutex::default() })
    }

    /// Shows these volumes from now on.
    pub(crate) fn show(&self, volumes: Vec<View>) {
        *self.volumes.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(volumes);
    }

    /// Configuration in force of a volume that runs.
    pub(crate) fn config(&self, volume: &str) -> Option<config::Volume> {
        let volumes = Arc::clone(&self.volumes.lock().unwrap_or_else(PoisonError::into_inner));
        volumes.iter().find_map(|view| match view {
            View::Running(view) => Some(view.config()).filter(|config| config.name == volume),
            View::Failed(..) => None,
        })
    }

    /// The state of the agent and of all volumes.
    pub(crate) fn status(&self, detail: Detail) -> Status {
        // Nobody waits for who looks.
        let volumes = Arc::clone(&self.volumes.lock().unwrap_or_else(PoisonError::into_inner));
        let volumes = volumes.iter().filter_map(|view| match view {
            View::Running(view) => view.status(detail),
            View::Failed(config, error) => Some(failed(config, error)),
        });
        Status {
            host: self.host.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            volumes: volumes.collect(),
        }
    }
}

fn failed(config: &config::Volume, error: &str) -> VolumeStatus {
    VolumeStatus { fault: Some(error.to_owned()), ..enforcer::base(config, Shown::default()) }
}
