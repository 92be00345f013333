//! Reports of a probe: a table for the terminal, charts, and an HTML page.
//!
//! | file | subject |
//! | --- | --- |
//! | `words` | numbers, times and sizes as text |
//! | `sentences` | reason codes as sentences |
//! | `figures` | charts |
//! | `table` | tables for the terminal |
//! | `page` | an HTML page |

#[cfg(test)]
pub(crate) mod example;
mod figures;
mod page;
mod sentences;
mod table;
mod words;

pub use figures::figures;
pub use page::page;
pub use sentences::unknown;
pub use table::table;
