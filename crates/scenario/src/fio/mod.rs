//! Workloads in fio's words: as jobs that a fio runs, as job files.
//!
//! | module | subject |
//! | --- | --- |
//! | [`job`] | a workload as a job: arguments of a command, a section of a job file |

pub mod job;

pub use job::{Job, Target, Unsayable};
