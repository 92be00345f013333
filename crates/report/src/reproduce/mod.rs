//! Figures and tables of the source papers beside the simulator's results: runs the scenarios of
//! `scenarios/papers` and lists their expectations as one table. `docs/reproduction.md` shows a
//! run.
//!
//! | file | subject |
//! | --- | --- |
//! | `papers` | the scenarios: built in, or from a folder |
//! | `run` | runs of the scenarios |
//! | `value` | one value: the paper's and ours |
//! | `table` | all values as a text table |
//! | `page` | all values as Markdown, with the scenarios' descriptions |
//! | `report` | all values as one HTML page, and the pictures |

pub mod page;
mod papers;
mod report;
mod run;
mod table;
mod value;

pub use papers::{PapersError, built_in, in_folder};
pub use report::{ReportError, html, write_pictures, write_report};
pub use run::{PaperFigure, Progress, Reproduction, reproduce};
pub use table::{missed, table};
pub use value::{Agreement, Value};
