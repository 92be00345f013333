#![forbid(unsafe_code)]
//! An explanation of one VM, from one view of its volume: where the time of its IOs went, what the VM was
//! entitled to and had, who had the rest, what limits it, and what other shares or another threshold would give.
//!
//! Findings are values with numbers; the command line makes sentences of them. No IO and no clock: the
//! same view gives the same explanation.
//!
//! | file | subject |
//! | --- | --- |
//! | `view` | what is known of a volume over an interval |
//! | `limit` | what keeps a VM from doing more IOs |
//! | `spent` | where the time of its IOs went |
//! | `level` | slots of all VMs at one window per share |
//! | `capacity` | throughput of the array by its latency |
//! | `predict` | IOs and latency after a change |
//! | `explanation` | all of that for one VM |
//! | `score` | a prediction beside what then happened |

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
pub use limit::{HELD, Limit};
pub use predict::{Change, Outcome, Prediction, predict};
pub use score::{Record, Score, score};
pub use spent::{Cause, Spent};
pub use view::{Bounded, Holding, Peer, View, Vm, spread};
