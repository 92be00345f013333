// `measure::layout` alone has unsafe code: `aya::Pod` for the structures of the eBPF maps.
#![deny(unsafe_code)]
//! The kernel's own queues as the window gate, for hosts whose VMs open a shared device directly. The crate has devices, their latency,
//! their bound on outstanding IOs, and the VMs that IOs come from. For disks that no queue of the kernel carries, it has QEMU's throttles.
//! Nothing here decides: the law (`parda-control`) does, and the agent connects the two.
//!
//! | module | subject |
//! | --- | --- |
//! | [`number`] | device numbers |
//! | [`device`] | from a path to the queues to steer; [`refusal`]: devices that cannot be steered |
//! | [`steering`] | a device's queue depth: held, set, checked, restored |
//! | [`show`] | a device's queues, for people |
//! | [`knob`] | the number that bounds one queue |
//! | [`multipath`] | which paths carry IOs |
//! | [`cgroup`] | the VMs of the host as cgroups, and their shares |
//! | [`qemu`] | disks that QEMU opens itself, and their throttles |
//! | [`journal`] | original settings, on disk before any is changed |
//! | [`measure`] | device latency, outstanding IOs, demand of each cgroup |

pub mod cgroup;
pub mod device;
mod event;
pub mod journal;
pub mod knob;
pub mod measure;
pub mod multipath;
mod nr_requests;
pub mod number;
pub mod qemu;
pub mod refusal;
pub mod show;
pub mod steering;
mod sysfs;

pub use device::Device;
pub use journal::Journal;
pub use number::DevNum;
pub use refusal::SteerRefusal;
pub use steering::Steering;
pub use sysfs::SysError;
