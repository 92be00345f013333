#![forbid(unsafe_code)]
//! The scenario language: a cluster, what happens to it, what is measured and what is expected, in
//! one TOML file; and the shape of what a run answers. `parda lab` and `parda sim` share both.
//! `docs/scenarios.md` is the manual.
//!
//! | module | subject |
//! | --- | --- |
//! | [`scenario`] | what a scenario is; [`Scenario::parse`] reads one |
//! | [`array`](mod@array) | the shared array, as a scenario describes it |
//! | [`amount`] | numbers and percentages |
//! | [`answer`] | what a run answers |
//! | [`count`] | what an engine counts, and what that answers |
//! | [`metric`] | paths that name one number of an answer |
//! | [`exchange`] | how well hosts hear one another |
//! | [`fio`] | workloads in fio's words |
//! | [`expectation`] | what is expected of such a number |
//! | [`set`] | values in place of those in the file |
//! | [`spell`] | a workload as a scenario writes it |
//! | [`study`] | one scenario, or several variants of it in one answer |
//! | [`plot`](mod@plot) | what is to be drawn of it |
//! | [`shares`] | saturation, Jain's index, and how far everybody is off their share |
//! | [`table`](mod@table) | an answer for people |
//! | [`words`](mod@words) | and in words, for newcomers |
//! | [`load`] | what a VM does to its disk, drawn by chance or replayed |
//! | [`workload`] | what is drawn by chance |
//! | [`trace`] | what is replayed |

pub mod amount;
pub mod answer;
pub mod array;
mod check;
pub mod count;
mod events;
pub mod exchange;
pub mod expectation;
mod file;
pub mod fio;
pub mod guest;
pub mod load;
mod many;
pub mod metric;
pub mod plot;
mod run;
pub mod scenario;
pub mod set;
pub mod shares;
mod sources;
pub mod spell;
pub mod study;
mod sweep;
pub mod table;
pub mod trace;
mod variant_name;
mod variants;
mod vary;
pub mod words;
pub mod workload;

pub use answer::{Answer, Distribution, Engine, HostAnswer, PhaseAnswer, Total, VmAnswer};
pub use expectation::Verdict;
pub use guest::{GuestDisk, GuestSettings, HostKind};
pub use load::Load;
pub use scenario::{Action, Host, HostId, Phase, Scenario, State, TimelineEvent, Vm, VmId};
pub use study::{Run, Study};
pub use table::table;
pub use words::words;
pub use workload::{Demand, Workload};
