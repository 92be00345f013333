//! Steering of a device's queues: held, set, checked and restored.

use parda_control::DepthBounds;

use crate::device::{Device, Queue, paths};
pub use crate::event::SteeringEvent;
use crate::journal::{Journal, JournalError, LockedJournal, Restored};
use crate::knob::{DepthMethod, Knob};
use crate::multipath::{PathState, states};
use crate::refusal::SteerRefusalReason;
use crate::show::{QueueSettings, show};
use crate::sysfs::SysError;

/// A device whose queue depth is held. Dropping this restores the original settings.
#[derive(Debug)]
pub struct Steering {
    device: Device,
    asked: Option<DepthMethod>,
    journal: LockedJournal,
    paths: Vec<Path>,
    depth: Option<u32>,
    left: bool,
}

/// One queue of the device.
#[derive(Debug)]
struct Path {
    knob: Knob,
    state: PathState,
}

/// Bounds in force at a device, as read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundsInForce {
    /// Bound on the device's outstanding IOs, over the paths that carry IOs.
    pub depth: u32,
    /// Bounds of the paths.
    pub paths: Vec<PathInForce>,
}

/// Bound in force at one path.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PathInForce {
    /// Kernel name of the path.
    pub name: String,
    /// Knob that is set.
    pub method: DepthMethod,
    /// Bound on the path's outstanding IOs.
    pub depth: u32,
    /// State of the path.
    pub state: PathState,
}

/// Result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Bounds in force, after differences were repaired.
    pub in_force: BoundsInForce,
    /// Events since the previous check.
    pub events: Vec<SteeringEvent>,
}

impl Checked {
    /// Whether the kernel lowered the depth by itself, as the array reported that it is full. That is
    /// congestion.
    #[must_use]
    pub fn dropped(&self) -> bool {
        self.events.iter().any(|event| matches!(event, SteeringEvent::Dropped { .. }))
    }
}

