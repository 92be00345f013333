#![forbid(unsafe_code)]
//! Simulation of scenarios in virtual time: discrete events, one seed, results equal to the bit.
//!
//! Everything but the clients is production code. Hosts are [`parda_control::Host`], or
//! [`parda_control::Account`] for a steered device; [`parda_exchange::Peers`] decides which hosts
//! count. The exchange has its production cost: in each period each host reads the slots in use and
//! writes its own, as IOs of the array. `docs/simulator.md` lists what is modelled and what is not.
//!
//! | file | subject |
//! | --- | --- |
//! | `run` | a scenario from its first event to its answer |
//! | `cluster` | the array, the hosts, and what happens between them |
//! | `agent` | one host's agent: its law, its VMs' IOs, its part in the exchange |
//! | `enforcer` | what holds its IOs back: an agent's, or a kernel's |
//! | `client` | what a VM does to its disk |
//! | `demand` | and when: its loop, its bursts, its books |
//! | `exchange` | the slots, and a host's visits to them |
//! | `events` | what happens next |
//! | `flights` | IOs at the array, by their tags |
//! | `check` | what must hold after every event |
//! | `limited` | what a VM sent against its limit |
//! | `meter` | what is counted in a phase |
//! | `latencies` | latencies, counted by size |
//! | `error` | why a run has no answer |
//! | [`probe`] | the array model as the target of a probe |
//! | `study` | several runs, and the one answer of all of them |
//! | `series` | windows, latencies and throughput over time |

mod agent;
mod check;
mod client;
mod cluster;
mod demand;
mod drawn;
mod enforcer;
mod error;
mod events;
mod exchange;
mod flights;
mod kernel;
mod latencies;
mod limited;
mod meter;
pub mod probe;
mod run;
mod series;
mod study;

pub use check::Violation;
pub use client::VmClient;
pub use cluster::Liar;
pub use error::SimError;
pub use run::{KeptRuns, RunOutcome, SimProgress, run, run_beside};
pub use series::{HostSeries, RunSeries};
pub use study::{StudyOutcome, run_all};
