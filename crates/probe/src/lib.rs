#![forbid(unsafe_code)]
//! Know the array: a device's latency against its load, its knee, and the threshold to set.
//!
//! A probe drives a target through loads and keeps, for each, what was measured ([`Point`]); all
//! points of a run and what they say together are one [`Document`], which is what `parda probe
//! --json` writes and what everything else reads: tables, pages, comparisons, the agent.

mod about;
pub mod analysis;
mod compare;
mod document;
mod driver;
mod experiment;
mod findings;
mod fio;
mod guard;
mod load;
mod model;
mod plan;
mod point;
mod recording;
pub mod report;
mod run;
mod sample;
mod steady;
mod target;

pub use compare::{Comparison, Curves, Pair, Run, SMALL, Side, Verdict};
pub use document::{Document, DocumentError, End, FORMAT, Kind, TargetInfo};
pub use experiment::{Experiment, UnknownExperiment};
pub use findings::{
    Advice, Asymmetry, Curve, Estimate, Findings, Knee, Noise, SizeLine, Suspicion,
};
pub use fio::FioError;
pub use guard::{Refusal, Why, Writes};
pub use load::{Load, Mix, Purpose};
pub use model::{Model, ModelError};
pub use plan::{Effort, Plan, Wishes};
pub use point::{Bucket, Measured, Point, Slice};
pub use run::{LEAST_PER_LOAD_S, Progress, Watcher};
pub use target::{Target, TargetError, writable_export};
