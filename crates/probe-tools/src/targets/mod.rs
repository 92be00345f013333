//! Targets of a probe: files, block devices and NBD exports, driven by fio.
//!
//! A [`Target`] is only read, unless the user allows [`Writes`] and the target passes the checks against overwriting data.

mod about;
mod fio;
mod guard;
mod target;

pub use fio::workload;
pub use guard::Writes;
pub use target::{Target, TargetError, writable_export};
