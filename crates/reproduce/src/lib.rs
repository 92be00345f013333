#![forbid(unsafe_code)]
//! Every figure and table of the source papers, beside what the simulator says: the scenarios of
//! `scenarios/papers`, run, and their expectations as one table. `docs/reproduction.md` has a run.
//!
//! | file | subject |
//! | --- | --- |
//! | `papers` | the scenarios, from this program or from a folder |
//! | `run` | running them |
//! | `value` | one value: the paper's and ours |
//! | `table` | all values for people |
//! | `page` | all values as Markdown, with what the scenarios say of themselves |
//! | `report` | the same as one HTML page, and the pictures |

pub mod page;
mod papers;
mod report;
mod run;
mod table;
mod value;

pub use papers::{PapersError, built_in, in_folder};
pub use report::{ReportError, html, write_pictures, write_report};
pub use run::{Figure, Progress, Reproduction, reproduce};
pub use table::table;
pub use value::{Outcome, Value};
