//! Workloads as fio jobs, and fio's job files as workloads.
//!
//! | module | subject |
//! | --- | --- |
//! | [`job`] | a workload as a job: arguments of a command, a section of a job file |
//! | [`export`] | clients as a job file |
//! | [`import`](mod@import) | a job of a job file as a workload |

pub mod export;
mod file;
pub mod import;
pub mod job;
mod known;
mod unit;

pub use export::{ExportedClient, iolog, job_file, log_name, sections};
pub use import::{Imported, import, job_names};
pub use job::{Job, JobTarget, UnsupportedByFio};
