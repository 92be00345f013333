//! What holds a volume's IOs to the window that the law finds: our own ring, or the kernel's queue.

use std::time::Duration;

use parda_block::{AgentMemory, Drained, Handle};
use parda_control::law::Mode;
use parda_control::{Report, Source, Totals};

use crate::activation::Passed;
use crate::config::{self, Work};
use crate::control::Shown;
use crate::served;
use crate::status::{DroppedStatus, VolumeStatus};
use crate::steered::Steered;
use crate::volume::StartError;

/// A volume's gate. The control thread ticks it; the main thread changes it; the status thread
/// asks it.
pub(crate) enum Gate {
    /// Disks that are served over NBD.
    Ring(Handle),
    /// A device that VMs open directly.
    Kernel(Box<Steered>),
}

/// The gate has ended; the log has the reason.
#[derive(Debug)]
pub(crate) struct Gone;

impl Gate {
    pub(crate) fn start(
        config: &config::Volume,
        memory: &AgentMemory,
        passed: &Passed,
    ) -> Result<Gate, StartError> {
        Ok(match &config.work {
            Work::Serve(disks) => Gate::Ring(served::start(config, disks, memory, passed)?),
            Work::Steer(steer) => Gate::Kernel(Box::new(Steered::start(config, steer)?)),
        })
    }

    /// Ends a period. `heard`: what the other hosts said; `None` if the exchange is silent.
    pub(crate) fn tick(&self, heard: Option<Totals>) -> Result<Report, Gone> {
        match self {
            Gate::Ring(handle) => handle.tick(heard).map_err(|_| Gone),
            Gate::Kernel(steered) => steered.tick(heard),
        }
    }

    /// Does what is due between two ticks, and says after what time to ask again, if at all.
    pub(crate) fn between_ticks(&self) -> Option<Duration> {
        match self {
            Gate::Ring(_) => None,
            Gate::Kernel(steered) => steered.slice(),
        }
    }

    /// Takes over from `new` into what is in force what may change while it runs.
    pub(crate) fn reload(&self, in_force: &mut config::Volume, new: &config::Volume) {
        match self {
            Gate::Ring(handle) => served::reload(handle, in_force, new),
            Gate::Kernel(steered) => steered.reload(in_force, new),
        }
    }

    /// The volume's state; `None` once it has ended.
    pub(crate) fn status(&self, config: &config::Volume, shown: Shown) -> Option<VolumeStatus> {
        let mut status = base(config, shown);
        match self {
            Gate::Ring(handle) => served::describe(&mut status, config, &handle.stats().ok()?),
            Gate::Kernel(steered) => steered.describe(&mut status, config),
        }
        Some(status)
    }

    /// How many IOs were done or are under way, if this host serves them. `None` once it has ended.
    pub(crate) fn served(&self) -> Option<u64> {
        match self {
            Gate::Ring(handle) => {
                let stats = handle.stats().ok()?;
                let total = stats.total();
                let done = total.reads.ios + total.writes.ios + total.others.ios + total.errors;
                Some(done + (stats.outstanding + stats.held) as u64)
            }
            Gate::Kernel(_) => None,
        }
    }

    /// Ends it. `None` if it was not running any more.
    pub(crate) fn stop(self, within: Duration) -> Option<Drained> {
        match self {
            Gate::Ring(handle) => handle.shutdown(within).ok(),
            Gate::Kernel(steered) => steered.stop(),
        }
    }
}

/// What is said in the same way of every volume.
fn base(config: &config::Volume, shown: Shown) -> VolumeStatus {
    let Shown { ticks, report, exchange } = shown;
    let law = &config.law.control.law;
    // A number is in force at once, what is found is what the last tick found.
    let found = report.filter(|_| config.law.control.auto.is_some());
    let threshold = found.map_or(law.threshold, |report| report.threshold);
    VolumeStatus {
        name: config.name.clone(),
        mode: match law.mode {
            Mode::Off => "off",
            Mode::Observe => "observe",
            Mode::Static => "static",
            Mode::Published { .. } => "published",
            Mode::Normalised { .. } => "parda",
        }
        .to_owned(),
        latency_threshold_ms: threshold.secs() * 1e3,
        threshold: None,
        cluster_latency_ms: None,
        source: match report.map(|r| r.source).unwrap_or_default() {
            Source::Cluster => "cluster",
            Source::LastGood => "last-good",
            Source::Local => "local",
        }
        .to_owned(),
        window: None,
        outlook: None,
        beta: report.map_or(0.0, |r| r.beta),
        shares: report.map_or(0, |r| r.shares.0),
        active_shares: report.map_or(0.0, |r| r.active),
        outstanding: report.map_or(0.0, |r| r.outstanding),
        held: 0,
        connections: 0,
        memory: None,
        dropped: DroppedStatus::default(),
        ticks,
        exchange,
        disks: Vec::new(),
        steer: None,
    }
}
