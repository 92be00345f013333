#![forbid(unsafe_code)]
//! The kernel's own queues as the window gate, for hosts whose VMs open a shared device directly:
//! what a block device is, how long its IOs take, how many it may have outstanding, and which VM of
//! the host they are from. Nothing here decides anything: the law does (`parda-control`), and the
//! agent asks it.
//!
//! | module | subject |
//! | --- | --- |
//! | [`number`] | device numbers |
//! | [`device`] | from a path to the queues to steer; [`refusal`]: what cannot be, and why |
//! | [`steering`] | a device's queue depth: taken, set, looked after, put back |
//! | [`show`] | what it is now, for people |
//! | [`knob`] | the one number of one queue that bounds it |
//! | [`multipath`] | which paths carry IOs |
//! | [`cgroup`] | the VMs of the host as cgroups, and their shares |
//! | [`journal`] | what was there before, on disk before anything is written |
//! | [`measure`] | device latency, outstanding IOs, demand of each cgroup |

pub mod cgroup;
pub mod device;
pub mod journal;
pub mod knob;
pub mod measure;
pub mod multipath;
mod nr_requests;
pub mod number;
pub mod refusal;
pub mod show;
pub mod steering;
mod sysfs;

pub use device::Device;
pub use journal::Journal;
pub use number::DevNum;
pub use refusal::Refusal;
pub use steering::Steering;
pub use sysfs::SysError;
