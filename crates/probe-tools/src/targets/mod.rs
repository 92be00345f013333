//! Targets of a probe: files, block devices and NBD exports by fio, and the array model in virtual time.
//!
//! A [`Target`] is only read, unless the user allows [`Writes`] and the target passes the checks against overwriting data.

mod about;
mod fio;
mod guard;
mod model;
mod target;

pub use guard::Writes;
pub use model::workload;
pub use target::{Target, TargetError, writable_export};
