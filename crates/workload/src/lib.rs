#![forbid(unsafe_code)]
//! The IOs of a client, such as a VM, on its disk: their sizes, offsets and times. The simulator, the laboratory and the
//! probe draw on the same workloads. `docs/workloads.md` is the manual.
//!
//! | module | subject |
//! | --- | --- |
//! | [`drawn`] | workloads whose IOs are drawn by chance |
//! | [`trace`] | recorded IOs, and their replay |
//! | [`load`] | the load of a client: one of the two |
//! | [`keys`] | a load as TOML, key by key |
//! | [`reader`] | from keys to a checked load |
//! | [`fio`] | a workload as a job of fio |

pub mod drawn;
pub mod fio;
pub mod keys;
pub mod load;
pub mod reader;
pub mod trace;

pub use drawn::{ArrivalRule, Bursts, Hot, OPEN_LOOP_DEPTH, SizePart, Workload};
pub use load::ClientLoad;
pub use reader::{LoadReader, Traces};
