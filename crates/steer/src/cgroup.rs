//! The VMs of a host, where each is a cgroup (v2): which they are, what they want of a device, and
//! how the host's window is split over them.
//!
//! | module | subject |
//! | --- | --- |
//! | [`pattern`] | which cgroups are VMs: paths, globs, what libvirt, Proxmox, Kubernetes and systemd make |
//! | [`vms`] | the VMs there are, and which cgroup belongs to which |
//! | [`demand`] | what each wants, from eBPF's groups or from `io.stat` |
//! | [`sharing`] | what each may have: caps, and weights where they hold |
//! | [`caps`] | `io.max` |
//! | [`bfq`] | weights under bfq |

pub mod bfq;
pub mod caps;
pub mod demand;
mod files;
mod level;
pub mod pattern;
pub mod sharing;
pub mod vms;

pub use demand::{Demand, Demands, Whole};
pub use pattern::{Pattern, PatternError};
pub use sharing::{Allowance, Means, ShareError, Sharing};
pub use vms::{Change, NoVms, Vm, VmKey, VmPattern, Vms};
