//! A load generator for NBD servers that costs little itself, and one for servers of vhost-user ([`run_guest`]).
//!
//! Every connection keeps a fixed number of requests outstanding. All replies that one receive
//! brings are taken together, and the requests that follow them leave in one send: at depth 64 an
//! IO costs the client a few hundred nanoseconds besides the copying of its data. One thread drives
//! all connections unless told otherwise.
//!
//! ```no_run
//! use parda_bench::{BenchPlan, Operation};
//!
//! let plan = BenchPlan {
//!     depth: 16,
//!     ..BenchPlan::new(vec!["nbd+unix:///vm1?socket=/run/parda/a.sock".parse()?], Operation::RandomRead)
//! };
//! let measured = parda_bench::run(&plan)?;
//! println!("{:.0} IOPS", measured.iops());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`driver`] is a guest for tests of servers as well. `unsafe` is found there only, once.

mod buffered_socket;
mod client;
mod cpu;
pub mod driver;
mod guest;
mod measured;
mod pattern;
mod plan;
mod run;

pub use guest::run_guest;
pub use measured::{BenchSummary, LoadMeasured};
pub use plan::{BenchPlan, Operation, PlanError};
pub use run::{BenchError, run};
