#![forbid(unsafe_code)]
//! The scenario language: a cluster, its events, its measured phases and its expectations, in one TOML file. The crate also
//! defines the shape of a run's answer. `parda-lab lab` and `parda-lab sim` share both. A VM's use of its disk is a load of
//! [`parda_workload`]. `docs/scenarios.md` is the manual.
//!
//! | module | subject |
//! | --- | --- |
//! | [`scenario`] | what a scenario is; [`Scenario::parse`] reads one |
//! | [`array`](mod@array) | the shared array, as a scenario describes it |
//! | [`answer`] | what a run answers |
//! | [`count`] | what an engine counts, and what that answers |
//! | [`metric`] | paths that name one number of an answer |
//! | [`exchange`] | how well hosts hear one another |
//! | [`client`] | a VM as a client to export to fio |
//! | [`expectation`] | what is expected of such a number |
//! | [`set`] | values in place of those in the file |
//! | [`study`] | one scenario, or several variants of it in one answer |
//! | [`plot`](mod@plot) | what is to be drawn of it |
//! | [`shares`] | saturation, Jain's index, and how far everybody is off their share |

pub mod answer;
pub mod array;
mod check;
pub mod client;
pub mod count;
mod events;
pub mod exchange;
pub mod expectation;
mod file;
pub mod guest;
mod many;
pub mod metric;
mod moves;
pub mod plot;
mod run;
pub mod scenario;
pub mod set;
pub mod shares;
pub mod study;
mod sweep;
mod variant_name;
mod vary;

pub use answer::{Distribution, Engine, HostAnswer, PhaseAnswer, RunAnswer, Total, VmAnswer};
pub use client::client_seed;
pub use expectation::Verdict;
pub use guest::{GuestDisk, GuestSettings};
pub use scenario::{
    Action, ClusterState, Host, HostIndex, Phase, Scenario, TimelineEvent, Vm, VmIndex,
};
pub use study::{Run, Study};
