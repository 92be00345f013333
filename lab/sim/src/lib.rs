#![forbid(unsafe_code)]
//! Scenarios in virtual time: discrete events, one seed, and the same answer to the bit each time.
//!
//! Everything but the clients is what runs elsewhere, too: hosts are [`parda_control::Host`] (or, for
//! [`parda_exchange::Peers`] to say. The exchange costs what it costs in production: each period
//! of each host is one read of the slots in use and one write of its own, as IOs of the array.
//! `docs/simulator.md` says what is modelled, and what is not.
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
pub use client::Client;
pub use cluster::Liar;
pub use error::SimError;
pub use run::{Keep, Progress, RunOutcome, run, run_beside};
pub use series::{HostSeries, Series};
pub use study::{StudyOutcome, run_all};
