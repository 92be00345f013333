//! Reports of a probe: a table for the terminal, CSV, charts, and an HTML page.
//!
//! | file | subject |
//! | --- | --- |
//! | `words` | numbers, times and sizes as text |
//! | `sentences` | reason codes as sentences |
//! | `confidence` | confidence intervals of means, from the slices of a point |
//! | `figures` | charts |
//! | `table` | tables for the terminal |
//! | `csv` | a row for each point, for other programs |
//! | `page` | an HTML page |
//! | `comparison` | the comparison of two probes as data |
//! | `compare` | a comparison as sentences, table, CSV, charts and page |

pub mod compare;
mod comparison;
mod confidence;
mod csv;
#[cfg(test)]
pub(crate) mod example;
mod figures;
mod page;
mod sentences;
mod table;
mod words;

pub use comparison::{Change, Comparison, Curves, Pair, Run, SMALL, Side};
pub use csv::csv;
pub use figures::figures;
pub use page::page;
pub use sentences::unknown;
pub use table::table;
