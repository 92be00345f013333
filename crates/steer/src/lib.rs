#![forbid(unsafe_code)]
//! The kernel's own queues as the window gate, for hosts whose VMs open a shared device directly:
//! what a block device is, how long its IOs take, how many it may have outstanding, and which VM of
//! the host they are from. Nothing here decides anything: the law does (`parda-control`), and the
//! agent asks it.
//!
//! | module | subject |
//! | --- | --- |
//! | [`number`] | device numbers |
//! | [`measure`] | device latency, outstanding IOs, demand of each cgroup |

pub mod measure;
pub mod number;

pub use number::DevNum;
