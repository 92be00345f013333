#![forbid(unsafe_code)]
//! Targets and reports of `parda probe`: all of a probe that the agent does without.
//!
//! The core is in `parda-probe`, which the agent links as well; this crate brings fio and charts.

pub mod report;
mod targets;

pub use targets::{Target, TargetError, Writes, workload, writable_export};
