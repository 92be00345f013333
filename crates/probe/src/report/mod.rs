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

mod confidence;
mod csv;
#[cfg(test)]
mod example;
mod figures;
mod page;
mod table;
mod words;

pub use csv::csv;
pub use figures::figures;
pub use page::page;
pub use table::table;
