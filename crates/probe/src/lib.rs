#![forbid(unsafe_code)]
//! The core of a probe: loads in, one document out.
//!
//! A [`Probe`] runs the loads of a [`ProbePlan`] one after another through a [`LoadDriver`]. Each [`Recording`] becomes a [`Point`]
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

pub use document::{DocumentError, FORMAT, ProbeDocument, ProbeEnd, TargetInfo, TargetKind};
pub use driver::{Driven, LoadDriver, Moment, TimeAllowance, Watch};
pub use findings::{
    Advice, Asymmetry, Curve, Findings, IntervalEstimate, KindCost, Knee, Noise, SizeLine,
    ThresholdChoice,
};
pub use load::{LoadMix, ProbeLoad, Purpose};
pub use plan::{Effort, ProbePlan, Wishes};
pub use point::{Bucket, KindMeasured, Point, TimeSlice};
pub use reasons::{AdviceReason, Evidence, Growth, LeftOut, OpenQuestion, Suspect, Suspicion};
pub use recording::{Bin, Counter, KindTotals, LoadSnapshot, Recording};
pub use run::{LEAST_PER_LOAD_S, Probe, ProbeProgress, Watcher};
pub use steady::Steadiness;
