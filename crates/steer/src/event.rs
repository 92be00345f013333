//! Events of a steered device.

use crate::multipath::PathState;

/// A change of a knob or path while a device is held.
#[derive(Clone, Debug, PartialEq, Eq, strum::Display)]
pub enum SteeringEvent {
    /// The kernel lowered the depth (QUEUE_FULL). The depth stays so until the next
    /// [`Steering::set`](crate::steering::Steering::set).
    #[strum(
        to_string = "{path}: the kernel lowered its depth from {from} to {to}: the array was full"
    )]
    Dropped {
        /// Kernel name of the path.
        path: String,
        /// Depth before the drop.
        from: u32,
        /// Depth after the drop.
        to: u32,
    },
    /// Another process wrote the knob, and the depth was set again.
    #[strum(to_string = "{path}: somebody changed its depth from {set} to {found}; set again")]
    Changed {
        /// Kernel name of the path.
        path: String,
        /// Value that had been set.
        set: u32,
        /// Value that was found.
        found: u32,
    },
    /// Another process chose another elevator, which undid the bound. The bound was set again.
    #[strum(
        to_string = "{path}: somebody changed its elevator from {was} to {is}; depth set again"
    )]
    Scheduler {
        /// Kernel name of the path.
        path: String,
        /// The elevator before the change.
        was: String,
        /// The elevator after the change.
        is: String,
    },
    /// A path began or ceased to carry IOs. The depth was split anew.
    #[strum(to_string = "{path}: is {state} now; depth split again")]
    State {
        /// Kernel name of the path.
        path: String,
        /// State of the path from now on.
        state: PathState,
    },
    /// A path was added to the device.
    #[strum(to_string = "{path}: is a new path; depth split again")]
    Added {
        /// Kernel name of the path.
        path: String,
    },
    /// A path was removed for good.
    #[strum(to_string = "{path}: is gone; depth split again")]
    Removed {
        /// Kernel name of the path.
        path: String,
    },
}
