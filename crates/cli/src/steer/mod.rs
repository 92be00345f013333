//! `parda steer`: the kernel's own queues, looked at and set by hand.

mod arguments;
mod knobs;
mod reading;
mod set;
mod watch;

use clap::Subcommand;
use parda_terminal::Failure;

/// Subcommands on the kernel's own queues: what they do, and their depth set by hand.
#[derive(Subcommand)]
pub(crate) enum Steer {
    /// Show what a device does, each second: latencies, sizes, IOs outstanding and pending
    Watch(watch::Watch),
    /// Show a device's queue depth, and how it can be set
    Show(knobs::Show),
    /// Set a device's queue depth by hand, without the control law
    Set(set::Set),
    /// Put back the earlier settings of one device, or of all
    Restore(knobs::Restore),
}

impl Steer {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        match self {
            Steer::Watch(watch) => watch.run(),
            Steer::Show(show) => show.run(),
            Steer::Set(set) => set.run(),
            Steer::Restore(restore) => restore.run(),
        }
    }
}
