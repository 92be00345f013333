//! A probe for people: a table for the terminal, a row a point for other programs, pictures, and a
//! page.
//!
//! | file | subject |
//! | --- | --- |
//! | `words` | numbers, times and sizes as they are said |
//! | `confidence` | how sure a mean is, from the slices of a point |
//! | `figures` | pictures |
//! | `table` | for the terminal |
//! | `csv` | for other programs |
//! | `page` | for a browser |
//! | `compare` | two of them side by side, in all of these ways |

pub mod compare;
mod confidence;
mod csv;
#[cfg(test)]
pub(crate) mod example;
mod figures;
mod page;
mod table;
mod words;

pub(crate) use confidence::half_width;
pub use csv::csv;
pub use figures::figures;
pub use page::page;
pub use table::table;
