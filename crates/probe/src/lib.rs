#![forbid(unsafe_code)]
//! The core of a probe: loads in, one document out.
//!
//! A [`Probe`] runs the loads of a [`Plan`] one after another through a [`Driver`]. Each [`Recording`] becomes a [`Point`]
//! once its warm-up is cut. An analysis of all points gives the [`Findings`] of one [`ProbeDocument`]. `parda probe --json`
//! writes this document; pages, comparisons and the agent read it.
//!
//! Drivers (fio) and reports for people are in `parda-probe-tools`. The agent does without these: it has a driver of its own for volumes
//! that are idle.

pub mod analysis;
mod document;
mod driver;
mod findings;
mod load;
mod plan;
mod point;
mod reasons;
mod recording;
mod run;
pub mod sample;
mod steady;

pub use document::{DocumentError, End, FORMAT, Kind, ProbeDocument, TargetInfo};
pub use driver::{Allowance, Driven, Driver, Moment, Watch};
pub use findings::{
    Advice, Asymmetry, Choice, Cost, Curve, Estimate, Findings, Knee, Noise, SizeLine,
};
pub use load::{Load, Mix, Purpose};
pub use plan::{Effort, Plan, Wishes};
pub use point::{Bucket, Measured, Point, Slice};
pub use reasons::{Evidence, Growth, LeftOut, Suspect, Suspicion, Unknown, Why};
pub use recording::{Bin, Counter, Recording, Snapshot, Totals};
pub use run::{LEAST_PER_LOAD_S, Probe, Progress, Watcher};
pub use steady::Steadiness;
