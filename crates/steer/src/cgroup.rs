//! VMs of a host as cgroups (v2): which cgroups are VMs, their demand of a device, and the split of
//! the host's window among them.
//!
//! | module | subject |
//! | --- | --- |
//! | [`pattern`] | which cgroups are VMs: paths, globs, names of libvirt, Proxmox, Kubernetes and
//! systemd |
//! | [`vms`] | the VMs that exist, and the cgroups that belong to each |
//! | [`demand`] | demand of each VM, from eBPF's groups or from `io.stat` |
//! | [`sharing`] | limits of each VM: caps, and weights where they hold |
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

pub use caps::HeldBy;
pub use demand::{Begun, Demand, Demands};
pub use files::{ChangedSetting, ShareError};
pub(crate) use files::{TAKE_BACK_IO, io_is_used};
pub use level::{Want, level};
pub use pattern::{Pattern, glob};
pub use sharing::{Allowance, Means, Sharing};
pub use vms::{Change, NoVms, Vm, VmKey, VmPattern, Vms};
