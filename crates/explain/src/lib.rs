#![forbid(unsafe_code)]
//! The explanation of one VM's performance, from one view of its volume. Parts of its latency, its entitlement and its use,
//! the other VMs and hosts, and its limit. Predictions for other shares, another limit or another threshold.
//!
//! Findings are values with numbers; `parda explain` makes sentences of them. There is no IO and no clock: the
//! same view gives the same explanation.
//!
//! | file | subject |
//! | --- | --- |
//! | `view` | the input: measurements of a volume over an interval |
//! | `limit` | the reason why a VM does no more IOs |
//! | `spent` | the parts of a VM's latency, by cause |
//! | `level` | slots of all VMs at a window per share |
//! | `capacity` | the array's throughput over its latency |
//! | `predict` | IO/s and latency of a VM after a change |
//! | `explanation` | the output: all findings for one VM |
//! | `score` | a prediction compared with later measurements |

mod capacity;
mod explanation;
mod level;
mod limit;
mod predict;
mod score;
mod spent;
mod view;

pub use capacity::Capacity;
pub use explanation::{Entitled, Explanation, Other, Unknown, Who};
pub use predict::{PredictedRates, Prediction, Unmet, Unpredicted, WhatIf, predict};
pub use score::{Record, Score, score};
pub use spent::{Cause, Spent};
pub use view::{
    ExplainedPeer, ExplainedVm, ExplainedVolume, HeldParts, Holding, VmLimit, VmTenant, spread,
};
