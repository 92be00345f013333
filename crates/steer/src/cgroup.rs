//! VMs of a host as cgroups (v2): which cgroups are VMs, their demand of a device, and the split of
//! the window.
//!
//! | module | subject |
//! | --- | --- |
//! | [`pattern`] | which cgroups are VMs: paths, globs, names of libvirt, Proxmox, Kubernetes and
//! systemd |
//! | `platform` | cgroups that these make, by their paths |
//! | `domain` | whole names of libvirt's domains |
//! | `walk` | a look at all cgroups: VMs, and what no pattern matches |
//! | [`vms`] | the VMs that exist, and the cgroups that belong to each |
//! | [`demand`] | demand of each VM, from eBPF's groups or from `io.stat` |
//! | [`sharing`] | limits of each VM: caps, and weights where they hold |
//! | [`caps`] | `io.max` |
//! | [`bfq`] | weights under bfq |

pub mod bfq;
pub mod caps;
pub mod demand;
mod domain;
mod files;
mod level;
pub mod pattern;
mod platform;
pub mod sharing;
pub mod vms;
mod walk;

pub use caps::CapReason;
pub use demand::{Begun, Demands, IoDemand};
pub use files::{ForeignSetting, ShareError};
pub(crate) use files::{TAKE_BACK_IO, io_is_used};
pub use level::{Want, level};
pub use pattern::{Pattern, glob};
pub use sharing::{HostAllowance, Means, Sharing};
pub use vms::{CgroupVm, CgroupVms, NoVms, Unused, VmKey, VmPattern, VmsChange};
pub use walk::Stranger;