/// Reason why a device cannot be steered, or not any more.
#[derive(Debug, thiserror::Error)]
pub enum SteerError {
    /// The device is of a kind that cannot be steered.
    #[error("{0}")]
    Refused(#[from] SteerRefusalReason),
    /// The depth is beyond the device's range.
    #[error("{name}: a depth of {depth} cannot be set: {least} to {most} can")]
    Depth {
        /// Name of the device.
        name: String,
        /// Depth that was asked for.
        depth: u32,
        /// Least depth that can be set.
        least: u32,
        /// Largest depth that can be set.
        most: u32,
    },
    /// The device no longer exists. Holds its name.
    #[error("{0} is gone")]
    Gone(String),
    /// The kernel refuses a read or write.
    #[error(transparent)]
    Sys(#[from] SysError),
    /// An original value cannot be stored or restored.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl Steering {
    /// Holds a device. Settings left behind by a process that died are restored first; the current ones
    /// go to the journal. Nothing is set yet.
    pub fn take(
        device: &Device,
        method: Option<DepthMethod>,
        journal: &Journal,
    ) -> Result<Steering, SteerError> {
        let (journal, _) = journal.hold(&device.name)?;
        let mut steering = Steering {
            device: device.clone(),
            asked: method,
            journal,
            paths: Vec::new(),
            depth: None,
            left: false,
        };
        for queue in &device.queues {
            let path = steering.path(queue)?;
            steering.paths.push(path);
        }
        steering.look_at_states();
        Ok(steering)
    }

    /// Holds a device that is to be set to this depth. An impossible depth or method is an error before
    /// anything changes. The settings of an earlier process then stay in force.
    pub fn take_for(
        depth: u32,
        device: &Device,
        method: Option<DepthMethod>,
        journal: &Journal,
    ) -> Result<Steering, SteerError> {
        let queues = show(device, method, &journal.read(&device.name)?)?;
        let carrying = || queues.iter().filter(|queue| queue.state == PathState::Active);
        let sum = |of: fn(&QueueSettings) -> u32| carrying().map(of).fold(0, u32::saturating_add);
        let (least, most) = (sum(|queue| queue.least), sum(|queue| queue.most));
        if !(least..=most).contains(&depth) {
            return Err(SteerError::Depth { name: device.name.clone(), depth, least, most });
        }
        Steering::take(device, method, journal)
    }

    /// Holds one queue of the device.
    fn path(&mut self, queue: &Queue) -> Result<Path, SteerError> {
        let method = queue.method(self.asked)?;
        let knob = Knob::new(queue.clone(), method)?;
        knob.try_open()?;
        self.journal.note(&[knob.original()])?;
        Ok(Path { knob, state: PathState::Active })
    }

    /// The device that is held.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Range of depths, with the paths that carry IOs now.
    #[must_use]
    pub fn bounds(&self) -> DepthBounds {
        let each = || self.carrying().map(|path| path.knob.bounds());
        DepthBounds {
            least: each().map(|(least, _)| least).fold(0, u32::saturating_add),
            most: each().map(|(_, most)| most).fold(0, u32::saturating_add),
            cheap: self.paths.iter().all(|path| path.knob.method == DepthMethod::QueueDepth),
        }
    }

    /// Bounds outstanding IOs at `depth`, within [`Steering::bounds`]. The depth is split over the paths
    /// that carry IOs. Each part is rounded down to a value that the knobs can express, and read back.
    pub fn set(&mut self, depth: u32) -> Result<BoundsInForce, SteerError> {
        self.depth = Some(depth);
        self.apply(depth)?;
        Ok(self.in_force())
    }

    /// Checks knobs and paths, and repairs differences. Call once a tick.
    pub fn check(&mut self) -> Result<Checked, SteerError> {
        let mut moved = self.look_at_paths()?;
        moved.extend(self.look_at_states());
        self.look_at_knobs(moved)
    }

    /// Checks the knobs alone, for checks between two ticks: asking for the states of paths starts a
    /// process.
    pub fn check_knobs(&mut self) -> Result<Checked, SteerError> {
        self.look_at_knobs(Vec::new())
    }

    /// Checks the knobs. `events` has changes of paths, which make a new split necessary.
    fn look_at_knobs(&mut self, mut events: Vec<SteeringEvent>) -> Result<Checked, SteerError> {
        let mut again = !events.is_empty();
        for path in &mut self.paths {
            let name = path.knob.queue.name.clone();
            let found = match path.knob.look() {
                // The next check reports the missing path.
                Err(error) if error.gone() && self.device.multipath.is_some() => continue,
                found => found.map_err(|e| gone(&name, e))?,
            };
            let Some(event) = found else { continue };
            if matches!(event, SteeringEvent::Scheduler { .. }) {
                path.knob.queue.method(self.asked)?;
                self.journal.correct(path.knob.original())?;
            }
            again |= !matches!(event, SteeringEvent::Dropped { .. });
            events.push(event);
        }
        if let Some(depth) = self.depth.filter(|_| again) {
            self.apply(depth)?;
        }
        Ok(Checked { in_force: self.in_force(), events })
    }

    /// Restores the original settings.
    pub fn release(mut self) -> Result<Restored, SteerError> {
        self.left = true;
        Ok(self.journal.put_back()?)
    }

    /// Leaves the settings in force. The journal stays, so that they can be restored later.
    pub fn leave(mut self) {
        self.left = true;
    }

    /// Bounds in force, as last read back.
    #[must_use]
    pub fn in_force(&self) -> BoundsInForce {
        let paths: Vec<PathInForce> = self
            .paths
            .iter()
            .map(|path| PathInForce {
                name: path.knob.queue.name.clone(),
                method: path.knob.method,
                depth: path.knob.in_force(),
                state: path.state,
            })
            .collect();
        let carrying = paths.iter().filter(|path| path.state == PathState::Active);
        BoundsInForce { depth: carrying.map(|path| path.depth).fold(0, u32::saturating_add), paths }
    }

    fn carrying(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter().filter(|path| path.state == PathState::Active)
    }

    /// Finds paths that came or went.
    fn look_at_paths(&mut self) -> Result<Vec<SteeringEvent>, SteerError> {
        let mut events = Vec::new();
        if self.device.multipath.is_some() {
            let now = paths(&self.device.dir())?;
            let mut kept = Vec::new();
            for path in std::mem::take(&mut self.paths) {
                if !path.knob.gone() && now.contains(&path.knob.queue) {
                    kept.push(path);
                } else {
                    events.push(SteeringEvent::Removed { path: path.knob.queue.name.clone() });
                }
            }
            self.paths = kept;
            for queue in now {
                if self.paths.iter().all(|path| path.knob.queue != queue) {
                    let path = self.path(&queue)?;
                    self.paths.push(path);
                    events.push(SteeringEvent::Added { path: queue.name.clone() });
                }
            }
        } else if self.paths.iter().any(|path| path.knob.gone()) {
            return Err(self.gone());
        }
        if self.paths.is_empty() { Err(self.gone()) } else { Ok(events) }
    }

    /// Finds paths whose state changed.
    fn look_at_states(&mut self) -> Vec<SteeringEvent> {
        let queues: Vec<Queue> = self.paths.iter().map(|path| path.knob.queue.clone()).collect();
        let mut events = Vec::new();
        for (path, state) in self.paths.iter_mut().zip(states(&self.device, &queues)) {
            if path.state != state {
                path.state = state;
                events.push(SteeringEvent::State { path: path.knob.queue.name.clone(), state });
            }
        }
        events
    }

    /// Sets each path's part. A path without IOs is held at its least depth, to bound IOs that reach it
    /// before the next check. Lower values are written first, so that the sum never exceeds both the old
    /// and the new depth.
    fn apply(&mut self, depth: u32) -> Result<(), SteerError> {
        let carrying = u32::try_from(self.carrying().count()).unwrap_or(u32::MAX);
        let mut rest = depth.checked_rem(carrying).unwrap_or(0);
        let each = depth.checked_div(carrying).unwrap_or(0);
        let mut parts: Vec<(usize, u32)> = Vec::new();
        for (index, path) in self.paths.iter().enumerate() {
            let part = match path.state {
                PathState::Active => each + u32::from(rest > 0),
                PathState::Standby | PathState::Failed => 0,
            };
            rest = rest.saturating_sub(u32::from(path.state == PathState::Active));
            parts.push((index, part));
        }
        parts.sort_by_key(|(index, part)| *part > self.paths[*index].knob.in_force());
        for (index, part) in parts {
            let path = &mut self.paths[index];
            // With another elevator the knob may belong to the whole adapter.
            path.knob.queue.method(self.asked)?;
            match path.knob.set(part) {
                Ok(_) => {}
                // A failed path may be about to go; the next check reports that.
                Err(error) if error.gone() && self.device.multipath.is_some() => {}
                Err(error) => return Err(gone(&self.device.name, error)),
            }
        }
        Ok(())
    }

    fn gone(&self) -> SteerError {
        SteerError::Gone(self.device.name.clone())
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        if !self.left {
            // Errors cannot be reported on drop. Settings that fail to be restored stay in the journal.
            let _ = self.journal.put_back();
        }
    }
}

/// An error for a missing file: its device no longer exists.
fn gone(name: &str, error: SysError) -> SteerError {
    if error.gone() { SteerError::Gone(name.to_owned()) } else { error.into() }
}
