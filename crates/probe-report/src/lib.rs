#![forbid(unsafe_code)]
//! A probe for people: a table for the terminal, a row a point for other programs, pictures, and a
//! page.
//!
//! | file | subject |
//! | --- | --- |
//! | `words` | numbers, times and sizes as they are said |
//! | `sentences` | reason codes as sentences |
//! | `confidence` | how sure a mean is, from the slices of a point |
//! | `figures` | pictures |
//! | `table` | for the terminal |
//! | `csv` | for other programs |
//! | `page` | for a browser |
//! | `comparison` | two probes side by side: what differs by more than they are uncertain |
//! | `compare` | a comparison, in all of these ways |

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
