//! Events of a steered device.

use std::fmt;

use crate::multipath::PathState;

/// A change of a knob or path while a device is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SteeringEvent {
    /// The kernel lowered the depth (QUEUE_FULL). It stays so until the next [`Steering::set`](crate::steering::Steering::set).
    Dropped {
        /// Kernel name of the path.
        path: String,
        /// Depth before the drop.
        from: u32,
        /// Depth after the drop.
        to: u32,
    },
    /// Another process wrote the knob. It was set again.
    Changed {
        /// Kernel name of the path.
        path: String,
        /// Value that had been set.
        set: u32,
        /// Value that was found.
        found: u32,
    },
    /// Another process chose another elevator, which undid the bound. It was set again.
    Scheduler {
        /// Kernel name of the path.
        path: String,
        /// The elevator before the change.
        was: String,
        /// The elevator after the change.
        is: String,
    },
    /// A path began or ceased to carry IOs. The depth was split anew.
    State {
        /// Kernel name of the path.
        path: String,
        /// State of the path from now on.
        state: PathState,
    },
    /// A path was added to the device.
    Added {
        /// Kernel name of the path.
        path: String,
    },
    /// A path was removed for good.
    Removed {
        /// Kernel name of the path.
        path: String,
    },
}

impl fmt::Display for SteeringEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SteeringEvent::Dropped { path, from, to } => {
                write!(
                    f,
                    "{path}: the kernel lowered its depth from {from} to {to}: the array was full"
                )
            }
            SteeringEvent::Changed { path, set, found } => {
                write!(f, "{path}: somebody changed its depth from {set} to {found}; set again")
            }
            SteeringEvent::Scheduler { path, was, is } => {
                write!(
                    f,
                    "{path}: somebody changed its elevator from {was} to {is}; depth set again"
                )
            }
            SteeringEvent::State { path, state } => {
                write!(f, "{path}: is {state} now; depth split again")
            }
            SteeringEvent::Added { path } => write!(f, "{path}: is a new path; depth split again"),
            SteeringEvent::Removed { path } => write!(f, "{path}: is gone; depth split again"),
        }
    }
}
