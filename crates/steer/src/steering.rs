//! A device's queues in our hands: taken, set, looked after, put back.

use std::fmt;

use crate::device::{Device, Queue, paths};
use crate::journal::{Held, Journal, JournalError, Restored};
use crate::knob::{Found, Knob, Method};
use crate::multipath::{PathState, states};
use crate::refusal::Why;
use crate::sysfs::SysError;

/// A device whose queue depth is ours to set. Dropped, it puts back what was there before.
#[derive(Debug)]
pub struct Steering {
    device: Device,
    asked: Option<Method>,
    journal: Held,
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

/// What depths a device can be held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The least, in IOs in flight: it cannot go lower.
    pub least: u32,
    /// The most.
    pub most: u32,
    /// It may be changed several times a second: a change does not wait for the queue to drain.
    pub cheap: bool,
}

/// What bounds a device now, as read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForce {
    /// IOs that it can have in flight, over the paths that carry any.
    pub depth: u32,
    /// Each path's part.
    pub paths: Vec<PathInForce>,
}

/// What bounds one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathInForce {
    /// As the kernel calls it.
    pub name: String,
    /// What is set on it.
    pub method: Method,
    /// IOs that it can have in flight.
    pub depth: u32,
    /// Whether it carries any.
    pub state: PathState,
}

/// What was found at a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// What bounds the device now, after what was found has been put right.
    pub in_force: InForce,
    /// What has happened since the look before.
    pub events: Vec<Event>,
}

impl Checked {
    /// The kernel lowered the depth by itself: the array said that it is full. That is congestion.
    #[must_use]
    pub fn dropped(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::Dropped { .. }))
    }
}

/// What can happen to a knob while it is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The kernel lowered it (QUEUE_FULL). It stays so until the next [`Steering::set`].
    Dropped {
        /// Which path.
        path: String,
        /// From.
        from: u32,
        /// To.
        to: u32,
    },
    /// Somebody else wrote it. It has been written again.
    Changed {
        /// Which path.
        path: String,
        /// What had been set.
        set: u32,
        /// What was found.
        found: u32,
    },
    /// Somebody chose another elevator, which undid the bound. It has been written again.
    Scheduler {
        /// Which path.
        path: String,
        /// The elevator before.
        was: String,
        /// The elevator now.
        is: String,
    },
    /// A path carries IOs now, or does not any more. The depth has been split again.
    State {
        /// Which path.
        path: String,
        /// What it does now.
        state: PathState,
    },
    /// A path has come.
    Added {
        /// Which path.
        path: String,
    },
    /// A path is gone for good.
    Removed {
        /// Which path.
        path: String,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Dropped { path, from, to } => {
                write!(
                    f,
                    "{path}: the kernel lowered its depth from {from} to {to}: the array was full"
                )
            }
            Event::Changed { path, set, found } => {
                write!(f, "{path}: somebody changed its depth from {set} to {found}; set again")
            }
            Event::Scheduler { path, was, is } => {
                write!(
                    f,
                    "{path}: somebody changed its elevator from {was} to {is}; depth set again"
                )
            }
            Event::State { path, state } => write!(f, "{path}: is {state} now; depth split again"),
            Event::Added { path } => write!(f, "{path}: is a new path; depth split again"),
            Event::Removed { path } => write!(f, "{path}: is gone; depth split again"),
        }
    }
}

/// Why a device cannot be steered, or not any more.
#[derive(Debug, thiserror::Error)]
pub enum SteerError {
    /// It is of no kind that can be.
    #[error("{0}")]
    Refused(#[from] Why),
    /// The device is not there any more.
    #[error("{0} is gone")]
    Gone(String),
    /// The kernel does not let it.
    #[error(transparent)]
    Sys(#[from] SysError),
    /// What was there before cannot be kept, or put back.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl Steering {
    /// Takes hold of a device. What a process that died left set is put back first; what is there
    /// now goes to the journal. Nothing is set yet.
    pub fn take(
        device: &Device,
        method: Option<Method>,
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

    /// Takes hold of one queue.
    fn path(&mut self, queue: &Queue) -> Result<Path, SteerError> {
        let method = queue.method(self.asked)?;
        let knob = Knob::new(queue.clone(), method)?;
        knob.try_open()?;
        self.journal.note(&[knob.original()])?;
        Ok(Path { knob, state: PathState::Active })
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// What depths can be set, with the paths that carry IOs now.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        let each = || self.carrying().map(|path| path.knob.bounds());
        Bounds {
            least: each().map(|(least, _)| least).fold(0, u32::saturating_add),
            most: each().map(|(_, most)| most).fold(0, u32::saturating_add),
            cheap: self.paths.iter().all(|path| path.knob.method == Method::QueueDepth),
        }
    }

    /// Bounds what is in flight at `depth`, within [`Steering::bounds`]: split over the paths that
    /// carry IOs, rounded down to what the knobs can express, and read back.
    pub fn set(&mut self, depth: u32) -> Result<InForce, SteerError> {
        self.depth = Some(depth);
        self.apply(depth)?;
        Ok(self.in_force())
    }

    /// Looks whether all is still as it was set, and puts right what is not. Once a tick.
    pub fn check(&mut self) -> Result<Checked, SteerError> {
        let mut moved = self.look_at_paths()?;
        moved.extend(self.look_at_states());
        self.look_at_knobs(moved)
    }

    /// The same of what is set alone: for looks between two ticks, as to ask which paths carry IOs
    /// takes a process.
    pub fn check_knobs(&mut self) -> Result<Checked, SteerError> {
        self.look_at_knobs(Vec::new())
    }

    /// Looks at the knobs, after `events`, which ask for another split.
    fn look_at_knobs(&mut self, mut events: Vec<Event>) -> Result<Checked, SteerError> {
        let mut again = !events.is_empty();
        for path in &mut self.paths {
            let name = path.knob.queue.name.clone();
            let found = match path.knob.look() {
                // The next look tells that the path went.
                Err(error) if error.gone() && self.device.multipath.is_some() => continue,
                found => found.map_err(|e| gone(&name, e))?,
            };
            let event = match found {
                Found::Same => continue,
                Found::Dropped { from, to } => Event::Dropped { path: name, from, to },
                Found::Changed { set, found } => Event::Changed { path: name, set, found },
                Found::Scheduler { was, is } => {
                    path.knob.queue.method(self.asked)?;
                    self.journal.correct(path.knob.original())?;
                    Event::Scheduler { path: name, was, is }
                }
            };
            again |= !matches!(event, Event::Dropped { .. });
            events.push(event);
        }
        if let Some(depth) = self.depth.filter(|_| again) {
            self.apply(depth)?;
        }
        Ok(Checked { in_force: self.in_force(), events })
    }

    /// Puts back what was there before.
    pub fn release(mut self) -> Result<Restored, SteerError> {
        self.left = true;
        Ok(self.journal.put_back()?)
    }

    /// Leaves what is set in force. The journal stays, for whoever restores it.
    pub fn leave(mut self) {
        self.left = true;
    }

    /// What bounds the device, as last read back.
    #[must_use]
    pub fn in_force(&self) -> InForce {
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
        InForce { depth: carrying.map(|path| path.depth).fold(0, u32::saturating_add), paths }
    }

    fn carrying(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter().filter(|path| path.state == PathState::Active)
    }

    /// Paths that came or went.
    fn look_at_paths(&mut self) -> Result<Vec<Event>, SteerError> {
        let mut events = Vec::new();
        if self.device.multipath.is_some() {
            let now = paths(&self.device.dir())?;
            let mut kept = Vec::new();
            for path in std::mem::take(&mut self.paths) {
                if !path.knob.gone() && now.contains(&path.knob.queue) {
                    kept.push(path);
                } else {
                    events.push(Event::Removed { path: path.knob.queue.name.clone() });
                }
            }
            self.paths = kept;
            for queue in now {
                if self.paths.iter().all(|path| path.knob.queue != queue) {
                    let path = self.path(&queue)?;
                    self.paths.push(path);
                    events.push(Event::Added { path: queue.name.clone() });
                }
            }
        } else if self.paths.iter().any(|path| path.knob.gone()) {
            return Err(self.gone());
        }
        if self.paths.is_empty() { Err(self.gone()) } else { Ok(events) }
    }

    /// Which paths carry IOs.
    fn look_at_states(&mut self) -> Vec<Event> {
        let queues: Vec<Queue> = self.paths.iter().map(|path| path.knob.queue.clone()).collect();
        let mut events = Vec::new();
        for (path, state) in self.paths.iter_mut().zip(states(&self.device, &queues)) {
            if path.state != state {
                path.state = state;
                events.push(Event::State { path: path.knob.queue.name.clone(), state });
            }
        }
        events
    }

    /// Writes each path's part. A path that carries nothing is held at its least, so that what
    /// falls to it before the next look is little. First what falls, then what rises, so that the
    /// sum is at no time above both the old and the new.
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
            // Another elevator may have made the knob one of the whole adapter.
            path.knob.queue.method(self.asked)?;
            match path.knob.set(part) {
                Ok(_) => {}
                // A failed path may be on its way out; the next look tells.
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
            // Nobody is left to tell. What fails stays in the journal.
            let _ = self.journal.put_back();
        }
    }
}

/// A file that went away took its device with it.
fn gone(name: &str, error: SysError) -> SteerError {
    if error.gone() { SteerError::Gone(name.to_owned()) } else { error.into() }
}
